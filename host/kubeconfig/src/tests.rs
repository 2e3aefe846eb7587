//! The rules of merging and of the current context.

use std::error::Error as _;
use std::ffi::OsStr;

use super::*;

const CONTEXTS: &str = "contexts: [{name: c, context: {cluster: a, user: u}}]\n";
const USERS: &str = "users: [{name: u, user: {token: one}}]\n";
const CLUSTERS: &str = "clusters: [{name: a, cluster: {server: \"https://x:1\"}}]\n";
const CURRENT: &str = "current-context: c\n";

/// Loads a list of files, of which those without a text do not exist.
async fn load(list: &str, texts: &[Option<&str>]) -> Result<kube::Config, ConfigError> {
    let files = KubeconfigFiles::of_list(OsStr::new(list)).unwrap();
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
    assert!(config.auth_info.token.is_some());
}

#[tokio::test]
async fn errors_of_a_list_name_its_files() {
    assert_eq!(KubeconfigFiles::of_list(OsStr::new(":")), None);
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

/// Paths are those of the file that names them.
#[test]
fn paths_are_relative_to_their_file() {
    let files = KubeconfigFiles::of_list(OsStr::new("/one/a:/two/b")).unwrap();
    let user = "users: [{name: u, user: {tokenFile: token, exec: {command: bin/login}}}]\n";
    let first = [CONTEXTS, CLUSTERS, CURRENT].concat();
    let mut merged = merge(&files, [first, user.to_owned()].map(|text| Ok(text.into_bytes()))).unwrap();
    let user = current_user(&mut merged).unwrap();
    assert_eq!(user.token_file.as_deref(), Some("/two/token"));
    assert_eq!(user.exec.as_ref().unwrap().command.as_deref(), Some("/two/bin/login"));
}
