//! Secrets by name. What comes through the API names a secret that the operator has listed, and nothing else: a
//! reference of its own could point at any file or variable of the server. A secret is bound to systems and hosts:
//! otherwise everybody who may write a monitor could have any secret sent to a server of theirs.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use url::Url;

use super::hosts::{Destination, HostPattern};
use super::secret::{Secret, SecretRef};
use super::{BadConfig, Field, Live, Section};

/// What an operator calls a secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName(String);

/// Why a text is no name of a secret. It does not repeat the text, which may be the secret itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name of a secret has 1 to 64 letters, digits, '_' or '-', and is listed under [secrets] in hob.toml"
)]
pub struct BadSecretName;

/// The secrets that monitors, channels and pipelines may use, by name.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct SecretsConfig(BTreeMap<SecretName, SecretEntry>);

/// Where a secret is, and what it may be used for.
#[derive(Clone, Debug, Serialize)]
pub struct SecretEntry {
    pub from: SecretRef,
    /// The systems that may use it, by the names of their sections.
    #[serde(rename = "for")]
    pub systems: Vec<String>,
    pub hosts: Hosts,
}

/// The hosts that a secret may be sent to.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Hosts {
    Listed(Vec<HostPattern>),
    /// Every host. Cannot be configured: for a secret that somebody gives to one plan on the command line.
    Any,
}

impl Section for SecretsConfig {
    const NAME: &'static str = "secrets";
    const ABOUT: &'static str =
        " Secrets that monitors, channels and pipelines use by name. Each has a table that says \
where it is,
 which systems may use it and which hosts it may be sent to; every other use is refused:

   [secrets.slack]
   from  = \"env:SLACK_URL\"           # or file:/path
   for   = [\"uptime\"]                # uptime, pipeline
   hosts = [\"hooks.slack.com\"]       # example.com, *.example.com, example.com:443

 A host without a port means every port. Where the secret is itself a URL, the URL's host must be in `hosts`.
";
    const FIELDS: &'static [Field] = &[];
}

/// The listed secrets. Clones see the same changes.
#[derive(Clone, Debug)]
pub struct Secrets(Live<SecretsConfig>);

/// Why a secret cannot be used. Never holds its value, nor where it is: users of the API see this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretRefused {
    #[error("there is no secret {0} under [secrets] in hob.toml")]
    NotListed(SecretName),
    #[error(
        "the secret {name} is not for {system}; add \"{system}\" to `for` under [secrets.{name}] in hob.toml"
    )]
    NotForSystem { name: SecretName, system: &'static str },
    #[error(
        "the secret {name} may not be sent to {to}; add the host to `hosts` under [secrets.{name}] in hob.toml"
    )]
    NotForHost { name: SecretName, to: Destination },
    #[error("the secret {0} may not be sent to a URL without a host")]
    NoHost(SecretName),
    #[error("the secret {0} may not be part of a URL's host or port")]
    InHost(SecretName),
    #[error("the secret {0} is not a URL with a host")]
    NotAnAddress(SecretName),
    #[error("the host of the URL in the secret {0} is not in `hosts` under [secrets.{0}] in hob.toml")]
    OwnHost(SecretName),
    #[error("the secret {0} may not be sent with a Host header that is not a host")]
    BadHostHeader(SecretName),
    #[error("the secret {0} cannot be read; see the server log")]
    Unreadable(SecretName),
}

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

    /// Whether a system may use a secret, wherever it is sent.
    pub fn check_system(&self, name: &SecretName, system: &'static str) -> Result<(), SecretRefused> {
        self.entry(name, system).map(drop)
    }

    /// Whether a system may send a secret there. The secret is not read.
    pub fn check(
        &self,
        name: &SecretName,
        system: &'static str,
        to: &Destination,
    ) -> Result<(), SecretRefused> {
        let entry = self.entry(name, system)?;
        if entry.hosts.allow(to) {
            return Ok(());
        }
        Err(SecretRefused::NotForHost { name: name.clone(), to: to.clone() })
    }

    /// Whether a system may send a secret with a request to a URL, and where that goes.
    pub fn check_url(
        &self,
        name: &SecretName,
        system: &'static str,
        url: &Url,
    ) -> Result<Destination, SecretRefused> {
        let to = Destination::of_url(url).ok_or_else(|| SecretRefused::NoHost(name.clone()))?;
        self.check(name, system, &to)?;
        Ok(to)
    }

    /// Whether a request that goes `to` a server may carry a secret and this `Host` header. A server that many share, as
    /// those of a CDN are, passes the request on to the host that the header names.
    pub fn check_host_header(
        &self,
        name: &SecretName,
        system: &'static str,
        to: &Destination,
        header: &[u8],
    ) -> Result<(), SecretRefused> {
        let host = std::str::from_utf8(header).ok().and_then(|header| to.with_host_header(header));
        self.check(name, system, &host.ok_or_else(|| SecretRefused::BadHostHeader(name.clone()))?)
    }

    /// Reads a secret that a system is about to send there. It is read each time, so that a file that was replaced and
    /// a configuration that was reloaded take effect.
    pub fn read(
        &self,
        name: &SecretName,
        system: &'static str,
        to: &Destination,
    ) -> Result<Secret, SecretRefused> {
        self.check(name, system, to)?;
        self.entry(name, system)?.read(name)
    }

    /// Reads a secret that is itself an address, whose host `destination` finds.
    pub fn read_address(
        &self,
        name: &SecretName,
        system: &'static str,
        destination: impl FnOnce(&Secret) -> Option<Destination>,
    ) -> Result<Secret, SecretRefused> {
        let entry = self.entry(name, system)?;
        let secret = entry.read(name)?;
        let to = destination(&secret).ok_or_else(|| SecretRefused::NotAnAddress(name.clone()))?;
        if entry.hosts.allow(&to) { Ok(secret) } else { Err(SecretRefused::OwnHost(name.clone())) }
    }

    fn entry(&self, name: &SecretName, system: &'static str) -> Result<SecretEntry, SecretRefused> {
        let config = self.0.now();
        let entry = config.0.get(name).ok_or_else(|| SecretRefused::NotListed(name.clone()))?;
        if entry.systems.iter().any(|listed| listed == system) {
            return Ok(entry.clone());
        }
        Err(SecretRefused::NotForSystem { name: name.clone(), system })
    }
}

impl SecretEntry {
    fn read(&self, name: &SecretName) -> Result<Secret, SecretRefused> {
        self.from.read().map_err(|error| {
            tracing::warn!(secret = %name, %error, "secret cannot be read");
            SecretRefused::Unreadable(name.clone())
        })
    }
}

impl Hosts {
    fn allow(&self, to: &Destination) -> bool {
        match self {
            Self::Listed(patterns) => patterns.iter().any(|pattern| pattern.matches(to)),
            Self::Any => true,
        }
    }
}

impl SecretsConfig {
    /// Refuses a secret for a system that does not use any: a mistyped name would only be noticed when the secret is
    /// needed.
    pub fn check_systems(&self, known: &[&str]) -> Result<(), BadConfig> {
        for (name, entry) in &self.0 {
            if let Some(unknown) = entry.systems.iter().find(|system| !known.contains(&system.as_str())) {
                let message = format!("{unknown:?} does not use secrets; one of {}", known.join(", "));
                return Err(BadConfig::InVariable { name: format!("secrets.{name}.for"), message });
            }
        }
        Ok(())
    }
}

impl FromIterator<(SecretName, SecretEntry)> for SecretsConfig {
    fn from_iter<I: IntoIterator<Item = (SecretName, SecretEntry)>>(list: I) -> Self {
        Self(list.into_iter().collect())
    }
}

impl<'de> Deserialize<'de> for SecretsConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Table;

        impl<'de> Visitor<'de> for Table {
            type Value = SecretsConfig;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table of secrets")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SecretsConfig, A::Error> {
                let mut secrets = BTreeMap::new();
                while let Some(name) = map.next_key::<SecretName>()? {
                    let entry = map.next_value_seed(EntryOf(&name))?;
                    secrets.insert(name, entry);
                }
                Ok(SecretsConfig(secrets))
            }
        }

        deserializer.deserialize_map(Table)
    }
}

/// Reads the entry of the secret of this name. What is wrong with it is said together with what to write instead.
struct EntryOf<'a>(&'a SecretName);

impl EntryOf<'_> {
    fn write_instead(&self, why: &str, from: &str) -> String {
        let name = self.0;
        format!(
            "{why}; write {name} = {{ from = \"{from}\", for = [\"uptime\"], hosts = [\"example.com\"] }}"
        )
    }
}

impl<'de> DeserializeSeed<'de> for EntryOf<'_> {
    type Value = SecretEntry;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<SecretEntry, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for EntryOf<'_> {
    type Value = SecretEntry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.write_instead("a secret is a table", "env:NAME"))
    }

    /// The short form of earlier versions, which let everybody use the secret for everything.
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<SecretEntry, E> {
        // What is not a reference is not repeated: it may be the secret itself.
        let from = text.parse::<SecretRef>().map_or("env:NAME".to_owned(), |from| from.to_string());
        Err(E::custom(self.write_instead("a secret must say what it may be used for", &from)))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<SecretEntry, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Raw {
            from: SecretRef,
            #[serde(default, rename = "for")]
            systems: Vec<String>,
            #[serde(default)]
            hosts: Vec<HostPattern>,
        }

        let raw = Raw::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
        let from = raw.from.to_string();
        let lacks = |field: &str| {
            A::Error::custom(self.write_instead(&format!("`{field}` is missing or empty"), &from))
        };
        if raw.systems.is_empty() {
            return Err(lacks("for"));
        }
        if raw.hosts.is_empty() {
            return Err(lacks("hosts"));
        }
        Ok(SecretEntry { from: raw.from, systems: raw.systems, hosts: Hosts::Listed(raw.hosts) })
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

    fn to(url: &str) -> Destination {
        Destination::of_url(&url.parse().unwrap()).unwrap()
    }

    #[test]
    fn a_secret_is_read_for_its_systems_and_hosts_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "s3cret").unwrap();
        let text = format!(
            "[github]\nfrom = 'file:{}'\nfor = ['uptime']\nhosts = ['api.github.com:443']",
            path.display()
        );
        let secrets = Secrets::new(Live::fixed(toml::from_str(&text).unwrap()));
        let name: SecretName = "github".parse().unwrap();
        let read = |name: &SecretName, system, url| secrets.read(name, system, &to(url));
        assert_eq!(read(&name, "uptime", "https://api.github.com/x").unwrap().reveal(), "s3cret");
        for (system, url, says) in [
            ("pipeline", "https://api.github.com/x", "is not for pipeline; add \"pipeline\" to `for`"),
            ("uptime", "https://evil.example/x", "may not be sent to evil.example:443; add the host"),
            ("uptime", "http://api.github.com/x", "may not be sent to api.github.com:80"),
        ] {
            let refused = read(&name, system, url).unwrap_err().to_string();
            assert!(refused.contains(says) && refused.contains("github"), "{refused}");
        }
        let other = read(&"other".parse().unwrap(), "uptime", "https://api.github.com/x");
        assert!(matches!(other, Err(SecretRefused::NotListed(_))), "{other:?}");

        std::fs::remove_file(&path).unwrap();
        let unreadable = read(&name, "uptime", "https://api.github.com/x").unwrap_err().to_string();
        assert!(!unreadable.contains("token"), "where it is stays with the operator: {unreadable}");
    }

    #[test]
    fn an_address_that_is_a_secret_leads_to_its_hosts_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("url");
        let text =
            format!("[hook]\nfrom = 'file:{}'\nfor = ['uptime']\nhosts = ['*.example.com']", path.display());
        let secrets = Secrets::new(Live::fixed(toml::from_str(&text).unwrap()));
        let read = |url: &str| {
            std::fs::write(&path, url).unwrap();
            let destination = |secret: &Secret| Destination::of_url(&url::Url::parse(secret.reveal()).ok()?);
            secrets.read_address(&"hook".parse().unwrap(), "uptime", destination)
        };
        assert_eq!(read("https://a.example.com/T0").unwrap().reveal(), "https://a.example.com/T0");
        let refused = read("https://hidden.example/T0").unwrap_err();
        assert_eq!(refused, SecretRefused::OwnHost("hook".parse().unwrap()));
        assert!(!refused.to_string().contains("hidden.example"), "{refused}");
        assert!(matches!(read("T0"), Err(SecretRefused::NotAnAddress(_))));
    }

    #[test]
    fn an_entry_without_its_uses_is_refused_with_what_to_write() {
        for (text, says) in [
            (
                "slack = 'env:SLACK_URL'",
                "a secret must say what it may be used for; write slack = { from = \"env:SLACK_URL\", for = \
                 [\"uptime\"], hosts = [\"example.com\"] }",
            ),
            (
                "slack = { from = 'env:A', hosts = ['a.example'] }",
                "`for` is missing or empty; write slack = {",
            ),
            ("slack = { from = 'env:A', for = ['uptime'] }", "`hosts` is missing or empty; write slack = {"),
            ("slack = { from = 'env:A', for = ['uptime'], hosts = [] }", "`hosts` is missing or empty"),
            ("slack = { for = ['uptime'], hosts = ['a.example'] }", "missing field `from`"),
            ("slack = { from = 'env:A', for = ['uptime'], hosts = ['*'] }", "\"*\" is not a host"),
            ("slack = { from = 'env:A', for = ['uptime'], host = ['a'] }", "unknown field `host`"),
            ("slack = 7", "a secret is a table; write slack = {"),
        ] {
            let refused = toml::from_str::<SecretsConfig>(text).unwrap_err().to_string();
            assert!(refused.contains(says), "{text}: {refused}");
        }
        let written_out = toml::from_str::<SecretsConfig>("slack = 'hunter2'").unwrap_err();
        assert!(!written_out.message().contains("hunter2"), "{written_out}");
    }

    #[test]
    fn a_secret_for_an_unknown_system_is_refused() {
        let config: SecretsConfig =
            toml::from_str("a = { from = 'env:A', for = ['uptim'], hosts = ['a.example'] }").unwrap();
        let refused = config.check_systems(&["uptime", "pipeline"]).unwrap_err().to_string();
        assert_eq!(refused, "secrets.a.for: \"uptim\" does not use secrets; one of uptime, pipeline");
        assert!(config.check_systems(&["uptim"]).is_ok());
    }

    #[test]
    fn a_reference_is_no_name() {
        for text in ["env:HOME", "file:/etc/passwd", "", "a b"] {
            assert_eq!(text.parse::<SecretName>(), Err(BadSecretName), "{text:?}");
        }
    }
}
