//! Logins by the challenge of the request at hand, with the habits of real registries, and what of a credential, an index or a
//! mirror counts.

use weir_tests::registry::Habits;

use super::*;

/// What the token service of most registries answers.
const TOKEN: &str = r#"{"token": "issued"}"#;
/// Asks for a token.
const BEARER: &str = "Bearer realm=\"http://{host}/token\",service=\"fake\",scope=\"repository:team/services:pull\"";

impl Site {
    /// A registry that has a module, and wants the login `node:right` from now on.
    async fn closed(habits: Habits) -> (Self, String) {
        let site = Self::new().await;
        let reference = site.push("discardcloudservice").await;
        site.registry.login("node", "right");
        site.registry.habits(habits);
        (site, reference)
    }

    /// Pulls with an entry of a docker config for the registry.
    async fn pull(&self, reference: &str, entry: &Value) -> (String, bool) {
        self.pull_with(reference, &json!({"auths": {self.registry.host(): entry}})).await
    }

    async fn pull_with(&self, reference: &str, config: &Value) -> (String, bool) {
        let file = self.write("auth.json", &config.to_string());
        self.weir(&["pull", reference, "--registry-auth", &file, "-o", "out.wasm"]).await
    }
}

fn right() -> Value {
    json!({"auth": STANDARD.encode("node:right")})
}

fn bearer() -> Habits {
    Habits { challenges: vec![BEARER.to_owned()], token: Some(TOKEN.to_owned()), ..Habits::default() }
}

/// zot, GitLab and Artifactory.
#[tokio::test]
async fn an_open_root_does_not_hide_that_the_repository_wants_a_login() {
    for habits in [Habits::default(), bearer()] {
        let (site, reference) = Site::closed(Habits { open_root: true, ..habits.clone() }).await;
        let (said, good) = site.pull(&reference, &right()).await;
        assert!(good, "{habits:?}: {said}");
        let (said, good) = site.pull_with(&reference, &json!({})).await;
        assert!(!good && said.contains("401: it wants a credential: name one in --registry-auth"), "{said}");
    }
}

/// zot 1, where anybody may read some repositories: 403, and the challenge beside the 200 of `/v2/`.
#[tokio::test]
async fn a_registry_that_is_silent_about_what_is_private_is_asked_at_its_root() {
    for code in [403, 404] {
        let (site, reference) = Site::closed(Habits { silent: Some(code), ..Habits::default() }).await;
        let (said, good) = site.pull(&reference, &right()).await;
        assert!(good, "{code}: {said}");
        let (said, good) = site.pull_with(&reference, &json!({})).await;
        assert!(!good && said.contains(&code.to_string()), "{said}");
        let wrong = json!({"auth": STANDARD.encode("node:wrong")});
        let (said, good) = site.pull(&reference, &wrong).await;
        assert!(!good && said.contains(&code.to_string()), "{said}");
    }
}

/// Docker Hub and Nexus.
#[tokio::test]
async fn all_may_pull_and_a_push_is_logged_in() {
    for habits in [Habits::default(), bearer()] {
        let habits = Habits { open_root: true, open_pull: true, ..habits };
        let (site, reference) = Site::closed(habits.clone()).await;
        let (said, good) = site.pull(&reference, &right()).await;
        assert!(good, "{habits:?}: {said}");
        assert_eq!(site.registry.credentials(), [""; 0], "nobody asked for it");
        let file = site.write("auth.json", &json!({"auths": {site.registry.host(): right()}}).to_string());
        let path = built::module("nodeportisolation").display().to_string();
        let target = format!("{}:2", site.name());
        let (said, good) = site.weir(&["push", &path, &target, "--registry-auth", &file]).await;
        assert!(good, "{habits:?}: {said}");
        let (said, good) = site.weir(&["push", &path, &target]).await;
        assert!(!good && said.contains("401: it wants a credential"), "{said}");
    }
}

/// Azure: `az acr login` writes a user without a password, and an identitytoken.
#[tokio::test]
async fn an_identitytoken_is_exchanged_for_a_token() {
    let habits = Habits { identity_token: Some("refresh".to_owned()), ..bearer() };
    let (site, reference) = Site::closed(habits).await;
    let entry =
        |token: &str| json!({"auth": STANDARD.encode("00000000-0000-0000-0000-000000000000:"), "identitytoken": token});
    let (said, good) = site.pull(&reference, &entry("refresh")).await;
    assert!(good, "{said}");
    let (said, good) = site.pull(&reference, &entry("expired")).await;
    assert!(!good && said.contains("/token\" does not accept the credential"), "{said}");
    assert!(!said.contains("expired"), "{said}");
    // Where a password is wanted, it is of no use.
    site.registry.habits(Habits::default());
    let (said, good) = site.pull(&reference, &entry("refresh")).await;
    assert!(!good && said.contains("401: it wants Basic") && said.contains("has identitytoken alone"), "{said}");
}

#[tokio::test]
async fn a_registrytoken_is_sent_as_it_is() {
    let (site, reference) = Site::closed(bearer()).await;
    let (said, good) = site.pull(&reference, &json!({"registrytoken": "issued"})).await;
    assert!(good, "{said}");
    assert_eq!(site.registry.count("GET", "/token"), 0);
    let entry = json!({"auth": STANDARD.encode("node:wrong"), "registrytoken": "old"});
    let (said, good) = site.pull(&reference, &entry).await;
    assert!(!good && said.contains("401: it does not accept the credential"), "{said}");
    assert!(said.contains("not used: user name and password of"), "{said}");
}

#[tokio::test]
async fn a_challenge_on_the_second_line_is_answered() {
    for lines in [["Negotiate", BEARER], ["Negotiate", "Basic realm=\"test\""]] {
        let challenges = lines.map(str::to_owned).to_vec();
        let (site, reference) = Site::closed(Habits { challenges, ..bearer() }).await;
        let (said, good) = site.pull(&reference, &right()).await;
        assert!(good, "{lines:?}: {said}");
    }
    let (site, reference) = Site::closed(Habits { challenges: vec!["Negotiate".to_owned()], ..bearer() }).await;
    let (said, good) = site.pull(&reference, &right()).await;
    assert!(!good && said.contains("401: it wants Negotiate: Weir knows Basic and Bearer"), "{said}");
}

#[tokio::test]
async fn an_empty_token_beside_an_access_token_is_none() {
    for (token, is_right) in [(r#"{"token": "", "access_token": "issued"}"#, true), (r#"{"token": ""}"#, false)] {
        let (site, reference) = Site::closed(Habits { token: Some(token.to_owned()), ..bearer() }).await;
        let (said, good) = site.pull(&reference, &right()).await;
        assert_eq!(good, is_right, "{said}");
        assert!(good || said.contains("answers without a token"), "{said}");
    }
}

#[tokio::test]
async fn too_many_requests_are_no_refused_login() {
    let (site, reference) = Site::closed(bearer()).await;
    for after in ["30", "Wed, 21 Oct 2026 07:28:00 GMT"] {
        site.registry.misbehave(Misbehaviour::Busy(after.to_owned()));
        let (said, good) = site.pull(&reference, &right()).await;
        let expected = format!("429: it has had too many requests (Retry-After: {after}): slow down");
        assert!(!good && said.contains(&expected) && !said.contains(" 401:"), "{said}");
    }
    // The token service alone.
    let busy = FakeRegistry::start().await;
    busy.misbehave(Misbehaviour::Busy("7".to_owned()));
    site.registry.misbehave(Misbehaviour::None);
    site.registry.habits(Habits { challenges: vec![BEARER.replace("{host}", busy.host())], ..bearer() });
    let (said, good) = site.pull(&reference, &right()).await;
    assert!(
        !good
            && said.contains("429: ")
            && said.contains("(Retry-After: 7): its token service")
            && !said.contains(" 401:"),
        "{said}"
    );
}

#[tokio::test]
async fn entries_of_pull_secrets_match_as_kubelet_matches_them() {
    let (site, reference) = Site::closed(Habits::default()).await;
    let port = site.registry.host().split_once(':').unwrap().1;
    for (key, is_right) in [
        (format!("127.*.0.1:{port}"), true),
        (format!("https://1*.0.0.*:{port}/team"), true),
        (format!("*.0.0.1:{port}/other"), false),
        (format!("*.1:{port}"), false),
        ("*.0.0.1".to_owned(), false),
    ] {
        let (said, good) = site.pull_with(&reference, &json!({"auths": {&key: right()}})).await;
        assert_eq!(good, is_right, "{key}: {said}");
    }
    // The older kind of pull secret has no `auths`.
    let (said, good) = site.pull_with(&reference, &json!({site.registry.host(): right()})).await;
    assert!(good, "{said}");
    // What was not tried is named.
    let wrong = json!({"auth": STANDARD.encode("node:wrong")});
    let both = json!({"auths": {site.registry.host(): wrong, format!("*.0.0.1:{port}"): right()}});
    let (said, good) = site.pull_with(&reference, &both).await;
    assert!(!good && said.contains(&format!("not used: \"*.0.0.1:{port}\", which is for it too")), "{said}");
    let helped = json!({"auths": {}, "credHelpers": {site.registry.host(): "ecr-login"}});
    let (said, good) = site.pull_with(&reference, &helped).await;
    assert!(!good && said.contains("the credential helper \"ecr-login\": Weir runs none"), "{said}");
}

#[tokio::test]
async fn a_credential_goes_to_nobody_else() {
    let (site, reference) = Site::closed(Habits::default()).await;
    let other = FakeRegistry::start().await;
    other.login("node", "right");
    site.registry.misbehave(Misbehaviour::LeadsTo(other.host().to_owned()));
    let (said, good) = site.pull(&reference, &right()).await;
    assert!(
        !good && said.contains(&format!("it leads to http://{}, which gets no credential", other.host())),
        "{said}"
    );
    assert!(other.count("GET", "/v2/team") > 0);
    assert_eq!(other.credentials(), [""; 0]);
    // A token service does not lead elsewhere either.
    let service = FakeRegistry::start().await;
    service.misbehave(Misbehaviour::LeadsTo(other.host().to_owned()));
    site.registry.misbehave(Misbehaviour::None);
    site.registry.habits(Habits { challenges: vec![BEARER.replace("{host}", service.host())], ..bearer() });
    let (said, good) = site.pull(&reference, &right()).await;
    assert!(!good && said.contains("its token service"), "{said}");
    assert_eq!(other.credentials(), [""; 0]);
    assert_eq!(other.count("GET", "/token"), 0);
}

#[tokio::test]
async fn of_an_index_the_component_is_used_and_the_rest_is_named() {
    let (server, site) = (edge().await, Site::new().await);
    let pushed = digest(&site.push("discardcloudservice").await).to_string();
    let core = site.registry.put_manifest(NAME, "core", MANIFEST, "{}").to_string();
    let entry = |digest: &str, os: &str| json!({"mediaType": MANIFEST, "digest": digest, "size": 2, "platform": {"architecture": "wasm", "os": os}});
    let kind = "application/vnd.oci.image.index.v1+json";
    let entries = [entry(&core, "wasip1"), entry(&pushed, "wasip2")];
    let index = json!({"schemaVersion": 2, "mediaType": kind, "manifests": entries}).to_string();
    let index = site.registry.put_manifest(NAME, "index", kind, &index);
    let reference = format!("oci://{}@{index}", site.name());
    let (said, good) = site.weir(&["pull", &reference, "-o", "out.wasm"]).await;
    assert!(good && said.contains("wasip1") && said.contains(&core), "{said}");
    let weir = site.setup(server.url(), &reference).start_ready().await;
    let line = weir.logged("not used while a module was pulled").await.to_string();
    assert!(line.contains("wasip1") && line.contains(&core), "{line}");
}

#[tokio::test]
async fn a_mirror_may_have_a_path() {
    let site = Site::new().await;
    let path = built::module("discardcloudservice").display().to_string();
    let target = format!("{}/proxy/hub/{NAME}:1", site.registry.host());
    let (said, good) = site.weir(&["push", &path, &target]).await;
    assert!(good, "{said}");
    let pushed = digest(said.lines().find_map(|line| line.trim().strip_prefix("module: ")).unwrap());
    site.registry.login("node", "right");
    let here = site.registry.host();
    site.write(
        "registries.yaml",
        &format!(
            "registries:\n- {{host: registry.invalid, mirrors: ['{here}/proxy/hub']}}\n- {{host: '{here}', plainHTTP: true}}\n"
        ),
    );
    let auths =
        json!({"auths": {format!("{here}/proxy/hub"): right(), "registry.invalid": {"auth": STANDARD.encode("a:b")}}});
    let (said, good) = site.pull_with(&format!("registry.invalid/{NAME}@{pushed}"), &auths).await;
    assert!(good, "{said}");
    assert!(site.registry.count("GET", &format!("/v2/proxy/hub/{NAME}/manifests/")) > 0);
}
