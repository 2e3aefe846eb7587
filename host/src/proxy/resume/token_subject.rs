//! Who a bearer token speaks for, so that a client is the same one after its token was renewed (every hour or so);
//! otherwise each renewal would cost it a list.
//!
//! Nothing is verified here, and nothing is granted by it: records are written only after the API server has accepted
//! the token, and what a forged token could read of them is whether to list again.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderValue;
use serde::Deserialize;

/// Tokens longer than this are not looked into.
const LONGEST: usize = 16 << 10;

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    #[serde(rename = "kubernetes.io")]
    kubernetes: Option<Bound>,
}

/// What a service account's token is bound to; the rest of this claim changes with each token.
#[derive(Deserialize, Default)]
struct Bound {
    #[serde(default)]
    pod: Object,
    #[serde(default)]
    serviceaccount: Object,
}

#[derive(Deserialize, Default)]
struct Object {
    #[serde(default)]
    uid: String,
}

/// The subject of an Authorization header, if it is a JSON Web Token that names one.
pub(super) fn subject(value: &HeaderValue) -> Option<String> {
    let text = value.to_str().ok().filter(|text| text.len() <= LONGEST)?;
    let (scheme, token) = text.split_once(' ')?;
    let mut parts = token.trim().split('.');
    let (_, payload, _, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else { return None };
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let claims: Claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?;
    let bound = claims.kubernetes.unwrap_or_default();
    serde_json::to_string(&[&claims.iss, &claims.sub, &bound.pod.uid, &bound.serviceaccount.uid]).ok()
}

#[cfg(test)]
mod tests {
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
    fn a_renewed_token_speaks_for_the_same_client() {
        assert!(subject(&token(&claims("p", 1), "a")).is_some());
        assert_eq!(subject(&token(&claims("p", 1), "a")), subject(&token(&claims("p", 2), "b")));
        assert_ne!(subject(&token(&claims("p", 1), "a")), subject(&token(&claims("q", 1), "a")));
    }

    #[test]
    fn what_is_no_token_with_a_subject_has_none() {
        for other in ["Bearer abc", "Basic e30.e30.a", "Bearer e30.e30.a", "Bearer a.b", "Bearer", ""] {
            assert_eq!(subject(&other.parse().unwrap()), None, "{other}");
        }
    }
}
