//! Validates the flags of the API servers and of the daemon's own credential.

use std::path::Path;

use weir_upstream::ServerSource;

use super::flags::{InCluster, ServeFlags};

/// The directory where kubelet mounts the credential of a pod.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Returns the API servers and the daemon's credential, from the flags or from the environment of a pod.
pub(super) fn from_flags(
    flags: &ServeFlags,
    in_cluster: Option<InCluster>,
    errors: &mut Vec<String>,
) -> Option<ServerSource> {
    let pair = match (&flags.client_certificate, &flags.client_key) {
        (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
        (None, None) => None,
        _ => {
            errors.push("--client-certificate and --client-key: give both or none".to_owned());
            None
        }
    };
    let named = |urls| ServerSource::Server {
        urls,
        certificate_authority: flags.certificate_authority.clone(),
        client_certificate: pair,
        token_file: flags.token_file.clone(),
    };
    let Some(path) = &flags.kubeconfig else {
        return match (flags.server.is_empty(), in_cluster) {
            (false, _) => servers(&flags.server, errors).map(named),
            (true, Some(in_cluster)) => {
                reject_server_flags(flags, "needs --server", errors);
                of_pod(&in_cluster, errors)
            }
            (true, None) => {
                errors.push("--server or --kubeconfig: give one of them".to_owned());
                None
            }
        };
    };
    if !flags.server.is_empty() {
        errors.push("--server and --kubeconfig: give only one of them".to_owned());
        return None;
    }
    reject_server_flags(flags, "needs --server, but the kubeconfig names the credential", errors);
    Some(ServerSource::Kubeconfig(path.clone().into()))
}

/// The credential of the pod's service account.
fn of_pod(InCluster { host, port }: &InCluster, errors: &mut Vec<String>) -> Option<ServerSource> {
    let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    let Ok(url) = format!("https://{host}:{port}").parse() else {
        errors.push(format!("KUBERNETES_SERVICE_HOST and _PORT: {host:?} and {port:?} are not an address"));
        return None;
    };
    let folder = Path::new(SERVICE_ACCOUNT);
    Some(ServerSource::Server {
        urls: vec![url],
        certificate_authority: Some(folder.join("ca.crt")),
        client_certificate: None,
        token_file: Some(folder.join("token")),
    })
}

/// Reports flags that are only valid with --server.
fn reject_server_flags(flags: &ServeFlags, why: &str, errors: &mut Vec<String>) {
    for (flag, given) in [
        ("--certificate-authority", &flags.certificate_authority),
        ("--client-certificate", &flags.client_certificate),
        ("--token-file", &flags.token_file),
    ] {
        if given.is_some() {
            errors.push(format!("{flag}: {why}"));
        }
    }
}

/// Validates the servers. They belong to one cluster and receive the same credential, so all use http or all use https.
fn servers(urls: &[http::Uri], errors: &mut Vec<String>) -> Option<Vec<http::Uri>> {
    let valid: Option<Vec<_>> = urls.iter().map(|url| server(url, errors)).collect();
    let valid = valid?;
    if valid.iter().any(|url| url.scheme() != valid.first().and_then(http::Uri::scheme)) {
        errors.push("--server: give the URLs all with http, or all with https".to_owned());
        return None;
    }
    if let Some(twice) = valid.iter().enumerate().find(|(at, url)| valid.iter().take(*at).any(|other| other == *url)) {
        errors.push(format!("--server: {} is given twice", twice.1));
        return None;
    }
    Some(valid)
}

/// Validates that a URL has a scheme and a host, and nothing else.
fn server(url: &http::Uri, errors: &mut Vec<String>) -> Option<http::Uri> {
    let text = url.to_string();
    if !matches!(url.scheme_str(), Some("http" | "https")) || url.host().is_none_or(str::is_empty) {
        errors.push(format!("--server: {text:?} is not a URL like https://10.0.0.1:6443"));
        return None;
    }
    if url.path_and_query().is_some_and(|rest| rest != "/") {
        errors.push(format!("--server: {text:?}: give the URL without a path"));
        return None;
    }
    Some(url.clone())
}
