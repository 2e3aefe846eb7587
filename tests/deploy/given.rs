//! deploy/helm: what the chart gives a pod, a unit or a program is not given again by further values. Kubernetes takes the last of two
//! variables, a mount covers another one at its path, and a program ends over a flag that is there twice.

use serde_json::Value;
use weir_tests::chart::combinations::PEERS;
use weir_tests::chart::{Helm, object};

/// All that the DaemonSet can have.
const DAEMONSET: &[&str] = &[
    PEERS,
    "podInterface=\"a\"",
    "portOffset=1",
    "servers=[\"https://a\",\"https://b\"]",
    "servingCertificate.secretName=\"a\"",
    "registries={\"hosts\":[{\"host\":\"a.example\"}],\"pullSecrets\":[{\"name\":\"a\"}]}",
    "signaturePolicy.configMap=\"a\"",
    "cache.resources=[]",
    "admin.address=\"::\"",
    "nodeCondition=\"on\"",
];

/// The words of a key in each item of a list.
fn each<'a>(list: &'a Value, key: &str) -> Vec<&'a str> {
    list.as_array().unwrap().iter().map(|item| item[key].as_str().unwrap()).collect()
}

/// The daemon's pod: of the DaemonSet, or the static one.
fn pod(objects: &[Value]) -> Value {
    match object(objects, "DaemonSet", "weir") {
        Some(set) => set["spec"]["template"]["spec"].clone(),
        None => serde_saphyr::from_str::<Value>(node_file(objects, "weir.yaml")).unwrap()["spec"].clone(),
    }
}

fn node_file<'a>(objects: &'a [Value], name: &str) -> &'a str {
    object(objects, "ConfigMap", "weir-node-files").unwrap()["data"][name].as_str().unwrap()
}

/// The flags of a command line, without their values.
fn flags<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let flags = words.into_iter().filter(|word| word.starts_with("--"));
    flags.map(|word| word.split('=').next().unwrap().to_owned()).collect()
}

fn flags_of(container: &Value) -> Vec<String> {
    flags(container["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()))
}

/// The error of the chart about these values, with what they add.
fn refused(helm: &Helm, values: &[&str], added: &[&str]) -> String {
    helm.manifest(&[values, added].concat()).map(drop).expect_err(&format!("{added:?}"))
}

#[test]
fn a_variable_a_volume_or_a_mount_of_the_chart_is_not_given_again() {
    let Some(helm) = Helm::new() else { return };
    for values in [DAEMONSET, &["install=\"static-pod\""]] {
        let pod = pod(&helm.objects(values));
        let container = &pod["containers"][0];
        let (variables, volumes) = (each(&container["env"], "name"), each(&pod["volumes"], "name"));
        let paths = each(&container["volumeMounts"], "mountPath");
        assert!(variables.len() > 1 && volumes.len() > 5 && paths.len() == volumes.len(), "{pod}");
        for name in variables {
            let error = refused(&helm, values, &[&format!("extraEnv=[{{\"name\":\"{name}\"}}]")]);
            assert!(error.contains("/extraEnv"), "{name}: {error}");
        }
        for name in volumes {
            let error = refused(&helm, values, &[&format!("extraVolumes=[{{\"name\":\"{name}\"}}]")]);
            assert!(error.contains("/extraVolumes/0/name"), "{name}: {error}");
        }
        for path in paths {
            for again in [path.to_owned(), format!("{path}/"), format!("/{path}"), format!("/.{path}//.")] {
                let mount = format!("extraVolumeMounts=[{{\"name\":\"a\",\"mountPath\":\"{again}\"}}]");
                let error = refused(&helm, values, &["extraVolumes=[{\"name\":\"a\"}]", &mount]);
                assert!(error.contains(&format!("has the mountPath {path}\n")), "{again}: {error}");
            }
        }
    }
}

#[test]
fn a_flag_of_the_chart_is_not_given_again() {
    let Some(helm) = Helm::new() else { return };
    let operator = &["operator.enabled=true", "operator.evictions=false", "operator.podAPIServer=\"a:1\""][..];
    let operator_flags = {
        let objects = helm.objects(operator);
        flags_of(&object(&objects, "Deployment", "weir-operator").unwrap()["spec"]["template"]["spec"]["containers"][0])
    };
    let (static_pod, unit) = (&["install=\"static-pod\""][..], &["install=\"systemd\""][..]);
    let unit_flags = flags(node_file(&helm.objects(unit), "weir.service").lines().map(str::trim_start));
    for (values, flags, least, list) in [
        (DAEMONSET, flags_of(&pod(&helm.objects(DAEMONSET))["containers"][0]), 20, "extraArgs"),
        (static_pod, flags_of(&pod(&helm.objects(static_pod))["containers"][0]), 9, "extraArgs"),
        (unit, unit_flags, 7, "extraArgs"),
        (operator, operator_flags, 3, "operator.extraArgs"),
    ] {
        assert!(flags.len() >= least, "{flags:?}");
        for flag in flags {
            let again = format!("{list}=[\"{flag}=a\"]");
            if ["--peer", "--registry-auth"].contains(&flag.as_str()) {
                assert!(helm.manifest(&[values, &[&again]].concat()).is_ok(), "a pool or a login more: {again}");
                continue;
            }
            let expected = format!(" {list}: {flag}: the chart or another entry has {flag} already");
            let error = refused(&helm, values, &[&again]);
            assert!(error.contains(&expected), "{again}: {error}");
            if list == "extraArgs" && values != unit {
                let variable = format!("WEIR_{}", flag[2..].replace('-', "_").to_uppercase());
                let error = refused(&helm, values, &[&format!("extraEnv=[{{\"name\":\"{variable}\"}}]")]);
                assert!(error.contains("extraEnv: ") && error.contains(&variable), "{error}");
            }
        }
    }
}

#[test]
fn flags_that_exclude_each_other_are_refused() {
    let Some(helm) = Helm::new() else { return };
    let operator = "operator.enabled=true";
    for (values, reason) in [
        (&["extraArgs=[\"--memory=1Gi\",\"--memory=2Gi\"]"][..], "extraArgs: --memory: "),
        (&["extraArgs=[\"--memory=1Gi\"]", "extraEnv=[{\"name\":\"WEIR_MEMORY\"}]"], "extraEnv: WEIR_MEMORY: "),
        (&["extraArgs=[\"--config-file=/a\"]"], "--config-file: the chart or another entry has --config-map already"),
        (&["extraEnv=[{\"name\":\"WEIR_CONFIG_FILE\"}]"], "WEIR_CONFIG_FILE: the chart or extraArgs has --config-map"),
        (&["extraArgs=[\"--kubeconfig=/a\"]"], "--kubeconfig: the chart or another entry has WEIR_SERVER already"),
        (&["extraArgs=[\"--server=https://a\"]"], "--server: the chart or another entry has WEIR_SERVER already"),
        (
            &["install=\"systemd\"", "extraArgs=[\"--server=https://a\"]"],
            "--server: the chart or another entry has --kubeconfig already",
        ),
        (&["extraArgs=[\"--admin-port=1\"]"], "--admin-port: the chart or another entry has portOffset already"),
        (&[operator, "operator.extraArgs=[\"-v\",\"--verbose\"]"], "operator.extraArgs: --verbose: "),
        (&[operator, "operator.extraArgs=[\"-vv\"]"], "/operator/extraArgs/0"),
    ] {
        let error = refused(&helm, values, &[]);
        assert!(error.contains(reason), "{values:?}: {error}");
    }
    for values in [
        &["extraArgs=[\"--resend=a=replace\",\"--resend=b=replace\",\"--verbose\",\"--verbose\"]"][..],
        &["extraEnv=[{\"name\":\"WEIR_MEMORY\",\"value\":\"1Gi\"},{\"name\":\"LOG_FORMAT\"}]"],
        &["install=\"systemd\"", "extraArgs=[\"--node-name=a\"]"],
        &[operator, "operator.extraArgs=[\"--set=traefik.image=a\",\"--set=traefik.a=b\",\"-v\"]"],
        &["operator.extraArgs=[\"--log-json\"]"],
    ] {
        assert!(helm.manifest(values).is_ok(), "{values:?}");
    }
}
