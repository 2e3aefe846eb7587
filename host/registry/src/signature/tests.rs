//! Keys, policies and the texts of signatures. `tests/behaviour` covers artifacts, and `tests/real` cosign itself.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, SigningKey as _};
use weir_spec::Digest;

use super::key::PublicKey;
use super::*;
use crate::artifact::artifact;
use crate::layout::Layout;

fn pem(key: &KeyPair) -> String {
    key.public_key_pem()
}

fn yaml(prefix: &str, pem: &str) -> String {
    let pem: String = pem.lines().map(|line| format!("    {line}\n")).collect();
    format!("- prefix: {prefix}\n  require:\n  - |\n{pem}")
}

#[test]
fn keys_of_several_kinds_verify_what_they_signed() {
    for kind in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519] {
        let key = KeyPair::generate_for(kind).unwrap();
        let signature = key.sign(b"message").unwrap();
        let public = PublicKey::from_pem(&pem(&key)).unwrap();
        assert!(public.verifies(b"message", &signature));
        assert!(!public.verifies(b"messagE", &signature));
        let other = PublicKey::from_pem(&pem(&KeyPair::generate_for(kind).unwrap())).unwrap();
        assert!(!other.verifies(b"message", &signature));
        for cut in 0..signature.len() {
            assert!(!public.verifies(b"message", &signature[..cut]));
        }
    }
}

#[test]
fn an_invalid_key_is_reported() {
    let private = KeyPair::generate().unwrap().serialize_pem();
    for text in ["", "key", &private, "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"] {
        assert_eq!(PublicKey::from_pem(text).unwrap_err(), KeyError::Pem, "{text}");
    }
    // secp256k1, as `openssl ecparam -name secp256k1` makes it.
    let k256 = "-----BEGIN PUBLIC KEY-----\n\
        MFYwEAYHKoZIzj0CAQYFK4EEAAoDQgAEGGgXfMnva0sI4uoE0YNteraQ6qdjyyWC\n\
        cSKKpgWzE5sW96aSVxGm5WaTSCarUx3+XG1RjSBjU8J62oR0AJUuIw==\n\
        -----END PUBLIC KEY-----\n\
        ";
    let error = PublicKey::from_pem(k256).unwrap_err().to_string();
    assert!(error.contains("1.2.840.10045.2.1, curve 1.3.132.0.10"), "{error}");
}

#[test]
fn the_longest_prefix_decides_and_what_none_names_is_refused() {
    let key = KeyPair::generate().unwrap();
    let text = format!(
        "policies:\n{}- {{prefix: 'oci://a.example', allow: true}}\n- {{prefix: 'file://', allow: true}}\n",
        yaml("oci://a.example/team", &pem(&key))
    );
    let policy = SignaturePolicy::parse(&text).unwrap();
    let (digest, layout) = artifact(&Bytes::from_static(b"module"));
    let check = |name: &str| policy.check_artifact(&format!("oci://{name}@{digest}").parse().unwrap(), &layout);
    assert_eq!(check("a.example/services"), Ok(()));
    assert_eq!(check("a.example/teams"), Ok(()));
    assert!(matches!(check("a.example/team"), Err(SignatureError::Unsigned(_))));
    assert!(matches!(check("a.example/team/services"), Err(SignatureError::Unsigned(_))));
    assert!(matches!(check("a.example.evil/services"), Err(SignatureError::NoRule(_))));
    assert_eq!(policy.check_bytes("file://a.wasm", b"", None), Ok(()));
    assert!(matches!(policy.check_bytes("configmap://a", b"", None), Err(SignatureError::NoRule(_))));
}

#[test]
fn mistakes_in_a_policy_are_named() {
    let key = pem(&KeyPair::generate().unwrap());
    let one = yaml("oci://a.example", &key);
    for (text, part) in [
        ("policies: [{prefix: a.example, allow: true}]".to_owned(), "a prefix begins with oci://"),
        ("policies: [{prefix: 'oci://a', allow: false}]".to_owned(), "give either `require`"),
        ("policies: [{prefix: 'oci://a', require: []}]".to_owned(), "names no key"),
        ("policies: [{prefix: 'oci://a'}]".to_owned(), "give either `require`"),
        ("policies: [{prefix: 'oci://a', require: [key]}]".to_owned(), "require[0]: it is not a public key"),
        ("policies: [{prefix: 'oci://a', deny: true}]".to_owned(), "deny"),
        ("rules: []".to_owned(), "rules"),
        (format!("policies:\n{one}{}", one.replace("a.example", "a.example/")), "given twice"),
        (format!("policies:\n{one}  allow: true\n"), "give either `require`"),
    ] {
        let error = SignaturePolicy::parse(&text).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn a_payload_counts_only_for_the_artifact_that_it_names() {
    let key = KeyPair::generate().unwrap();
    let policy = SignaturePolicy::parse(&format!("policies:\n{}", yaml("oci://a.example", &pem(&key)))).unwrap();
    let (digest, module) = artifact(&Bytes::from_static(b"module"));
    let signed = |kind: &str, names: Digest, signs: &str| {
        let payload = format!(
            r#"{{"critical":{{"type":"{kind}","image":{{"docker-manifest-digest":"{names}"}},"identity":{{}}}}}}"#
        );
        let signature = STANDARD.encode(key.sign(if signs.is_empty() { &payload } else { signs }.as_bytes()).unwrap());
        let mut layout: Layout = module.clone();
        let blob = layout.add(Bytes::from(payload));
        let manifest = format!(
            r#"{{"schemaVersion":2,"config":{{"mediaType":"","digest":"{blob}","size":1}},"layers":[{{"mediaType":"","digest":"{blob}",
            "size":1,"annotations":{{"dev.cosignproject.cosign/signature":"{signature}"}}}}]}}"#
        );
        layout.add_manifest("", Bytes::from(manifest), None);
        policy.check_artifact(&format!("oci://a.example/b@{digest}").parse().unwrap(), &layout)
    };
    const KIND: &str = "cosign container image signature";
    assert_eq!(signed(KIND, digest, ""), Ok(()));
    for (kind, names, signs) in
        [(KIND, Digest::of(b"other"), ""), ("atomic container signature", digest, ""), (KIND, digest, "x")]
    {
        assert!(matches!(signed(kind, names, signs), Err(SignatureError::Invalid(_, 1))), "{kind} {names} {signs}");
    }
}
