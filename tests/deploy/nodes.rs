//! What the chart puts on nodes: the files of a static pod and of units, users, capabilities and credentials.

use serde_json::{Value, json};
use weir_tests::chart::{Helm, object, text};

#[test]
fn the_files_for_nodes_are_those_of_this_folder() {
    let Some(helm) = Helm::new() else { return };
    let pod = helm.objects(&["install=\"static-pod\""]);
    let files = &object(&pod, "ConfigMap", "weir-node-files").unwrap()["data"];
    let rendered: Value = serde_saphyr::from_str(files["weir.yaml"].as_str().unwrap()).unwrap();
    let committed: Value = serde_saphyr::from_str(&text("static-pod.yaml")).unwrap();
    assert_eq!(rendered, committed);
    let unit = helm.objects(&["install=\"systemd\""]);
    let files = &object(&unit, "ConfigMap", "weir-node-files").unwrap()["data"];
    for name in ["weir.service", "weir.socket"] {
        assert_eq!(files[name].as_str().unwrap().trim_end(), text(name).trim_end(), "{name}");
    }
    assert!(object(&pod, "DaemonSet", "weir").is_none() && object(&unit, "DaemonSet", "weir").is_none());
}

/// Root without capabilities reads only its own files: after a change of `podAddress` another user would find a cache that it must
/// not use, and none could create one in the folder that kubelet makes for root.
#[test]
fn the_cache_on_the_host_has_one_user_with_a_pod_address_and_without() {
    let Some(helm) = Helm::new() else { return };
    let none = &["podAddress=\"\"", "clientCA.enabled=false"][..];
    for values in [none, &["podInterface=\"\""], &[]] {
        let objects = helm.objects(values);
        let daemon_set = &object(&objects, "DaemonSet", "weir").unwrap()["spec"]["template"]["spec"];
        let objects = helm.objects(&[&["install=\"static-pod\""], values].concat());
        let files = &object(&objects, "ConfigMap", "weir-node-files").unwrap()["data"];
        let pod: Value = serde_saphyr::from_str(files["weir.yaml"].as_str().unwrap()).unwrap();
        let committed: [Value; 2] =
            ["daemonset.yaml", "static-pod.yaml"].map(|file| serde_saphyr::from_str(&text(file)).unwrap());
        for spec in [daemon_set, &pod["spec"], &committed[0]["spec"]["template"]["spec"], &committed[1]["spec"]] {
            let security = &spec["securityContext"];
            assert_eq!((&security["runAsUser"], &security["runAsGroup"]), (&json!(0), &json!(0)), "{values:?}");
            assert_eq!(spec["containers"][0]["securityContext"]["capabilities"]["drop"], json!(["ALL"]), "{values:?}");
        }
        // systemd gives the folder of the state to whichever user it has chosen for the start.
        let objects = helm.objects(&[&["install=\"systemd\""], values].concat());
        let files = &object(&objects, "ConfigMap", "weir-node-files").unwrap()["data"];
        for line in ["DynamicUser=yes\n", "StateDirectory=weir\n", "--cache-dir=/var/lib/weir/cache"] {
            assert!(files["weir.service"].as_str().unwrap().contains(line), "{values:?}: {line}");
        }
    }
}

#[test]
fn without_a_pod_address_the_daemon_has_no_capability() {
    let Some(helm) = Helm::new() else { return };
    let objects = helm.objects(&["podAddress=\"\"", "clientCA.enabled=false"]);
    let spec = &object(&objects, "DaemonSet", "weir").unwrap()["spec"]["template"]["spec"];
    assert_eq!(spec["containers"][0]["securityContext"]["capabilities"], json!({"drop": ["ALL"]}));
    assert!(object(&objects, "ClusterRole", "weir-certificate").is_none());
    let arguments = spec["containers"][0]["args"].to_string();
    assert!(!arguments.contains("--pod-") && !arguments.contains("--client-ca-file"), "{arguments}");
}

/// systemd copies the files of `LoadCredential=` at the start alone.
#[test]
fn the_guide_says_how_the_credentials_of_the_unit_are_followed() {
    let (unit, guide) = (text("weir.service"), text("README.md"));
    let files: Vec<_> = unit.lines().filter_map(|line| line.strip_prefix("LoadCredential=")?.split_once(':')).collect();
    assert_eq!(files.len(), 2);
    for (_, file) in files {
        assert!(guide.contains(&format!("\nPathChanged={file}\n")), "{file}");
    }
}
