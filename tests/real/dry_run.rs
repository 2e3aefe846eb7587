//! What operators install, by server-side dry run at a real API server: what the chart renders with many combinations of values, and
//! the kustomization with its components.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use weir_tests::built;
use weir_tests::chart::{Helm, combinations, object, text, tool};
use weir_tests::plane::Plane;

use super::chart::{has_kubectl, kubectl, prints};

/// On the server's side: kubectl's own apply reads an object and then creates it, and another test may do so in between.
const APPLY: [&str; 3] = ["apply", "--server-side", "--force-conflicts"];
const DRY_RUN: [&str; 7] =
    ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "--filename", "-"];

/// Creates the namespaces of objects: a dry run creates none for its other objects.
fn create_namespaces(plane: &Plane, objects: &[Value]) {
    let names: BTreeSet<_> = objects.iter().filter_map(|object| object["metadata"]["namespace"].as_str()).collect();
    let of_cluster = ["default", "kube-system"];
    let namespaces = names
        .iter()
        .filter(|name| !of_cluster.contains(name))
        .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
    let namespaces: Vec<_> = namespaces.collect();
    if !namespaces.is_empty() {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": namespaces});
        let _ = prints(plane, &[&APPLY[..], &["--filename", "-"]].concat(), &list.to_string());
    }
}

/// The API server accepts the objects, field by field.
fn assert_accepted(plane: &Plane, objects: &[Value], what: &str) {
    create_namespaces(plane, objects);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let output = kubectl(plane, &DRY_RUN, &list.to_string());
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    let accepted = String::from_utf8(output.stdout).unwrap();
    assert_eq!(accepted.lines().count(), objects.len(), "{what}: {accepted}");
}

/// The pod in the files for nodes. kubelet has no part here: as a pod of its own it needs the same fields.
fn static_pod(objects: &[Value]) -> Option<Value> {
    let files = objects.iter().find_map(|object| object["data"]["weir.yaml"].as_str())?;
    Some(serde_saphyr::from_str(files).unwrap())
}

/// What two combinations have in common is looked at once: of most, two or three objects are left.
#[test]
fn the_api_server_accepts_every_object_of_each_combination_of_values() {
    let Some(helm) = Helm::new().filter(|_| has_kubectl()) else { return };
    let (Some(plane), Some(crds)) = (Plane::shared(), tool("crds")) else { return };
    let crds = crds.to_str().unwrap();
    let _ = prints(plane, &[&APPLY[..], &["--filename", crds]].concat(), "");
    let _ = prints(plane, &["wait", "--for=condition=Established", "--filename", crds], "");
    let mut known = BTreeSet::new();
    for values in &combinations::accepted() {
        let values: Vec<_> = values.iter().map(String::as_str).collect();
        let mut objects = helm.objects(&values);
        objects.extend(static_pod(&objects));
        objects.retain(|object| known.insert(object.to_string()));
        if !objects.is_empty() {
            assert_accepted(plane, &objects, &format!("{values:?}"));
        }
    }
    let wrong = helm.manifest(&[]).unwrap().replace("hostNetwork: true", "hostNetwrok: true");
    assert!(!kubectl(plane, &DRY_RUN, &wrong).status.success(), "an unknown field is refused");
}

/// The objects of a kustomization in this folder, in which `weir` is the repository.
fn kustomized(folder: &Path, kustomization: &str) -> Vec<Value> {
    std::fs::write(folder.join("kustomization.yaml"), kustomization).unwrap();
    let output = Command::new("kubectl").arg("kustomize").arg(folder).output().unwrap();
    assert!(output.status.success(), "{kustomization}: {}", String::from_utf8_lossy(&output.stderr));
    weir_store::read_objects(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

/// Every argument of the DaemonSet is a flag of the daemon, and each file that one names is in a volume.
fn assert_usable(objects: &[Value], what: &str) {
    let pod = &object(objects, "DaemonSet", "weir").unwrap()["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let help = Command::new(built::weir()).args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let mounts = container["volumeMounts"].as_array().unwrap().iter();
    let mounts: Vec<_> = mounts.map(|mount| mount["mountPath"].as_str().unwrap()).collect();
    // The image and kubelet bring these.
    let present = ["/modules", "/var/run/secrets/kubernetes.io/serviceaccount"];
    for argument in container["args"].as_array().unwrap().iter().skip(1) {
        let (flag, value) = argument.as_str().unwrap().split_once('=').unwrap();
        assert!(help.contains(&format!("  {flag} ")), "{what}: the daemon has no flag {flag}");
        for path in value.split(',').map(Path::new).filter(|path| path.is_absolute()) {
            let is_there = mounts.iter().chain(&present).any(|folder| path.starts_with(folder));
            assert!(is_there, "{what}: {} of {argument} is in none of {mounts:?}", path.display());
        }
    }
}

/// `deploy/components`, each alone and all together, and the example of deploy/README.md.
#[test]
fn the_api_server_accepts_the_kustomization_with_its_components() {
    if !has_kubectl() {
        return;
    }
    let Some(plane) = Plane::shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    symlink(built::workspace(), folder.path().join("weir")).unwrap();
    let components = std::fs::read_dir(built::workspace().join("deploy/components")).unwrap();
    let names: BTreeSet<_> = components.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let kustomization = |names: &mut dyn Iterator<Item = &String>| {
        let components: Vec<_> = names.map(|name| format!("weir/deploy/components/{name}")).collect();
        json!({"resources": ["weir/deploy"], "components": components}).to_string()
    };
    let mut all = vec![kustomization(&mut std::iter::empty()), kustomization(&mut names.iter())];
    all.extend(names.iter().map(|name| kustomization(&mut std::iter::once(name))));
    let base = kustomized(folder.path(), &all[0]);
    for kustomization in &all {
        let objects = kustomized(folder.path(), kustomization);
        assert_usable(&objects, kustomization);
        assert_accepted(plane, &objects, kustomization);
        assert_eq!(objects == base, *kustomization == all[0], "{kustomization}: each component changes something");
    }

    let page = text("README.md");
    let (_, example) = page.split_once("```yaml\nresources: [weir/deploy]").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let objects = kustomized(folder.path(), &format!("resources: [weir/deploy]{example}"));
    assert_accepted(plane, &objects, "the example");
    let registries = object(&objects, "ConfigMap", "weir-registries").unwrap()["data"]["registries.yaml"].to_string();
    assert!(registries.contains("registry.example"), "the patch of the example is applied: {registries}");
}
