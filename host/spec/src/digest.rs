//! The digest of a module. The configuration pins modules by it. The code cache, the log and `/filters` identify
//! modules by it.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

/// A SHA-256 digest, written `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

/// The text is not a valid digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a digest: write `sha256:` and 64 hexadecimal digits")]
pub struct DigestError(String);

impl Digest {
    /// Computes the digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Returns the 64 hexadecimal digits without the prefix, for file names.
    #[must_use]
    pub fn hex(&self) -> String {
        self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]).filter_map(|n| char::from_digit(n.into(), 16)).collect()
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let refuse = || DigestError(text.chars().take(100).collect());
        let hex = text.strip_prefix("sha256:").ok_or_else(refuse)?;
        let mut bytes = [0; 32];
        if hex.len() != 64 {
            return Err(refuse());
        }
        for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
            for digit in pair {
                let value = char::from(*digit).to_digit(16).and_then(|v| u8::try_from(v).ok()).ok_or_else(refuse)?;
                *byte = *byte << 4 | value;
            }
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_parses_and_prints_the_same_text() {
        let digest = Digest::of(b"");
        let text = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.parse(), Ok(digest));
        assert_eq!(text.replace('e', "E").parse(), Ok(digest), "upper-case digits are the same digest");
    }

    #[test]
    fn invalid_digests_are_refused() {
        for bad in [
            "",
            "sha256:",
            "sha512:00",
            "e3b0",
            &format!("sha256:{}", "é".repeat(32)),
            &format!("sha256:{}", "g".repeat(64)),
        ] {
            assert!(bad.parse::<Digest>().unwrap_err().to_string().contains("64 hexadecimal digits"), "{bad}");
        }
    }
}
