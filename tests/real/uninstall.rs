//! A release with the operator from the released chart through an upgrade, a roll-back and an uninstall to the next install: what
//! runs keeps its rights, and no YurtIngress hangs.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_tests::built;
use weir_tests::chart::{Helm, REQUIRED, text};
use weir_tests::plane::Plane;

use super::chart::{has_kubectl, kubectl, prints};

const OWN: &str = "weir.openyurt.io/ingress-controllers";
const FOREIGN: &str = "example.com/keep";
const JOB: [&str; 4] = ["--namespace=weir-operator", "get", "job", "weir-operator-uninstall"];

struct Release<'a> {
    helm: &'a Helm,
    plane: &'a Plane,
}

impl Release<'_> {
    /// Runs Helm in a namespace, with the operator.
    fn run(&self, namespace: &str, command: &[&str], values: &[&str]) -> Output {
        let kubeconfig = self.plane.kubeconfig("admin").display().to_string();
        let values: Vec<_> = values.iter().flat_map(|value| ["--set-json", value]).collect();
        let place = ["--namespace", namespace, "--kubeconfig", &kubeconfig];
        self.helm.run(&[command, &values[..], &place[..]].concat())
    }

    fn applies(&self, namespace: &str, command: &[&str], values: &[&str]) {
        let values = [&["operator.enabled=true"][..], values].concat();
        let output = self.run(namespace, &[command, &REQUIRED].concat(), &values);
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn refused(&self, namespace: &str, command: &[&str], values: &[&str]) -> String {
        let values = [&["operator.enabled=true"][..], values].concat();
        let output = self.run(namespace, &[command, &REQUIRED].concat(), &values);
        assert!(!output.status.success(), "{command:?} {values:?}: {}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stderr).unwrap()
    }
}

fn get(plane: &Plane, arguments: &[&str]) -> Option<Value> {
    let output = kubectl(plane, &[arguments, &["--output=json"]].concat(), "");
    output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
}

fn is_there(plane: &Plane, name: &str) -> bool {
    get(plane, &["get", name]).is_some()
}

/// Waits until the command of kubectl finds something.
fn wait(plane: &Plane, arguments: &[&str]) -> Value {
    let begun = Instant::now();
    loop {
        if let Some(found) = get(plane, arguments) {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{arguments:?}: there is none");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Does what kubelet does for the Job: runs its container with its account. Then the Job is complete.
fn run_job(plane: &Plane, job: &Value, folder: &Path) -> Output {
    let pod = &job["spec"]["template"]["spec"];
    let account = pod["serviceAccountName"].as_str().unwrap();
    let token = prints(plane, &["--namespace=weir-operator", "create", "token", account], "");
    let config = std::fs::read_to_string(plane.kubeconfig("admin")).unwrap();
    let mut config: Value = serde_saphyr::from_str(&config).unwrap();
    config["users"][0]["user"] = json!({"token": token.trim()});
    let file = folder.join("kubeconfig");
    std::fs::write(&file, config.to_string()).unwrap();
    let arguments = pod["containers"][0]["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap());
    let output = Command::new(built::operator()).args(arguments).env("KUBECONFIG", file).output().unwrap();
    let now = "2026-01-01T00:00:00Z";
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
    let status = json!({"status": {
        "startTime": now, "completionTime": now, "succeeded": 1,
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
    }});
    let patch = ["--namespace=weir-operator", "patch", "job", "weir-operator-uninstall", "--subresource=status"];
    let _ = prints(plane, &[&patch[..], &["--type=merge", "--patch", &status.to_string()]].concat(), "");
    output
}

/// Uninstalls the release, with its Job.
fn uninstall(release: &Release<'_>) -> Output {
    let folder = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        let helm = scope.spawn(|| release.run("kube-system", &["uninstall", "weir"], &[]));
        let job = wait(release.plane, &JOB);
        let output = run_job(release.plane, &job, folder.path());
        let ended = helm.join().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        output
    })
}

fn selectors(plane: &Plane) -> [Value; 2] {
    let [daemon, operator] = [["kube-system", "daemonset", "weir"], ["weir-operator", "deployment", "weir-operator"]]
        .map(|[namespace, kind, name]| get(plane, &["--namespace", namespace, "get", kind, name]).unwrap());
    [daemon["spec"]["selector"].clone(), operator["spec"]["selector"].clone()]
}

#[test]
fn a_release_is_upgraded_rolled_back_uninstalled_and_installed_again() {
    let Some(helm) = Helm::new().filter(|_| has_kubectl()) else { return };
    let Some(plane) = Plane::own() else { return };
    let release = Release { helm: &helm, plane: &plane };
    let (older, chart) = (Helm::released("0.1.0").display().to_string(), helm.chart().display().to_string());
    let plain = ["patch", "yurtingress", "edge", "--type=merge", "--patch"];

    release.applies("kube-system", &["install", "weir", &older, "--take-ownership"], &[]);
    let before = selectors(&plane);
    release.applies("kube-system", &["upgrade", "weir", &chart, "--reset-then-reuse-values"], &[]);
    assert_eq!(selectors(&plane), before);
    let back = release.run("kube-system", &["rollback", "weir", "1"], &[]);
    assert!(back.status.success(), "{}", String::from_utf8_lossy(&back.stderr));
    assert_eq!(selectors(&plane), before);
    // With the values of the older chart alone.
    release.applies("kube-system", &["upgrade", "weir", &chart, "--reuse-values"], &[]);
    assert_eq!(selectors(&plane), before);
    for [namespace, name] in [["kube-system", "weir"], ["weir-operator", "weir-operator"]] {
        assert!(
            get(&plane, &["--namespace", namespace, "get", "serviceaccount", name]).is_some(),
            "{namespace}/{name}"
        );
    }

    let example = built::workspace().join("deploy/operator/example.yaml").display().to_string();
    let _ = prints(&plane, &["wait", "--for=condition=Established", "crd/yurtingresses.apps.openyurt.io"], "");
    let _ = prints(&plane, &["apply", "--filename", &example], "");
    let finalizers = json!({"metadata": {"finalizers": [OWN, FOREIGN]}}).to_string();
    let _ = prints(&plane, &[&plain[..], &[finalizers.as_str()]].concat(), "");

    let output = uninstall(&release);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("yurtingress/edge: finalizer removed, others stay: example.com/keep"), "{text}");
    let left = get(&plane, &["get", "yurtingress", "edge"]).unwrap();
    assert_eq!(left["metadata"]["finalizers"], json!([FOREIGN]));
    for kept in ["clusterrole/weir-ingress-traefik", "clusterrole/weir-ingress-nginx", "namespace/ingress-nginx"] {
        assert!(is_there(&plane, kept), "{kept}");
    }
    for gone in ["clusterrole/weir-operator", "clusterrole/weir-operator-uninstall", "clusterrole/weir-lookups"] {
        assert!(!is_there(&plane, gone), "{gone}");
    }
    for gone in ["deployment/weir-operator", "job/weir-operator-uninstall", "serviceaccount/weir-operator-uninstall"] {
        assert!(get(&plane, &["--namespace=weir-operator", "get", gone]).is_none(), "{gone}");
    }
    let none = json!({"metadata": {"finalizers": null}}).to_string();
    let _ = prints(&plane, &[&plain[..], &[none.as_str()]].concat(), "");
    let _ = prints(&plane, &["delete", "yurtingress", "edge", "--timeout=10s"], "");

    // What is left is the next release's, and nothing has to be said.
    release.applies("kube-system", &["install", "weir", &chart], &[]);
    assert_eq!(selectors(&plane), before);
    let output = uninstall(&release);
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("0 of 0 YurtIngresses"), "{output:?}");

    // A release of another namespace takes over what the former has left, if that is said.
    let elsewhere = ["install", "weir", &chart, "--create-namespace"];
    let refused = release.refused("edge", &elsewhere, &["clientCA.enabled=false"]);
    assert!(refused.contains("invalid ownership metadata"), "{refused}");
    release.applies("edge", &[&elsewhere[..], &["--take-ownership"]].concat(), &["clientCA.enabled=false"]);
    assert!(get(&plane, &["--namespace=edge", "get", "daemonset", "weir"]).is_some());

    namespaces_that_exist_and_that_do_not(&release, &chart);
    without_the_operator(&release, &chart);
}

/// The commands of deploy/operator/README.md for a cluster that keeps the ingress controllers, after `operator.enabled=false`.
fn without_the_operator(release: &Release<'_>, chart: &str) {
    let off = ["clientCA.enabled=false", "operator.enabled=false"];
    release.applies("edge", &["upgrade", "weir", chart, "--reset-then-reuse-values"], &off);
    assert!(get(release.plane, &["--namespace=weir-operator", "get", "deployment", "weir-operator"]).is_none());
    let page = text("operator/README.md");
    let (_, section) = page.split_once("\n### Without the operator\n").unwrap();
    let commands = section.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let (waits, removes) = (commands.find("wait --for=delete pod"), commands.find("weir-operator remove-finalizers"));
    assert!(waits.is_some() && waits < removes, "a running operator adds the finalizer again: {commands}");
    let kubeconfig = release.plane.kubeconfig("admin").display().to_string();
    let commands = commands.replace("admin.kubeconfig", &kubeconfig);
    let commands = commands.replace("weir-operator remove", &format!("{} remove", built::operator().display()));
    let output = Command::new("sh").args(["-eu", "-c", &commands]).env("KUBECONFIG", &kubeconfig).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{commands}: {shown}{}", String::from_utf8_lossy(&output.stderr));
    assert!(shown.contains("YurtIngresses had the finalizer"), "{shown}");
}

fn namespaces_that_exist_and_that_do_not(release: &Release<'_>, chart: &str) {
    let _ = prints(release.plane, &["create", "namespace", "mine"], "");
    let upgrade = ["upgrade", "weir", chart, "--reset-then-reuse-values"];
    for (name, value, switch) in [
        ("namespace", "operator.namespace=\"mine\"", "createNamespace"),
        ("ingressNamespace", "operator.ingressNamespace=\"mine\"", "createIngressNamespace"),
    ] {
        let values = ["clientCA.enabled=false", value];
        let refused = release.refused("edge", &upgrade, &values);
        let expected = format!(
            "operator.{name}: the namespace mine exists, and this release does not own it. Set operator.{switch}=false to use it"
        );
        assert!(refused.contains(&expected), "{refused}");
        let without = format!("operator.{switch}=false");
        let dry = [&upgrade[..], &["--dry-run=server"]].concat();
        release.applies("edge", &dry, &[&values[..], &[without.as_str()]].concat());
        let absent = value.replace("mine", "absent");
        let refused = release.refused("edge", &upgrade, &["clientCA.enabled=false", &absent, &without]);
        let expected =
            format!("operator.{name}: the namespace absent does not exist. Create it, or set operator.{switch}=true");
        assert!(refused.contains(&expected), "{refused}");
    }
}
