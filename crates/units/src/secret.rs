//! A secret that cannot be printed by accident.

use std::fmt;

use subtle::ConstantTimeEq;

/// A password, token or key. `Debug` hides it, it has no `Display`, and comparison takes constant time for texts of
/// the same length.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The value itself. Call this only where the value is needed.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_bytes().ct_eq(other.0.as_bytes()).into()
    }
}

impl Eq for Secret {}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_not_shown() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "Secret(…) Some(Secret(…))");
        assert_eq!(secret.reveal(), "hunter2");
    }

    #[test]
    fn secrets_are_compared_by_value() {
        assert_eq!(Secret::from("a"), Secret::from("a".to_owned()));
        for other in ["b", "", "aa"] {
            assert_ne!(Secret::from("a"), Secret::from(other));
        }
    }
}
