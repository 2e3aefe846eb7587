//! The flags that name the API servers and the daemon's credential.

use std::path::Path;

use weir_upstream::ServerSource;

use super::flags::{InCluster, ServeFlags};

/// Where kubelet puts a pod's credential.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The API servers and the daemon's credential as the flags, or a pod's environment, name them.
pub(super) fn from_flags(
    flags: &ServeFlags,
    in_cluster: Option<InCluster>,
    problems: &mut Vec<String>,
) -> Option<ServerSource> {
    let pair = match (&flags.client_certificate, &flags.client_key) {
        (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
        (None, None) => None,
        _ => {
            problems.push("--client-certificate and --client-key: give both or none".to_owned());
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
            (false, _) => servers(&flags.server, problems).map(named),
            (true, Some(in_cluster)) => {
                others_unsaid(flags, "goes with --server", problems);
                of_pod(&in_cluster, problems)
            }
            (true, None) => {
                problems.push("--server or --kubeconfig: one of them is needed".to_owned());
                None
            }
        };
    };
    if !flags.server.is_empty() {
        problems.push("--server and --kubeconfig: only one of them".to_owned());
        return None;
    }
    others_unsaid(flags, "goes with --server; a kubeconfig names its own", problems);
    Some(ServerSource::Kubeconfig(path.clone()))
}

/// What a pod's service account gives.
fn of_pod(InCluster { host, port }: &InCluster, problems: &mut Vec<String>) -> Option<ServerSource> {
    let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    let Ok(url) = format!("https://{host}:{port}").parse() else {
        problems.push(format!("KUBERNETES_SERVICE_HOST and _PORT: {host:?} and {port:?} are no address"));
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

/// Flags that mean nothing without --server.
fn others_unsaid(flags: &ServeFlags, why: &str, problems: &mut Vec<String>) {
    for (flag, given) in [
        ("--certificate-authority", &flags.certificate_authority),
        ("--client-certificate", &flags.client_certificate),
        ("--token-file", &flags.token_file),
    ] {
        if given.is_some() {
            problems.push(format!("{flag}: {why}"));
        }
    }
}

/// Several servers are one cluster: the same credential goes to all, so they are named once each and by one scheme.
fn servers(urls: &[http::Uri], problems: &mut Vec<String>) -> Option<Vec<http::Uri>> {
    let valid: Option<Vec<_>> = urls.iter().map(|url| server(url, problems)).collect();
    let valid = valid?;
    if valid.iter().any(|url| url.scheme() != valid.first().and_then(http::Uri::scheme)) {
        problems.push("--server: write them all with http, or all with https".to_owned());
        return None;
    }
    if let Some(twice) = valid.iter().enumerate().find(|(at, url)| valid.iter().take(*at).any(|other| other == *url)) {
        problems.push(format!("--server: {} is named twice", twice.1));
        return None;
    }
    Some(valid)
}

/// Scheme and authority, nothing else.
fn server(url: &http::Uri, problems: &mut Vec<String>) -> Option<http::Uri> {
    let text = url.to_string();
    if !matches!(url.scheme_str(), Some("http" | "https")) || url.host().is_none_or(str::is_empty) {
        problems.push(format!("--server: {text:?} is not a URL like https://10.0.0.1:6443"));
        return None;
    }
    if url.path_and_query().is_some_and(|rest| rest != "/") {
        problems.push(format!("--server: {text:?}: write it without a path"));
        return None;
    }
    Some(url.clone())
}
