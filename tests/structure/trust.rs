//! Each decision of trust is made in one place.

use crate::source::{Place, assert_places};

/// What only these files of `host/` may name, tests apart.
const PLACES: &[Place] = &[
    // A client's credential is parsed in one way, and read by one module. The others strip the header, or send the daemon's own.
    // The client of registries sends what `--registry-auth` has, and commands send the user's own token to the admin port.
    (
        "AUTHORIZATION",
        &[
            "kube/src/credential.rs",
            "registry/src/client.rs",
            "src/cli/admin_port.rs",
            "access/src/caller.rs",
            "wire/src/headers.rs",
        ],
    ),
    ("\"authorization\"", &[]),
    // Who is impersonated is parsed in one place, too. The others write the header for the user of a certificate, and read that.
    (
        "\"impersonate-user\"",
        &[
            "kube/src/impersonation.rs",
            "access/src/caller.rs",
            "access/src/lib.rs",
            "store/src/store_reader.rs",
            "upstream/src/daemon_client.rs",
        ],
    ),
    ("Credential::of", &["access/src/caller.rs"]),
    ("Caller::of(", &["access/src/lib.rs", "src/pool/answers.rs"]),
    // Whose credential Weir itself has read with.
    ("Caller::of_delegated(", &["access/src/outcome.rs"]),
    // The claims of a token shorten what the API server has accepted, and name the line of one that it has just issued.
    ("fn issued_claims", &["access/src/caller.rs"]),
    ("issued_claims", &["access/src/caller.rs", "access/src/acceptance.rs"]),
    // Only a reviewed request opens a view.
    ("Permit::reviewed", &["access/src/permits.rs"]),
    ("Permit::own", &["access/src/permits.rs"]),
];

#[test]
fn each_decision_of_trust_is_in_one_place() {
    assert_places(PLACES, |_| true);
}
