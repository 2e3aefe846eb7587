//! The subject of a bearer token. It identifies a client across renewals of its token, about one per hour. Otherwise each
//! renewal would cost the client a list.
//!
//! Weir does not verify the token. It saves resume state, and permissions for the time without an API server, only after
//! the API server has accepted or issued the token.

use http::HeaderValue;
use serde::Deserialize;

use super::token_claims;

#[derive(Deserialize)]
struct TokenClaims {
    iss: String,
    sub: String,
    #[serde(rename = "kubernetes.io")]
    kubernetes: Option<KubernetesClaim>,
}

/// The objects that a service account's token is bound to. The rest of this claim changes with each token.
#[derive(Deserialize, Default)]
struct KubernetesClaim {
    #[serde(default)]
    pod: BoundObject,
    #[serde(default)]
    serviceaccount: BoundObject,
}

#[derive(Deserialize, Default)]
struct BoundObject {
    #[serde(default)]
    uid: String,
}

/// Returns the subject of an Authorization header, if it carries a JSON Web Token that names one.
pub(in crate::proxy) fn token_subject(value: &HeaderValue) -> Option<String> {
    let claims: TokenClaims = token_claims(value)?;
    let bound = claims.kubernetes.unwrap_or_default();
    serde_json::to_string(&[&claims.iss, &claims.sub, &bound.pod.uid, &bound.serviceaccount.uid]).ok()
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use serde_json::{Value, json};

    use super::*;

    fn token(claims: &Value, signature: &str) -> HeaderValue {
        format!("Bearer e30.{}.{signature}", URL_SAFE_NO_PAD.encode(claims.to_string())).parse().unwrap()
    }

    fn claims(pod: &str, expiry: u64) -> Value {
        json!({
            "iss": "https://kubernetes", "sub": "system:serviceaccount:kube-system:kube-proxy", "exp": expiry,
            "kubernetes.io": {"pod": {"uid": pod}, "serviceaccount": {"uid": "s"}, "warnafter": expiry}
        })
    }

    #[test]
    fn a_renewed_token_has_the_same_subject() {
        assert!(token_subject(&token(&claims("p", 1), "a")).is_some());
        assert_eq!(token_subject(&token(&claims("p", 1), "a")), token_subject(&token(&claims("p", 2), "b")));
        assert_ne!(token_subject(&token(&claims("p", 1), "a")), token_subject(&token(&claims("q", 1), "a")));
    }

    #[test]
    fn other_credentials_have_no_subject() {
        for other in ["Bearer abc", "Basic e30.e30.a", "Bearer e30.e30.a", "Bearer a.b", "Bearer", ""] {
            assert_eq!(token_subject(&other.parse().unwrap()), None, "{other}");
        }
    }
}
