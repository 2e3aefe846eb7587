//! Credentials of exec plugins (KEP-541): runs the plugin of a kubeconfig, and replaces it by what it prints.
//!
//! Kept by hand: kube runs plugins itself, but waits for them on a thread of the runtime, and for ever: one that hangs would
//! stop the daemon's requests and its end. Memory: at most [`MAX_OUTPUT`] bytes of output.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::time::timeout;
use weir_process::files;

/// The longest run of a plugin. Plugins ask servers for tokens.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest output, and the longest part of the error output that is reported.
const MAX_OUTPUT: u64 = 1 << 20;
const MAX_ERROR: u64 = 1024;

/// Why a plugin gave no credential.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecPluginError {
    /// The configuration names no command, or needs a terminal.
    #[error("{0}")]
    Configuration(&'static str),
    /// The plugin cannot be started, or its output cannot be read.
    #[error("it cannot be run")]
    Run(#[source] std::io::Error),
    /// The plugin did not end in time. It was killed.
    #[error("it did not end within {TIMEOUT:?}")]
    Timeout,
    /// The plugin failed.
    #[error("it ended with {status}: {message}")]
    Failed {
        /// How it ended.
        status: std::process::ExitStatus,
        /// What it wrote to standard error.
        message: String,
    },
    /// The output is no credential.
    #[error("its output is no ExecCredential")]
    Output(#[source] serde_json::Error),
    /// The credential has neither a token nor a certificate with its key.
    #[error("its credential has neither a token nor a certificate with a key")]
    Nothing,
}

#[derive(Deserialize)]
struct ExecCredential {
    status: Option<CredentialStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CredentialStatus {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
    expiration_timestamp: Option<jiff::Timestamp>,
}

/// Replaces the plugin of a credential by what it prints. Returns when that expires, if it does. Cancel safe: dropping the
/// future kills the plugin.
///
/// # Errors
/// The plugin gives no credential within thirty seconds.
pub(super) async fn resolve(auth: &mut AuthInfo) -> Result<Option<SystemTime>, ExecPluginError> {
    let Some(exec) = auth.exec.take() else { return Ok(None) };
    let status = timeout(TIMEOUT, run(&exec)).await.map_err(|_| ExecPluginError::Timeout)??;
    let pair = status.client_certificate_data.zip(status.client_key_data);
    if status.token.is_none() && pair.is_none() {
        return Err(ExecPluginError::Nothing);
    }
    if let Some((certificate, key)) = pair {
        auth.client_certificate_data = Some(STANDARD.encode(certificate));
        auth.client_key_data = Some(STANDARD.encode(key).into());
    }
    if let Some(token) = status.token {
        auth.token = Some(token.into());
    }
    Ok(status.expiration_timestamp.map(SystemTime::from))
}

async fn run(exec: &ExecConfig) -> Result<CredentialStatus, ExecPluginError> {
    let command = exec.command.as_ref().ok_or(ExecPluginError::Configuration("it has no command"))?;
    if exec.interactive_mode == Some(ExecInteractiveMode::Always) {
        return Err(ExecPluginError::Configuration("its interactiveMode is Always, and a daemon has no terminal"));
    }
    let cluster = exec.cluster.as_ref().filter(|_| exec.provide_cluster_info);
    let spec = json!({"interactive": false, "cluster": cluster});
    let info = json!({"apiVersion": exec.api_version, "kind": "ExecCredential", "spec": spec});
    let variables = exec.env.iter().flatten().filter_map(|entry| Some((entry.get("name")?, entry.get("value")?)));
    let mut plugin = Command::new(command);
    plugin.args(exec.args.iter().flatten()).envs(variables).env("KUBERNETES_EXEC_INFO", info.to_string());
    plugin.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    // Starting a program waits until its file is read.
    let started = files::at(files::folder_of(Path::new(command)), TIMEOUT, move || plugin.spawn()).await;
    let mut child = started.map_err(ExecPluginError::Run)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let output = async {
        let mut output = Vec::new();
        if let Some(stdout) = stdout {
            stdout.take(MAX_OUTPUT).read_to_end(&mut output).await?;
        }
        Ok(output)
    };
    let message = async {
        let mut message = Vec::new();
        if let Some(mut stderr) = stderr {
            let _ = (&mut stderr).take(MAX_ERROR).read_to_end(&mut message).await;
            // Read to the end: a plugin that writes to a closed pipe is killed.
            let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
        }
        String::from_utf8_lossy(&message).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let (output, message, status) = tokio::join!(output, message, child.wait());
    let (output, status) = (output.map_err(ExecPluginError::Run)?, status.map_err(ExecPluginError::Run)?);
    if !status.success() {
        return Err(ExecPluginError::Failed { status, message });
    }
    let credential: ExecCredential = serde_json::from_slice(&output).map_err(ExecPluginError::Output)?;
    credential.status.ok_or(ExecPluginError::Nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> AuthInfo {
        let exec = ExecConfig {
            api_version: Some("client.authentication.k8s.io/v1".to_owned()),
            command: Some("sh".to_owned()),
            args: Some(vec!["-c".to_owned(), script.to_owned()]),
            env: None,
            drop_env: None,
            install_hint: None,
            interactive_mode: Some(ExecInteractiveMode::Never),
            provide_cluster_info: false,
            cluster: None,
            other: std::collections::BTreeMap::default(),
        };
        AuthInfo { exec: Some(exec), ..AuthInfo::default() }
    }

    async fn error(script: &str) -> String {
        crate::error_report(&resolve(&mut shell(script)).await.unwrap_err())
    }

    #[tokio::test]
    async fn a_plugin_is_replaced_by_what_it_prints() {
        let mut auth = shell(
            r#"echo "$KUBERNETES_EXEC_INFO" | grep -q '"interactive":false' && echo '{"status": {
                "token": "t", "clientCertificateData": "c", "clientKeyData": "k", "expirationTimestamp": "2030-01-01T00:00:00Z"}}'"#,
        );
        let expires = resolve(&mut auth).await.unwrap().unwrap();
        assert_eq!(expires.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs(), 1_893_456_000);
        assert!(auth.exec.is_none() && auth.token.is_some());
        assert_eq!(auth.client_certificate_data.as_deref(), Some("Yw=="));
        assert_eq!(resolve(&mut auth).await.unwrap(), None, "no plugin");
    }

    #[tokio::test]
    async fn a_plugin_may_write_much_to_standard_error() {
        // More than a pipe holds, after the part that is reported was read.
        let script =
            r#"head -c 2048 /dev/zero >&2 && head -c 200000 /dev/zero >&2 && echo '{"status": {"token": "t"}}'"#;
        let mut auth = shell(script);
        resolve(&mut auth).await.unwrap();
        assert!(auth.token.is_some());
    }

    #[tokio::test]
    async fn an_error_says_what_the_plugin_did() {
        assert_eq!(error("echo not logged in >&2; exit 3").await, "it ended with exit status: 3: not logged in");
        assert!(error("echo hello").await.starts_with("its output is no ExecCredential"));
        for nothing in ["{}", r#"{"status": {}}"#, r#"{"status": {"clientCertificateData": "c"}}"#] {
            assert!(error(&format!("echo '{nothing}'")).await.contains("neither a token"), "{nothing}");
        }
        let mut unknown = shell("");
        unknown.exec.as_mut().unwrap().command = Some("/no/such/plugin".to_owned());
        assert!(resolve(&mut unknown).await.unwrap_err().to_string().contains("cannot be run"));
    }
}
