//! URLs of identity providers.

use serde::{Deserialize, Serialize};
use url::{Host, Url};

/// A URL whose connections are encrypted, or that is on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProtectedUrl(Url);

impl ProtectedUrl {
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.0
    }
}

impl TryFrom<String> for ProtectedUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        protected_url(&text).map(Self)
    }
}

impl From<ProtectedUrl> for String {
    fn from(url: ProtectedUrl) -> Self {
        url.0.into()
    }
}

/// Checks that connections to a URL are encrypted. Plain HTTP is allowed only to this machine, for tests and
/// development.
pub(super) fn protected_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("{text:?} is not a URL: {error}"))?;
    let is_local = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    match url.scheme() {
        "https" => {}
        "http" if is_local => {}
        _ => {
            return Err(format!("{text:?} must start with https://; http:// is for loopback addresses only"));
        }
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the URL must not contain a user or a password".to_owned());
    }
    Ok(url)
}
