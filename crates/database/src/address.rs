//! The address of the database: a SQLite file or a PostgreSQL server.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;
use url::Url;

use crate::Error;

/// The address of the database. Parsed from a path, `sqlite:PATH`, or `postgres://USER:PASSWORD@HOST/DATABASE`.
/// `Display` and `Debug` leave out the password.
#[derive(Clone)]
pub struct Address(Location);

#[derive(Clone)]
pub(crate) enum Location {
    File(PathBuf),
    Server(Box<Server>),
}

#[derive(Clone)]
pub(crate) struct Server {
    /// The URL without its password and its parameters, because parameters may contain a password too.
    redacted: String,
    pub(crate) options: PgConnectOptions,
}

/// The supported databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Sqlite,
    Postgres,
}

impl Address {
    pub fn sqlite(path: impl AsRef<Path>) -> Self {
        Self(Location::File(path.as_ref().to_owned()))
    }

    pub fn dialect(&self) -> Dialect {
        match self.0 {
            Location::File(_) => Dialect::Sqlite,
            Location::Server(_) => Dialect::Postgres,
        }
    }

    pub(crate) fn location(&self) -> &Location {
        &self.0
    }

    fn postgres(text: &str) -> Result<Self, Error> {
        let refused = |reason: String| Error::Address { reason };
        // The error of `Url::parse` does not repeat any part of the address.
        let mut url = Url::parse(text).map_err(|error| refused(format!("is not a URL: {error}")))?;
        let options = PgConnectOptions::from_str(text).map_err(|_| {
            refused("is not a PostgreSQL URL; write postgres://USER:PASSWORD@HOST:PORT/DATABASE".to_owned())
        })?;
        // Fails only for a URL that cannot have a password.
        let _ = url.set_password(None);
        url.set_query(None);
        url.set_fragment(None);
        Ok(Self(Location::Server(Box::new(Server { redacted: url.into(), options }))))
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse = |reason: &str| Error::Address { reason: reason.to_owned() };
        let (scheme, rest) = text.split_once(':').unwrap_or(("", text));
        match scheme {
            "postgres" | "postgresql" => Self::postgres(text),
            _ if text.contains("://") && scheme != "sqlite" => Err(refuse(
                "has an unknown scheme; write a path, sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE",
            )),
            "sqlite" => match rest.strip_prefix("//").unwrap_or(rest) {
                "" => Err(refuse("has no file name; write sqlite:PATH")),
                // With an in-memory database, every connection would have its own empty database.
                ":memory:" => {
                    Err(refuse("is an in-memory database, which is not supported; write sqlite:PATH"))
                }
                path if path.contains('?') => Err(refuse(
                    "has parameters, which are not supported for SQLite; remove everything after the `?`",
                )),
                path => Ok(Self::sqlite(path)),
            },
            _ if text.is_empty() => {
                Err(refuse("is empty; write a path, sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE"))
            }
            _ => Ok(Self::sqlite(text)),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Location::File(path) => write!(f, "sqlite:{}", path.display()),
            Location::Server(server) => f.write_str(&server.redacted),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Address, String> {
        text.parse().map_err(|error: Error| error.to_string())
    }

    #[test]
    fn paths_and_urls_are_parsed() {
        for (text, shown) in [
            ("hob-data/hob.db", "sqlite:hob-data/hob.db"),
            ("/var/lib/hob.db", "sqlite:/var/lib/hob.db"),
            ("sqlite:hob.db", "sqlite:hob.db"),
            ("sqlite:///var/lib/hob.db", "sqlite:/var/lib/hob.db"),
            ("postgres://hob@db:5433/hob", "postgres://hob@db:5433/hob"),
            ("postgresql://db/hob", "postgresql://db/hob"),
        ] {
            assert_eq!(parse(text).unwrap().to_string(), shown);
        }
    }

    #[test]
    fn invalid_address_is_refused() {
        for text in [
            "",
            "sqlite:",
            "sqlite::memory:",
            "sqlite:hob.db?mode=ro",
            "mysql://db/hob",
            "postgres://db:port/hob",
        ] {
            assert!(parse(text).is_err(), "{text} was accepted");
        }
    }

    #[test]
    fn password_is_never_shown() {
        for text in [
            "postgres://hob:s3cret@db/hob",
            "postgres://hob@db/hob?password=s3cret",
            "postgres://hob:s3cret@db:notaport/hob",
            "postgres://hob:s3cret@db/hob?sslmode=s3cret",
        ] {
            let shown = match parse(text) {
                Ok(address) => format!("{address} {address:?}"),
                Err(error) => error,
            };
            assert!(!shown.contains("s3cret"), "{shown}");
        }
    }
}
