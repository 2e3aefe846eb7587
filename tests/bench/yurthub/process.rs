//! YurtHub as a process, killed on drop. It gets certificates in files instead of requesting them.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weir_tests::client::Client;
use weir_tests::pki::Pair;

use super::Scene;
use crate::data;

/// The longest time until it serves.
const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) struct YurtHub {
    child: Child,
    port: u16,
    folder: tempfile::TempDir,
}

impl YurtHub {
    /// Starts YurtHub with these flags besides the necessary ones. Returns when it serves Services and slices.
    pub(super) async fn start(program: &Path, scene: &Scene, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        write_credentials(&root, scene);
        // It does not accept port 0, so this uses ports that were free a moment ago.
        let free: Vec<_> = (0..4).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let [serve, port, secure, multiplexer] = [0_usize, 1, 2, 3].map(|n| free[n].local_addr().unwrap().port());
        drop(free);
        let log = File::create(folder.path().join("log")).unwrap();
        let child = Command::new(program)
            .arg(format!("--server-addr={}", scene.server.url()))
            .arg(format!("--node-name={}", data::NODE))
            .args(["--node-ip=127.0.0.1", "--nodepool-name=pool-1", "--enable-dummy-if=false"])
            .arg(format!("--root-dir={}", root.display()))
            .arg(format!("--bootstrap-file={}", root.join("bootstrap-hub.conf").display()))
            .arg("--discovery-token-unsafe-skip-ca-verification=true")
            .arg(format!("--disk-cache-path={}", folder.path().join("cache").display()))
            .arg(format!("--serve-port={serve}"))
            .arg(format!("--proxy-port={port}"))
            .arg(format!("--proxy-secure-port={secure}"))
            .arg(format!("--multiplexer-port={multiplexer}"))
            .args(flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut hub = Self { child, port, folder };
        hub.serves().await;
        hub
    }

    /// Waits until it serves lists of kube-proxy.
    async fn serves(&mut self) {
        let (began, client) = (Instant::now(), Client::new(&self.url(), "kube-proxy"));
        for path in ["/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices"] {
            loop {
                if let Ok(answer) = client.try_get(&format!("{path}?resourceVersion=0")).await
                    && answer.status == 200
                {
                    break;
                }
                let ended = self.child.try_wait().unwrap();
                assert!(ended.is_none() && began.elapsed() < PATIENCE, "YurtHub does not serve:\n{}", self.log());
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }

    /// The last lines of its log.
    fn log(&self) -> String {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }
}

/// Writes what YurtHub has after it has joined a cluster: the CA, its certificates, and its kubeconfig.
fn write_credentials(root: &Path, scene: &Scene) {
    let pki = root.join("pki");
    std::fs::create_dir_all(&pki).unwrap();
    let write = |path: &Path, text: &str| std::fs::write(path, text).unwrap();
    let pem = |pair: &Pair| format!("{}{}", pair.certificate, pair.key);
    write(&pki.join("ca.crt"), scene.ca.pem());
    let client = scene.ca.client(&format!("system:node:{}", data::NODE), "system:nodes");
    write(&pki.join("yurthub-current.pem"), &pem(&client));
    write(&pki.join("yurthub-server-current.pem"), &pem(&scene.ca.server()));
    let config = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: c, cluster: {{server: '{}', certificate-authority: '{}'}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: c}}}}]\n\
         users: [{{name: c, user: {{client-certificate: '{}', client-key: '{2}'}}}}]\n",
        scene.server.url(),
        pki.join("ca.crt").display(),
        pki.join("yurthub-current.pem").display(),
    );
    write(&root.join("yurthub.conf"), &config);
    write(&root.join("bootstrap-hub.conf"), &config);
}

impl Drop for YurtHub {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
