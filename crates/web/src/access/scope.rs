//! Scopes: `uptime:read`, `uptime:write`, `*:read`, `admin`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A permission that a route requires and a token has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Full access.
    Admin,
    /// Read access to a service, or to [all](Scope::ALL).
    Read(Cow<'static, str>),
    /// Write access to a service, or to [all](Scope::ALL), which includes read access.
    Write(Cow<'static, str>),
}

/// The text is not a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a scope; use `admin`, `<service>:read` or `<service>:write`, with `*` as the service for all services"
)]
pub struct BadScope;

const MAX_SERVICE_BYTES: usize = 32;

impl Scope {
    /// Used instead of a service: all services, including services added in later versions.
    pub const ALL: &str = "*";

    #[must_use]
    pub const fn read(service: &'static str) -> Self {
        Self::Read(Cow::Borrowed(service))
    }

    #[must_use]
    pub const fn write(service: &'static str) -> Self {
        Self::Write(Cow::Borrowed(service))
    }

    /// Whether this scope includes the other one.
    #[must_use]
    pub fn includes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Admin, _) => true,
            (Self::Read(mine), Self::Read(theirs))
            | (Self::Write(mine), Self::Read(theirs) | Self::Write(theirs)) => {
                mine == theirs || mine == Self::ALL
            }
            _ => false,
        }
    }

    /// The service of the scope, if it is for a single service.
    #[must_use]
    pub fn service(&self) -> Option<&str> {
        match self {
            Self::Admin => None,
            Self::Read(service) | Self::Write(service) => Some(&**service).filter(|name| *name != Self::ALL),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admin => f.write_str("admin"),
            Self::Read(service) => write!(f, "{service}:read"),
            Self::Write(service) => write!(f, "{service}:write"),
        }
    }
}

impl FromStr for Scope {
    type Err = BadScope;

    fn from_str(text: &str) -> Result<Self, BadScope> {
        if text == "admin" {
            return Ok(Self::Admin);
        }
        let (service, action) = text.split_once(':').ok_or(BadScope)?;
        let is_name = (1..=MAX_SERVICE_BYTES).contains(&service.len())
            && service.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        let named = is_name || service == Self::ALL;
        match action {
            "read" if named => Ok(Self::Read(service.to_owned().into())),
            "write" if named => Ok(Self::Write(service.to_owned().into())),
            _ => Err(BadScope),
        }
    }
}

impl Serialize for Scope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Scope {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_includes_read_of_the_same_service_only() {
        let scope = |text: &str| text.parse::<Scope>().unwrap();
        assert!(scope("uptime:write").includes(&scope("uptime:read")));
        assert!(scope("admin").includes(&scope("chat:write")));
        assert!(scope("*:read").includes(&scope("chat:read")));
        assert!(scope("*:write").includes(&scope("chat:read")));
        assert!(scope("*:write").includes(&scope("chat:write")));
        for (held, asked) in [
            ("uptime:read", "uptime:write"),
            ("uptime:write", "chat:read"),
            ("uptime:write", "chat:write"),
            ("uptime:write", "admin"),
            ("*:read", "uptime:write"),
            ("*:write", "admin"),
            ("uptime:read", "*:read"),
        ] {
            assert!(!scope(held).includes(&scope(asked)), "{held} for {asked}");
        }
    }

    #[test]
    fn scopes_round_trip_as_text() {
        for text in ["admin", "uptime:read", "load_tests:write", "*:read", "*:write"] {
            assert_eq!(text.parse::<Scope>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "uptime",
            "uptime:",
            ":read",
            "uptime:delete",
            "Uptime:read",
            "admin:read:x",
            "a b:read",
            "*",
            "*:*",
            "up*:read",
        ] {
            assert_eq!(text.parse::<Scope>(), Err(BadScope), "{text:?}");
        }
    }
}
