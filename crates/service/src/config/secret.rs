//! References to secrets: a configuration file names the source of a secret, never the secret itself.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use hob_units::Secret;
use serde::{Deserialize, Serialize, Serializer};

/// The source of a secret: `env:NAME` or `file:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretRef {
    Env(String),
    File(PathBuf),
}

/// A URL that may contain a password. `Display` and `Debug` hide it.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct SecretUrl(String);

/// Why a secret cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("the environment variable {0}, which holds a secret, is not set")]
    NotSet(String),
    #[error("cannot read the secret file {path}: {source}")]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("the secret in {0} is empty")]
    Empty(SecretRef),
}

/// The text is not a reference. The error does not repeat it, because it may be the secret itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a reference to a secret; write env:NAME or file:PATH, not the secret itself")]
pub struct SecretRefError;

impl SecretRef {
    /// Reads the secret. Line breaks at the end are removed.
    pub fn read(&self) -> Result<Secret, SecretError> {
        let text = match self {
            Self::Env(name) => std::env::var(name).map_err(|_| SecretError::NotSet(name.clone()))?,
            Self::File(path) => std::fs::read_to_string(path)
                .map_err(|source| SecretError::Unreadable { path: path.clone(), source })?,
        };
        let text = text.trim_end_matches(['\r', '\n']);
        if text.is_empty() { Err(SecretError::Empty(self.clone())) } else { Ok(Secret::from(text)) }
    }
}

impl SecretUrl {
    /// The URL with its password. Call this only where the password is needed.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for SecretUrl {
    fn from(value: String) -> Self {
        Self(value)
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The credentials end at the last '@' before the path, because a password may itself contain '@'.
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("", &self.0));
        let authority = &rest[..rest.find('/').unwrap_or(rest.len())];
        match authority.rfind('@') {
            Some(at) if !scheme.is_empty() => write!(f, "{scheme}://…@{}", &rest[at + 1..]),
            _ => f.write_str(&self.0),
        }
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretUrl({self})")
    }
}

impl Serialize for SecretUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for SecretRef {
    type Err = SecretRefError;

    fn from_str(text: &str) -> Result<Self, SecretRefError> {
        match text.split_once(':') {
            Some(("env", name)) if !name.is_empty() => Ok(Self::Env(name.to_owned())),
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(path.into())),
            _ => Err(SecretRefError),
        }
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

as_text!(SecretRef);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_secret_is_refused_without_repeating_it() {
        let refused = "hunter2".parse::<SecretRef>().unwrap_err();
        assert!(!refused.to_string().contains("hunter2"));
    }

    #[test]
    fn url_is_shown_without_its_credentials() {
        for (address, shown) in [
            ("redis://:hunter2@10.0.0.1:6379/0", "redis://…@10.0.0.1:6379/0"),
            ("postgres://hob:p@ss@db/hob", "postgres://…@db/hob"),
            ("redis://10.0.0.1/a@b", "redis://10.0.0.1/a@b"),
            ("hob-data/hob.db", "hob-data/hob.db"),
        ] {
            assert_eq!(SecretUrl::from(address.to_owned()).to_string(), shown);
        }
    }

    #[test]
    fn trailing_newline_of_a_file_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "s3cret\n").unwrap();
        let secret = SecretRef::File(path).read().unwrap();
        assert_eq!(secret.reveal(), "s3cret");
        assert_eq!(format!("{secret:?}"), "Secret(…)");
    }

    #[test]
    fn empty_secret_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "\n").unwrap();
        assert!(matches!(SecretRef::File(path).read(), Err(SecretError::Empty(_))));
    }
}
