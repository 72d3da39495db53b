//! Where the database is: a SQLite file, or a PostgreSQL database.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;
use url::Url;

use crate::Error;

/// Where the database is. Parsed from a path, `sqlite:PATH`, or `postgres://USER:PASSWORD@HOST/DATABASE`;
/// shown without the password.
#[derive(Clone)]
pub struct Address(Place);

#[derive(Clone)]
pub(crate) enum Place {
    File(PathBuf),
    Server(Box<Server>),
}

#[derive(Clone)]
pub(crate) struct Server {
    /// Without password and parameters, which may hold one too.
    shown: String,
    pub(crate) options: PgConnectOptions,
}

/// The two kinds of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Sqlite,
    Postgres,
}

impl Address {
    pub fn sqlite(path: impl AsRef<Path>) -> Self {
        Self(Place::File(path.as_ref().to_owned()))
    }

    pub fn dialect(&self) -> Dialect {
        match self.0 {
            Place::File(_) => Dialect::Sqlite,
            Place::Server(_) => Dialect::Postgres,
        }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.0
    }

    fn postgres(text: &str) -> Result<Self, Error> {
        let refused = |reason: String| Error::Address { reason };
        // The parser's own error repeats no part of the address.
        let mut url = Url::parse(text).map_err(|error| refused(format!("not a URL: {error}")))?;
        let options = PgConnectOptions::from_str(text)
            .map_err(|_| refused("not an address of PostgreSQL that can be understood".to_owned()))?;
        // Both fail for URLs that cannot have a password at all.
        let _ = url.set_password(None);
        url.set_query(None);
        url.set_fragment(None);
        Ok(Self(Place::Server(Box::new(Server { shown: url.into(), options }))))
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse = |reason: &str| Error::Address { reason: reason.to_owned() };
        let (scheme, rest) = text.split_once(':').unwrap_or(("", text));
        match scheme {
            "postgres" | "postgresql" => Self::postgres(text),
            _ if text.contains("://") && scheme != "sqlite" => {
                Err(refuse("begins with neither sqlite: nor postgres://"))
            }
            "sqlite" => match rest.strip_prefix("//").unwrap_or(rest) {
                "" => Err(refuse("names no file")),
                // Every connection would have a database of its own.
                ":memory:" => Err(refuse("a database in memory is not supported: name a file")),
                path if path.contains('?') => Err(refuse("has parameters, which SQLite's does not take")),
                path => Ok(Self::sqlite(path)),
            },
            _ if text.is_empty() => Err(refuse("is empty")),
            _ => Ok(Self::sqlite(text)),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::File(path) => write!(f, "sqlite:{}", path.display()),
            Place::Server(server) => f.write_str(&server.shown),
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
    fn paths_and_urls_are_told_apart() {
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
    fn what_names_no_database_is_refused() {
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
    fn a_password_is_never_shown() {
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
