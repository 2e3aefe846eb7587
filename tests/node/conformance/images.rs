//! The images of the suite, under the names that it uses: agnhost, busybox and pause. Web servers are agnhost, too.

use std::process::Command;

use super::programs;
use super::suite::image_names;
use crate::images::Image;
use crate::machine::{Machine, run};

/// What Debian's busybox must not replace: it runs its own applets before what PATH names.
const PROGRAMS: &[(&str, &str)] = &[
    ("dash", "/bin/sh"),
    ("bash", "/bin/bash"),
    ("nc.openbsd", "/bin/nc"),
    ("curl", "/usr/bin/curl"),
    ("dig", "/usr/bin/dig"),
    ("getent", "/usr/bin/getent"),
];
/// The users that a pod may name.
const USERS: &str = "root:x:0:0:root:/root:/bin/sh\nuser-defined-in-image:x:1000:1000::/home:/bin/sh\n";
const GROUPS: &str = "root:x:0:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n";

/// Builds and imports the images.
pub(super) fn import(machine: &Machine) {
    // portmap calls these names, which Debian makes when it installs the package.
    for name in ["iptables", "ip6tables"] {
        let _ = std::os::unix::fs::symlink(format!("/usr/sbin/{name}-nft"), format!("/usr/sbin/{name}"));
    }
    let names = image_names();
    agnhost(Image::new(machine, "weir.test/agnhost:1", &["/agnhost"]).arguments(&["pause"]));
    agnhost(Image::new(machine, "weir.test/httpd:1", &["/agnhost", "test-webserver", "--port=80"]));
    busybox(Image::new(machine, "weir.test/busybox-suite:1", &[]).arguments(&["sh"]));
    let tags = [
        ("agnhost", "weir.test/agnhost:1"),
        ("jessie-dnsutils", "weir.test/agnhost:1"),
        ("httpd", "weir.test/httpd:1"),
        ("nginx", "weir.test/httpd:1"),
        ("busybox", "weir.test/busybox-suite:1"),
        ("pause", crate::images::PAUSE),
    ];
    for name in names {
        let short = name.rsplit('/').next().and_then(|name| name.split(':').next()).unwrap_or_default();
        // Tests of missing and private images need names that nobody has.
        let is_public = !name.contains("authenticated") && !name.contains("invalid");
        if let Some((_, image)) = tags.iter().find(|(tag, _)| *tag == short && is_public) {
            run("ctr", &["-n", "k8s.io", "images", "tag", image, &name]);
        }
    }
}

fn agnhost(image: Image) {
    let (folder, debian) = (programs(), crate::folder().join("e2e").join("debian"));
    image.program(&folder.join("agnhost"), "/agnhost");
    for (program, inside) in PROGRAMS {
        image.unpacked_program(&debian, &debian.join("usr/bin").join(program), inside);
    }
    for file in ["localhost.crt", "localhost.key"] {
        image.file(&folder.join(file).display().to_string(), &format!("/{file}"));
    }
    image.folder("/uploads");
    image.links("agnhost", ["/agnhost-2"]);
    applets(&image);
    image.import();
}

fn busybox(image: Image) {
    applets(&image);
    image.import();
}

/// busybox with links of all its applets.
fn applets(image: &Image) {
    image.file("/usr/bin/busybox", "/bin/busybox");
    image.text("/etc/passwd", USERS);
    image.text("/etc/group", GROUPS);
    image.text("/etc/nsswitch.conf", "hosts: files dns\n");
    let output = Command::new("/usr/bin/busybox").arg("--list").output().unwrap();
    let applets = String::from_utf8(output.stdout).unwrap();
    let links: Vec<_> = applets.lines().map(|applet| format!("/bin/{applet}")).collect();
    image.links("/bin/busybox", links.iter().map(String::as_str));
    image.links("/bin/env", ["/usr/bin/env"]);
}
