//! Secrets by name. What comes through the API names a secret that the operator has listed, and nothing else: a
//! reference of its own could point at any file or variable of the server.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::secret::{NoSecret, Secret, SecretRef};
use super::{Field, Live, Section};

/// What an operator calls a secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName(String);

/// Why a text is no name of a secret. It does not repeat the text, which may be the secret itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name of a secret has 1 to 64 letters, digits, '_' or '-', and is listed under [secrets] in hob.toml"
)]
pub struct BadSecretName;

/// Secrets that monitors, channels, pipelines and plans may use, by name: `name = "env:NAME"` or `"file:PATH"`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretsConfig(BTreeMap<SecretName, SecretRef>);

impl Section for SecretsConfig {
    const NAME: &'static str = "secrets";
    const ABOUT: &'static str = " Secrets that monitors, channels, pipelines and plans may use by name.
 A line for each, with a name of your choice: `env:NAME` or `file:PATH`.
";
    const FIELDS: &'static [Field] = &[];
}

/// The listed secrets. Clones see the same changes.
#[derive(Clone, Debug)]
pub struct Secrets(Live<SecretsConfig>);

impl Secrets {
    #[must_use]
    pub fn new(config: Live<SecretsConfig>) -> Self {
        Self(config)
    }

    /// None at all.
    #[must_use]
    pub fn none() -> Self {
        Self(Live::fixed(SecretsConfig::default()))
    }

    /// Reads a secret, each time anew, so that a file that was replaced is heeded.
    pub fn read(&self, name: &SecretName) -> Result<Secret, NoSecret> {
        match self.0.now().0.get(name) {
            Some(reference) => reference.read(),
            None => Err(NoSecret::NotListed(name.clone())),
        }
    }

    #[must_use]
    pub fn lists(&self, name: &SecretName) -> bool {
        self.0.now().0.contains_key(name)
    }
}

impl FromIterator<(SecretName, SecretRef)> for SecretsConfig {
    fn from_iter<I: IntoIterator<Item = (SecretName, SecretRef)>>(list: I) -> Self {
        Self(list.into_iter().collect())
    }
}

impl SecretName {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SecretName {
    type Err = BadSecretName;

    fn from_str(text: &str) -> Result<Self, BadSecretName> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        let fits = (1..=64).contains(&text.len()) && text.bytes().all(allowed);
        if fits { Ok(Self(text.to_owned())) } else { Err(BadSecretName) }
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

as_text!(SecretName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_listed_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "s3cret").unwrap();
        let name: SecretName = "github".parse().unwrap();
        let config = SecretsConfig::from_iter([(name.clone(), SecretRef::File(path))]);
        let secrets = Secrets::new(Live::fixed(config));
        assert_eq!(secrets.read(&name).unwrap().reveal(), "s3cret");
        assert!(matches!(secrets.read(&"other".parse().unwrap()), Err(NoSecret::NotListed(_))));
    }

    #[test]
    fn a_reference_is_no_name() {
        for text in ["env:HOME", "file:/etc/passwd", "", "a b"] {
            assert_eq!(text.parse::<SecretName>(), Err(BadSecretName), "{text:?}");
        }
    }
}
