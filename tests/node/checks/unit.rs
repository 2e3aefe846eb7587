//! The systemd unit of `deploy/`. There is no systemd here: its command is run with the files, the environment and the user that
//! systemd gives it.

use std::path::{Path, PathBuf};
use std::process::Command;

use weir_tests::built;

use super::{WEIR_PODS, World, rules};
use crate::NODE;
use crate::cluster::deploy;
use crate::machine::run;
use crate::parts::Part;

/// Where the unit has the program, which `weir explain` is, too.
const PROGRAM: &str = "/usr/local/bin/weir";
/// In place of the user that `DynamicUser=` makes.
const USER: &str = "65534";

/// Replaces the DaemonSet by the unit, and asks it as `deploy/troubleshooting.md` does.
pub(super) fn explained(world: &World<'_>) {
    let admin = &world.admin;
    admin.run(&["-n", "kube-system", "delete", "daemonset", "weir"]);
    let () = admin.wait("the pod is gone", WEIR_PODS, |pods| pods["items"].as_array()?.is_empty().then_some(()));
    let _weir = start(world);
    rules::explained(world, |question| {
        let output = Command::new(PROGRAM).args(&question[1..]).args(["--kubeconfig", "/etc/weir/kubeconfig"]).output();
        let output = output.unwrap();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    });
}

/// Installs the program and its modules as `deploy/README.md` says, and starts what the unit starts.
fn start(world: &World<'_>) -> Part {
    let unit = std::fs::read_to_string(deploy("weir.service")).unwrap().replace("\\\n", " ");
    let values = |key: &str| {
        let key = format!("{key}=");
        unit.lines().filter_map(|line| line.strip_prefix(&key)).map(str::to_owned).collect::<Vec<_>>()
    };
    let modules = Path::new("/usr/local/lib/weir/modules");
    std::fs::create_dir_all(modules).unwrap();
    std::fs::copy(built::weir(), PROGRAM).unwrap();
    for module in std::fs::read_dir(built::modules()).unwrap().flatten() {
        std::fs::copy(module.path(), modules.join(module.file_name())).unwrap();
    }
    let credentials = PathBuf::from("/run/credentials/weir.service");
    std::fs::create_dir_all(&credentials).unwrap();
    for credential in values("LoadCredential") {
        let (name, source) = credential.split_once(':').unwrap();
        std::fs::copy(source, credentials.join(name)).unwrap();
    }
    let owner = format!("{USER}:{USER}");
    for (key, parent) in [("CacheDirectory", "/var/cache"), ("StateDirectory", "/var/lib")] {
        for name in values(key) {
            let folder = Path::new(parent).join(name).display().to_string();
            run("mkdir", &["-p", &folder]);
            run("chown", &["-R", &owner, &folder]);
        }
    }
    run("chown", &["-R", &owner, &credentials.display().to_string()]);
    let expand = |word: &str| word.replace("%d", &credentials.display().to_string()).replace("%H", NODE);
    let as_user = ["--reuid", USER, "--regid", USER, "--clear-groups", "--no-new-privs"];
    let rights = ["--inh-caps=-all,+net_admin", "--ambient-caps=+net_admin", "--bounding-set=-all,+net_admin"];
    let mut words: Vec<_> =
        [&as_user[..], &rights, &["--", "env", "-i"]].concat().into_iter().map(str::to_owned).collect();
    words.extend(values("Environment").iter().map(|value| expand(value)));
    let [command] = values("ExecStart").try_into().unwrap();
    words.extend(command.split_whitespace().map(expand));
    Part::start(world.machine, "unit", "setpriv", &words)
}
