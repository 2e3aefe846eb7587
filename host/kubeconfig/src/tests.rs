//! The rules of merging and of the current context.

use std::error::Error as _;
use std::ffi::OsStr;

use secrecy::ExposeSecret as _;

use super::*;

const CONTEXTS: &str = "contexts: [{name: c, context: {cluster: a, user: u}}]\n";
const USERS: &str = "users: [{name: u, user: {token: one}}]\n";
const CLUSTERS: &str = "clusters: [{name: a, cluster: {server: \"https://x:1\"}}]\n";
const CURRENT: &str = "current-context: c\n";

/// The files of `KUBECONFIG`.
fn listed(list: &str) -> Option<KubeconfigFiles> {
    KubeconfigFiles::given(None, Some(list.into()))
}

/// Loads a list of files, of which those without a text do not exist.
async fn load(list: &str, texts: &[Option<&str>]) -> Result<kube::Config, ConfigError> {
    let files = listed(list).unwrap();
    let missing = || io::Error::from(io::ErrorKind::NotFound);
    let merged = merge(&files, texts.iter().map(|text| text.map(|text| text.as_bytes().to_vec()).ok_or_else(missing)))?;
    client_config(&files, merged).await
}

/// What is wrong; `None` if nothing is.
async fn fault(list: &str, texts: &[Option<&str>]) -> Option<String> {
    let error = load(list, texts).await.err()?;
    Some(match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    })
}

#[tokio::test]
async fn each_fault_of_a_file_is_named_with_what_to_do() {
    let select = "select one with `kubectl config use-context NAME --kubeconfig /k`";
    let other = "or select another context with `kubectl config use-context NAME`";
    let set = |kind: &str| format!("correct it with `kubectl config set-context c --{kind}=NAME`, {other}");
    for (text, reason) in [
        ([CONTEXTS, USERS, CLUSTERS, CURRENT].concat(), None),
        (
            [CONTEXTS, USERS, CLUSTERS].concat(),
            Some(format!("kubeconfig /k: no current-context is set (there is c): {select}")),
        ),
        (
            [CONTEXTS, USERS, CLUSTERS, "current-context: ''"].concat(),
            Some(format!("kubeconfig /k: no current-context is set (there is c): {select}")),
        ),
        (String::new(), Some(format!("kubeconfig /k: no current-context is set (there is none): {select}"))),
        (
            [CONTEXTS, USERS, CLUSTERS, "current-context: x"].concat(),
            Some(format!("kubeconfig /k: the current-context \"x\" does not exist (there is c): {select}")),
        ),
        (
            [CONTEXTS, USERS, CURRENT].concat(),
            Some(format!(
                "kubeconfig /k: the current context \"c\" names the cluster \"a\", which does not exist (there is none): {}",
                set("cluster")
            )),
        ),
        (
            [CONTEXTS, "users: [{name: v, user: {}}]\n", CLUSTERS, CURRENT].concat(),
            Some(format!(
                "kubeconfig /k: the current context \"c\" names the user \"u\", which does not exist (there is v): {}",
                set("user")
            )),
        ),
        (
            [CONTEXTS, USERS, "clusters: [{name: a, cluster: {}}]\n", CURRENT].concat(),
            Some("kubeconfig /k: the cluster of the current context has no server".to_owned()),
        ),
        (
            "clusters: {a: b}".to_owned(),
            Some("kubeconfig /k: it is not valid: line 1 column 11: expected a list".to_owned()),
        ),
    ] {
        assert_eq!(fault("/k", &[Some(&text)]).await, reason, "{text}");
    }
    assert_eq!(fault("/k", &[None]).await.as_deref(), Some("kubeconfig /k: entity not found"));
}

#[tokio::test]
async fn a_context_without_a_user_is_one_without_a_credential() {
    for user in ["", ", user: ''"] {
        let context = format!("contexts: [{{name: c, context: {{cluster: a{user}}}}}]\n");
        assert_eq!(fault("/k", &[Some(&[&*context, CLUSTERS, CURRENT].concat())]).await, None, "{user}");
    }
}

#[tokio::test]
async fn the_first_file_that_sets_a_value_decides_it() {
    let first = ["current-context: ''\n", CLUSTERS, "users: [{name: u, user: {token: first}}]"].concat();
    let second = [CURRENT, CONTEXTS, USERS, "clusters: [{name: a, cluster: {server: \"https://y:2\"}}]"].concat();
    let third = "current-context: other";
    let config = load("/a::/none:/b:/c", &[Some(&first), None, Some(&second), Some(third)]).await.unwrap();
    assert_eq!(config.cluster_url.to_string(), "https://x:1/");
    // The name of the user is in both.
    assert_eq!(config.auth_info.token.as_ref().map(|token| token.expose_secret()), Some("first"));
}

/// The flag is one path, which may have a colon. An empty value counts as unset, and a list of empty names does not.
#[test]
fn the_flag_precedes_the_variable_and_the_home_is_that_of_the_user() {
    let chosen = |flag: Option<&str>, variable: Option<&str>| {
        let files = KubeconfigFiles::given(flag.map(OsStr::new), variable.map(Into::into));
        files.map(|files| files.paths().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" "))
    };
    for (flag, variable, files) in [
        (None, None, None),
        (Some(""), Some(""), None),
        (Some("/a"), Some("/b"), Some("/a")),
        (Some("/a:/b"), None, Some("/a:/b")),
        (Some(""), Some("/a:/b"), Some("/a /b")),
        (None, Some(":/a::/b:"), Some("/a /b")),
        (None, Some(":"), Some("")),
    ] {
        assert_eq!(chosen(flag, variable).as_deref(), files, "{flag:?}, {variable:?}");
    }
    assert_eq!(KubeconfigFiles::of_user(None), None);
    assert_eq!(KubeconfigFiles::of_user(Some("".into())), None);
    let user = KubeconfigFiles::of_user(Some("/home/a".into())).unwrap();
    assert_eq!(user.to_string(), "kubeconfig /home/a/.kube/config");
}

#[tokio::test]
async fn errors_of_a_list_name_its_files() {
    let nothing = fault(":", &[]).await.unwrap();
    assert!(nothing.starts_with("KUBECONFIG names no file: "), "{nothing}");
    let none = fault("/a:/b", &[None, None]).await;
    assert_eq!(none.as_deref(), Some("kubeconfigs /a, /b: none of these files exists"));
    let invalid = fault("/a:/b", &[Some(CLUSTERS), Some("clusters: 7")]).await.unwrap();
    assert!(invalid.starts_with("kubeconfig /b: it is not valid: line 1"), "{invalid}");
    let kind = fault("/a:/b", &[Some("kind: Config"), Some("kind: Secret")]).await;
    assert_eq!(kind.as_deref(), Some("kubeconfig /b: its kind is not that of the files before it"));
    let unset = fault("/a:/b", &[Some(CLUSTERS), Some(CONTEXTS)]).await;
    let expected =
        "kubeconfigs /a, /b: no current-context is set (there is c): select one with `kubectl config use-context NAME`";
    assert_eq!(unset.as_deref(), Some(expected));
}

/// A path is relative to the folder of the file that has it.
#[test]
fn paths_are_relative_to_their_file() {
    let cluster = "clusters: [{name: a, cluster: {server: \"https://x:1\", certificate-authority: ca.crt}}]\n";
    let files = "client-certificate: pki/a.crt, client-key: /pki/a.key, tokenFile: token";
    let user = format!("users: [{{name: u, user: {{{files}, exec: {{command: bin/login}}}}}}]\n");
    let first = [CONTEXTS, cluster, CURRENT].concat();
    let mut merged = merge(&listed("/one/a:/two/b").unwrap(), [first, user].map(|text| Ok(text.into_bytes()))).unwrap();
    assert_eq!(current_cluster(&mut merged).unwrap().certificate_authority.as_deref(), Some("/one/ca.crt"));
    let user = current_user(&mut merged).unwrap();
    assert_eq!(user.client_certificate.as_deref(), Some("/two/pki/a.crt"));
    assert_eq!(user.client_key.as_deref(), Some("/pki/a.key"));
    assert_eq!(user.token_file.as_deref(), Some("/two/token"));
    assert_eq!(user.exec.as_ref().unwrap().command.as_deref(), Some("/two/bin/login"));
}

#[test]
fn an_empty_path_is_no_path() {
    let cluster = "clusters: [{name: a, cluster: {server: \"https://x:1\", certificate-authority: ''}}]\n";
    let user = "users: [{name: u, user: {client-certificate: '', client-key: '', tokenFile: '', token: one}}]\n";
    let text = [CONTEXTS, cluster, user, CURRENT].concat();
    let mut merged = merge(&listed("/one/a").unwrap(), [Ok(text.into_bytes())]).unwrap();
    assert_eq!(current_cluster(&mut merged).unwrap().certificate_authority, None);
    let user = current_user(&mut merged).unwrap();
    let paths = [&user.client_certificate, &user.client_key, &user.token_file];
    assert_eq!(paths, [&None; 3]);
}
