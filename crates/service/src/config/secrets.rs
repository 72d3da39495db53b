//! Named secrets. Users of the API can use only secrets that the operator has listed, by name. They cannot pass a
//! [`SecretRef`], because it could point at any file or variable of the server. A secret is bound to services and
//! hosts. Otherwise a user who may create a monitor could make Hob send any secret to the user's own server.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use hob_units::Secret;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use url::Url;

use super::hosts::{Destination, HostPattern};
use super::secret::SecretRef;
use super::{Field, Live, Mistakes, Section};

/// The name of a secret under `[secrets]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName(String);

/// The text is not the name of a secret. The error does not repeat it, because it may be the secret itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid secret name; use 1 to 64 letters, digits, '_' or '-'")]
pub struct SecretNameError;

/// The secrets that monitors, alert channels, chat webhooks and pipelines may use, by name.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct SecretsConfig(BTreeMap<SecretName, SecretEntry>);

/// The source of a secret, and its permitted uses.
#[derive(Clone, Debug, Serialize)]
pub struct SecretEntry {
    pub from: SecretRef,
    /// The services that may use it, by the names of their sections.
    #[serde(rename = "for")]
    pub services: Vec<String>,
    pub hosts: Hosts,
}

/// The hosts that a secret may be sent to.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Hosts {
    Listed(Vec<HostPattern>),
    /// Every host, for secrets that are given on the command line. Not available in `hob.toml`.
    Any,
}

impl Section for SecretsConfig {
    const NAME: &'static str = "secrets";
    const ABOUT: &'static str =
        " Secrets that monitors, alert channels, chat webhooks and pipelines use by name. Each has a table with \
the source of the secret,
 the services that may use it and the hosts it may be sent to. Every other use is refused:

   [secrets.slack]
   from  = \"env:SLACK_URL\"           # or file:/path
   for   = [\"uptime\"]                # uptime, chat, pipeline
   hosts = [\"hooks.slack.com\"]       # example.com, *.example.com, example.com:443

 A host without a port allows every port. If the secret is itself a URL, its host must be listed in `hosts`.
";
    const FIELDS: &'static [Field] = &[];
}

/// The secrets of the configuration. Clones see the same changes.
#[derive(Clone, Debug)]
pub struct Secrets(Live<SecretsConfig>);

/// Why a secret cannot be used. Users of the API see this error, so it contains neither the value nor the source of the
/// secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretDenied {
    #[error("there is no secret {0} under [secrets] in hob.toml; add it there")]
    NotListed(SecretName),
    #[error(
        "the service {service} may not use the secret {name}; add \"{service}\" to `for` under [secrets.{name}] in hob.toml"
    )]
    NotForService { name: SecretName, service: &'static str },
    #[error(
        "the secret {name} may not be sent to {to}; add the host to `hosts` under [secrets.{name}] in hob.toml"
    )]
    NotForHost { name: SecretName, to: Destination },
    #[error("the secret {0} cannot be sent to a URL without a host")]
    NoHost(SecretName),
    #[error("the secret {0} may not be part of a URL's host or port")]
    InHost(SecretName),
    #[error("the secret {0} is not a URL with a host")]
    NotAnAddress(SecretName),
    #[error("the host of the URL in the secret {0} is not in `hosts` under [secrets.{0}] in hob.toml")]
    OwnHost(SecretName),
    #[error("the secret {0} may not be sent with an invalid Host header")]
    BadHostHeader(SecretName),
    #[error("the secret {0} cannot be read; see the server log for details")]
    Unreadable(SecretName),
}

impl Secrets {
    #[must_use]
    pub fn new(config: Live<SecretsConfig>) -> Self {
        Self(config)
    }

    /// No secrets.
    #[must_use]
    pub fn none() -> Self {
        Self(Live::fixed(SecretsConfig::default()))
    }

    /// Checks that a service may use a secret. Does not check the destination.
    pub fn check_service(&self, name: &SecretName, service: &'static str) -> Result<(), SecretDenied> {
        self.entry(name, service).map(drop)
    }

    /// Checks that a service may send a secret to `to`. Does not read the secret.
    pub fn check(
        &self,
        name: &SecretName,
        service: &'static str,
        to: &Destination,
    ) -> Result<(), SecretDenied> {
        let entry = self.entry(name, service)?;
        if entry.hosts.allow(to) {
            return Ok(());
        }
        Err(SecretDenied::NotForHost { name: name.clone(), to: to.clone() })
    }

    /// Checks that a service may send a secret to a URL, and returns the destination.
    pub fn check_url(
        &self,
        name: &SecretName,
        service: &'static str,
        url: &Url,
    ) -> Result<Destination, SecretDenied> {
        let to = Destination::of_url(url).ok_or_else(|| SecretDenied::NoHost(name.clone()))?;
        self.check(name, service, &to)?;
        Ok(to)
    }

    /// Checks that a request to `to` may contain a secret and this `Host` header. A shared server, such as one of a CDN,
    /// passes the request on to the host that the header names.
    pub fn check_host_header(
        &self,
        name: &SecretName,
        service: &'static str,
        to: &Destination,
        header: &[u8],
    ) -> Result<(), SecretDenied> {
        let host = std::str::from_utf8(header).ok().and_then(|header| to.with_host_header(header));
        self.check(name, service, &host.ok_or_else(|| SecretDenied::BadHostHeader(name.clone()))?)
    }

    /// Checks that a service may use a secret and that it can be read.
    pub fn check_readable(&self, name: &SecretName, service: &'static str) -> Result<(), SecretDenied> {
        self.entry(name, service)?.read(name).map(drop)
    }

    /// Reads a secret that a service sends to `to`. It is read each time, so that a replaced file or a reloaded
    /// configuration takes effect.
    pub fn read(
        &self,
        name: &SecretName,
        service: &'static str,
        to: &Destination,
    ) -> Result<Secret, SecretDenied> {
        self.check(name, service, to)?;
        self.entry(name, service)?.read(name)
    }

    /// Reads a secret that is itself a URL or address. `destination` extracts its host.
    pub fn read_address(
        &self,
        name: &SecretName,
        service: &'static str,
        destination: impl FnOnce(&Secret) -> Option<Destination>,
    ) -> Result<Secret, SecretDenied> {
        let entry = self.entry(name, service)?;
        let secret = entry.read(name)?;
        let to = destination(&secret).ok_or_else(|| SecretDenied::NotAnAddress(name.clone()))?;
        if entry.hosts.allow(&to) { Ok(secret) } else { Err(SecretDenied::OwnHost(name.clone())) }
    }

    fn entry(&self, name: &SecretName, service: &'static str) -> Result<SecretEntry, SecretDenied> {
        let config = self.0.current();
        let entry = config.0.get(name).ok_or_else(|| SecretDenied::NotListed(name.clone()))?;
        if entry.services.iter().any(|listed| listed == service) {
            return Ok(entry.clone());
        }
        Err(SecretDenied::NotForService { name: name.clone(), service })
    }
}

impl SecretEntry {
    fn read(&self, name: &SecretName) -> Result<Secret, SecretDenied> {
        self.from.read().map_err(|error| {
            tracing::warn!(secret = %name, %error, "failed to read a secret");
            SecretDenied::Unreadable(name.clone())
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
    /// Reports unknown services in `for`. Without this check, a typo would go unnoticed until the secret is needed.
    #[must_use]
    pub fn unknown_services(&self, known: &[&str]) -> Mistakes {
        let mut mistakes = Mistakes::default();
        for (name, entry) in &self.0 {
            mistakes.check_each(&format!("{name}.for"), &entry.services, |service| {
                let unknown = || {
                    format!(
                        "unknown service {service:?}; services that can use secrets: {}",
                        known.join(", ")
                    )
                };
                if known.contains(&service.as_str()) { Ok(()) } else { Err(unknown()) }
            });
        }
        mistakes
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

/// Reads the entry of one secret. An error says what to write instead.
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
        f.write_str(&self.write_instead("expected a table", "env:NAME"))
    }

    /// Refuses the short form of earlier versions, which did not restrict the use of a secret.
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<SecretEntry, E> {
        // The error repeats the text only if it is a reference: otherwise it may be the secret itself.
        let from = text.parse::<SecretRef>().map_or("env:NAME".to_owned(), |from| from.to_string());
        Err(E::custom(self.write_instead("the services and hosts of this secret are missing", &from)))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<SecretEntry, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Raw {
            from: SecretRef,
            #[serde(default, rename = "for")]
            services: Vec<String>,
            #[serde(default)]
            hosts: Vec<HostPattern>,
        }

        let raw = Raw::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
        let from = raw.from.to_string();
        let lacks = |field: &str| {
            A::Error::custom(self.write_instead(&format!("`{field}` is missing or empty"), &from))
        };
        if raw.services.is_empty() {
            return Err(lacks("for"));
        }
        if raw.hosts.is_empty() {
            return Err(lacks("hosts"));
        }
        Ok(SecretEntry { from: raw.from, services: raw.services, hosts: Hosts::Listed(raw.hosts) })
    }
}

impl SecretName {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SecretName {
    type Err = SecretNameError;

    fn from_str(text: &str) -> Result<Self, SecretNameError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        let fits = (1..=64).contains(&text.len()) && text.bytes().all(allowed);
        if fits { Ok(Self(text.to_owned())) } else { Err(SecretNameError) }
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
    use super::super::Mistake;
    use super::*;

    fn to(url: &str) -> Destination {
        Destination::of_url(&url.parse().unwrap()).unwrap()
    }

    #[test]
    fn secret_is_read_for_its_services_and_hosts_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "s3cret").unwrap();
        let text = format!(
            "[github]\nfrom = 'file:{}'\nfor = ['uptime']\nhosts = ['api.github.com:443']",
            path.display()
        );
        let secrets = Secrets::new(Live::fixed(toml::from_str(&text).unwrap()));
        let name: SecretName = "github".parse().unwrap();
        let read = |name: &SecretName, service, url| secrets.read(name, service, &to(url));
        assert_eq!(read(&name, "uptime", "https://api.github.com/x").unwrap().reveal(), "s3cret");
        for (service, url, says) in [
            (
                "pipeline",
                "https://api.github.com/x",
                "pipeline may not use the secret github; add \"pipeline\" to `for`",
            ),
            ("uptime", "https://evil.example/x", "may not be sent to evil.example:443; add the host"),
            ("uptime", "http://api.github.com/x", "may not be sent to api.github.com:80"),
        ] {
            let refused = read(&name, service, url).unwrap_err().to_string();
            assert!(refused.contains(says) && refused.contains("github"), "{refused}");
        }
        let other = read(&"other".parse().unwrap(), "uptime", "https://api.github.com/x");
        assert!(matches!(other, Err(SecretDenied::NotListed(_))), "{other:?}");

        std::fs::remove_file(&path).unwrap();
        let unreadable = read(&name, "uptime", "https://api.github.com/x").unwrap_err().to_string();
        assert!(!unreadable.contains("token"), "the error shows the place of the secret: {unreadable}");
    }

    #[test]
    fn secret_url_is_read_for_its_hosts_only() {
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
        assert_eq!(refused, SecretDenied::OwnHost("hook".parse().unwrap()));
        assert!(!refused.to_string().contains("hidden.example"), "{refused}");
        assert!(matches!(read("T0"), Err(SecretDenied::NotAnAddress(_))));
    }

    #[test]
    fn error_of_an_incomplete_entry_shows_an_example() {
        for (text, says) in [
            (
                "slack = 'env:SLACK_URL'",
                "the services and hosts of this secret are missing; write slack = { from = \"env:SLACK_URL\", for = \
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
            ("slack = 7", "expected a table; write slack = {"),
        ] {
            let refused = toml::from_str::<SecretsConfig>(text).unwrap_err().to_string();
            assert!(refused.contains(says), "{text}: {refused}");
        }
        let written_out = toml::from_str::<SecretsConfig>("slack = 'hunter2'").unwrap_err();
        assert!(!written_out.message().contains("hunter2"), "{written_out}");
    }

    #[test]
    fn unknown_service_is_refused() {
        let config: SecretsConfig =
            toml::from_str("a = { from = 'env:A', for = ['uptim'], hosts = ['a.example'] }").unwrap();
        let refused = config.unknown_services(&["uptime", "pipeline"]).into_vec();
        let message = "unknown service \"uptim\"; services that can use secrets: uptime, pipeline".to_owned();
        assert_eq!(refused, [Mistake { path: "a.for[0]".to_owned(), message }]);
        assert!(config.unknown_services(&["uptim"]).into_vec().is_empty());
    }

    #[test]
    fn reference_is_not_a_name() {
        for text in ["env:HOME", "file:/etc/passwd", "", "a b"] {
            assert_eq!(text.parse::<SecretName>(), Err(SecretNameError), "{text:?}");
        }
    }
}
