//! Embeds what `weir new` writes. Links the daemon with packed relative relocations where the machine's C library can load
//! them: the binary is 1.6 MB smaller. It then needs glibc 2.36 or later to start, as any machine like the one that built it
//! has. On x86_64, where rustc links with LLD, functions with the same code are merged.

#[path = "build/embed.rs"]
mod embed;

use std::env::var;
use std::io;
use std::process::Command;

/// The first glibc that loads packed relocations.
const PACKED_RELOCATIONS: (u32, u32) = (2, 36);

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    embed::embed()?;
    if builds_for_itself() && glibc().is_some_and(|version| version >= PACKED_RELOCATIONS) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    // Nothing here compares addresses of functions.
    if builds_for_itself() && var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
    Ok(())
}

fn builds_for_itself() -> bool {
    var("HOST").is_ok_and(|host| Ok(host) == var("TARGET")) && var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu")
}

/// The version of the machine's glibc.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
