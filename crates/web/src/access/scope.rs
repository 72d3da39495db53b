//! Scopes: `uptime:read`, `uptime:write`, `admin`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// A right that a route asks for and a token may have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// To do everything.
    Admin,
    /// To look at what a service has.
    Read(Cow<'static, str>),
    /// To change it, which includes looking.
    Write(Cow<'static, str>),
}

/// Why a text is no scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a scope is `admin`, `<service>:read` or `<service>:write`")]
pub struct BadScope;

const LONGEST_SERVICE: usize = 32;

impl Scope {
    #[must_use]
    pub const fn read(service: &'static str) -> Self {
        Self::Read(Cow::Borrowed(service))
    }

    #[must_use]
    pub const fn write(service: &'static str) -> Self {
        Self::Write(Cow::Borrowed(service))
    }

    /// Whether who has this one may do what asks for the other.
    #[must_use]
    pub fn includes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Admin, _) => true,
            (Self::Write(mine), Self::Read(theirs)) => mine == theirs,
            _ => self == other,
        }
    }

    /// The service that the scope is about.
    #[must_use]
    pub fn service(&self) -> Option<&str> {
        match self {
            Self::Admin => None,
            Self::Read(service) | Self::Write(service) => Some(service),
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
        let named = (1..=LONGEST_SERVICE).contains(&service.len())
            && service.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        match action {
            "read" if named => Ok(Self::Read(service.to_owned().into())),
            "write" if named => Ok(Self::Write(service.to_owned().into())),
            _ => Err(BadScope),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_write_includes_to_read_of_the_same_service_only() {
        let scope = |text: &str| text.parse::<Scope>().unwrap();
        assert!(scope("uptime:write").includes(&scope("uptime:read")));
        assert!(scope("admin").includes(&scope("chat:write")));
        for (held, asked) in [
            ("uptime:read", "uptime:write"),
            ("uptime:write", "chat:read"),
            ("uptime:write", "chat:write"),
            ("uptime:write", "admin"),
        ] {
            assert!(!scope(held).includes(&scope(asked)), "{held} for {asked}");
        }
    }

    #[test]
    fn scopes_read_as_they_are_written() {
        for text in ["admin", "uptime:read", "load_tests:write"] {
            assert_eq!(text.parse::<Scope>().unwrap().to_string(), text);
        }
        for text in
            ["", "uptime", "uptime:", ":read", "uptime:delete", "Uptime:read", "admin:read:x", "a b:read"]
        {
            assert_eq!(text.parse::<Scope>(), Err(BadScope), "{text:?}");
        }
    }
}
