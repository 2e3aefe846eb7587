//! A signed module of a registry with a login, and one without a signature, installed as the two ways of `deploy/` have it: by the
//! values of the chart alone, and by the components of the kustomization alone.

use std::os::unix::fs::symlink;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use weir_tests::built;
use weir_tests::chart::{Helm, REQUIRED};
use weir_tests::plane::Plane;

use super::chart::{deployed, filters, has_kubectl, prints, server_and_token};
use super::registry::{Product, Site};

/// A cluster, a registry with a login that has both modules, and what an installation has to be given.
struct Fixture {
    plane: Plane,
    site: Site,
    /// References of the modules.
    signed: String,
    unsigned: String,
    /// As `docker login` writes it.
    login: String,
    /// The URL of the API server.
    server: String,
}

impl Fixture {
    /// `None` if the programs are not built.
    async fn start() -> Option<Self> {
        let (plane, site) = (Plane::own()?, Site::new(Product::Distribution).await?);
        site.tool("cosign", &["generate-key-pair", "--output-key-prefix", "right"]).await;
        let (signed, unsigned) = (site.push("discardcloudservice").await, site.push("nodeportisolation").await);
        site.sign(&signed, "right.key", true).await;
        let login = std::fs::read_to_string(site.path("config.json")).unwrap();
        let [server, _] = server_and_token(&plane);
        Some(Self { plane, site, signed, unsigned, login, server })
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.site.path(name)).unwrap()
    }

    /// Entries of the signature policy: modules of registries need a signature by this key.
    fn policies(&self) -> Value {
        json!([{"prefix": "oci://", "require": [self.text("right.pub")]}])
    }

    /// A daemon as it is installed runs the signed module, and refuses the other one. `install`: what installs a list of filters.
    async fn runs_the_signed_module_alone(&self, install: impl Fn(Value)) {
        let filter = |module: &str| json!([{"name": "services", "module": module, "match": ["*/services"]}]);
        install(filter(&self.signed));
        let files = tempfile::tempdir().unwrap();
        let weir = deployed(&self.plane, files.path()).start_ready().await;
        assert_eq!(filters(&weir).await, ["services"]);
        install(filter(&self.unsigned));
        let (_, refused) = weir.logged_after(0, "configuration refused").await;
        assert!(refused.to_string().contains("unsigned"), "{refused}");
    }
}

#[tokio::test]
async fn a_signed_module_of_a_registry_with_a_login_runs_by_values_alone() {
    let Some(helm) = Helm::new().filter(|_| has_kubectl()) else { return };
    let Some(fixture) = Fixture::start().await else { return };
    // The registry's comes second: of several pull secrets each is for its own registry.
    let others = json!({"auths": {"registry.example": {"auth": STANDARD.encode("a:b")}}}).to_string();
    for (name, login) in [("other-login", &others), ("registry-login", &fixture.login)] {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"name": name, "namespace": "kube-system"}, "data": {".dockerconfigjson": STANDARD.encode(login)},
        });
        let _ = prints(&fixture.plane, &["apply", "--filename", "-"], &secret.to_string());
    }
    let kubeconfig = fixture.plane.kubeconfig("admin").display().to_string();
    let install = |filters: Value| {
        let values = json!({
            "servers": [fixture.server],
            "filters": filters,
            "disabledFilters": [],
            "registries": {
                "hosts": [{"host": fixture.site.host, "ca": fixture.text("ca.pem")}],
                "pullSecrets": [{"name": "other-login"}, {"name": "registry-login"}],
            },
            "signaturePolicy": {"policies": fixture.policies()},
        });
        let file = fixture.site.path("values.json");
        std::fs::write(&file, values.to_string()).unwrap();
        let command = ["upgrade", "weir", helm.chart().to_str().unwrap(), "--install", "--take-ownership"];
        let common = ["--namespace", "kube-system", "--kubeconfig", &kubeconfig, "--values", file.to_str().unwrap()];
        let _ = helm.prints(&[&command[..], &REQUIRED[..2], &common].concat());
    };
    fixture.runs_the_signed_module_alone(install).await;
}

#[tokio::test]
async fn a_signed_module_of_a_registry_with_a_login_runs_by_the_components_alone() {
    if !has_kubectl() {
        return;
    }
    let Some(fixture) = Fixture::start().await else { return };
    let folder = tempfile::tempdir().unwrap();
    symlink(built::workspace(), folder.path().join("weir")).unwrap();
    let install = |filters: Value| {
        // What the page says to patch: the objects of the components, the server, and the filters.
        let registries = json!({"registries": [{"host": fixture.site.host, "caFile": "/registries/ca.pem"}]});
        let maps = [
            ("weir-node", json!({"server": fixture.server})),
            ("weir-filters", json!({"filters.yaml": json!({"filters": filters}).to_string()})),
            ("weir-registries", json!({"registries.yaml": registries.to_string(), "ca.pem": fixture.text("ca.pem")})),
            (
                "weir-signature-policy",
                json!({"signature-policy.yaml": json!({"policies": fixture.policies()}).to_string()}),
            ),
        ];
        let patch = |kind: &str, name: &str, key: &str, data: Value| {
            let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "kube-system"}, key: data});
            json!({"patch": object.to_string()})
        };
        let mut patches: Vec<_> = maps.into_iter().map(|(name, data)| patch("ConfigMap", name, "data", data)).collect();
        let login = json!({".dockerconfigjson": fixture.login});
        patches.push(patch("Secret", "weir-registry-login", "stringData", login));
        let components = ["weir/deploy/components/registries", "weir/deploy/components/signature-policy"];
        let kustomization = json!({"resources": ["weir/deploy"], "components": components, "patches": patches});
        std::fs::write(folder.path().join("kustomization.yaml"), kustomization.to_string()).unwrap();
        let _ = prints(&fixture.plane, &["apply", "--kustomize", folder.path().to_str().unwrap()], "");
    };
    fixture.runs_the_signed_module_alone(install).await;
}
