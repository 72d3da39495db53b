//! The address of the store: a URL or environment variables, parsed into a typed form.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use hob_units::Secret;

use crate::error::{Error, Result};

const DEFAULT_PORT: u16 = 6379;
const DEFAULT_SENTINEL_PORT: u16 = 26379;

/// The address of the store and the credentials for it. Its text form never shows the password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// The embedded store, in this process.
    Embedded,
    /// One Redis or Valkey server.
    Server { host: Host, db: u32, access: Access },
    /// The master that a set of sentinels reports.
    Sentinel { sentinels: Vec<Host>, master: String, db: u32, access: Access },
    /// A Redis Cluster, which is discovered through any of these nodes.
    Cluster { seeds: Vec<Host>, access: Access },
}

/// A host name or IP address, and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Host {
    /// A name or an IP address; IPv6 without brackets.
    pub name: String,
    /// The TCP port.
    pub port: u16,
}

/// Credentials and encryption, the same for every server of one address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The ACL user; `None` is Redis's `default`.
    pub user: Option<String>,
    /// The password, if the server asks for one.
    pub password: Option<Secret>,
    /// `None` is plain TCP.
    pub tls: Option<Tls>,
}

/// How a TLS server is verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// A PEM file with the certificate authorities to trust instead of the public ones.
    pub ca_file: Option<PathBuf>,
}

impl Address {
    /// The address from the environment variables: `HOB_REDIS_URL` or `REDIS_URL` if one is set, otherwise
    /// `REDIS_HOST`, `REDIS_PORT` and `REDIS_PASSWORD` if any of them is set (C14), otherwise the embedded store.
    pub fn from_env() -> Result<Self> {
        Self::from_vars(|name| std::env::var(name).ok())
    }

    /// Like [`from_env`](Self::from_env), with variables from `var`.
    pub fn from_vars(var: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let set = |name| var(name).filter(|value| !value.is_empty());
        if let Some(url) = set("HOB_REDIS_URL").or_else(|| set("REDIS_URL")) {
            return url.parse();
        }
        let (host, port, password) = (set("REDIS_HOST"), set("REDIS_PORT"), set("REDIS_PASSWORD"));
        if host.is_none() && port.is_none() && password.is_none() {
            return Ok(Self::Embedded);
        }
        let port = match port {
            Some(text) => text.parse().map_err(|_| bad(format!("REDIS_PORT is not a port: {text:?}")))?,
            None => DEFAULT_PORT,
        };
        let name = host.unwrap_or_else(|| "localhost".to_owned());
        let access = Access { password: password.map(Secret::new), ..Access::default() };
        Ok(Self::Server { host: Host { name, port }, db: 0, access })
    }

    /// Whether keys need hash tags, so that all keys of a script share a slot.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster { .. })
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| bad("no scheme; write redis://host:6379, for example".to_owned()))?;
        let parts = Parts::split(rest)?;
        match scheme {
            "embedded" if rest.is_empty() || rest == "/" => Ok(Self::Embedded),
            "embedded" => Err(bad("embedded:// must not have a host".to_owned())),
            "redis" | "rediss" => parts.server(scheme == "rediss"),
            "redis+sentinel" | "rediss+sentinel" => parts.sentinel(scheme.starts_with("rediss")),
            "redis+cluster" | "rediss+cluster" => parts.cluster(scheme.starts_with("rediss")),
            _ => Err(bad(format!(
                "unknown scheme {scheme:?}; one of redis, rediss, redis+sentinel, rediss+sentinel, \
                 redis+cluster, rediss+cluster, embedded"
            ))),
        }
    }
}

/// The parts of a URL after its scheme. They are split by hand because the `url` crate refuses several hosts.
struct Parts<'a> {
    user: Option<String>,
    password: Option<Secret>,
    hosts: &'a str,
    path: Vec<&'a str>,
    query: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn split(rest: &'a str) -> Result<Self> {
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query)),
            None => (rest, None),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, hosts) = match authority.rsplit_once('@') {
            Some((credentials, hosts)) => (Some(credentials), hosts),
            None => (None, authority),
        };
        let (mut user, mut password) = (None, None);
        if let Some(credentials) = credentials {
            let (name, secret) = credentials.split_once(':').unwrap_or((credentials, ""));
            user = Some(decode(name)?).filter(|name| !name.is_empty());
            password = Some(decode(secret)?).filter(|secret| !secret.is_empty()).map(Secret::new);
        }
        let path = path.split('/').filter(|part| !part.is_empty()).collect();
        Ok(Self { user, password, hosts, path, query })
    }

    fn server(self, encrypted: bool) -> Result<Address> {
        let mut hosts = hosts(self.hosts, DEFAULT_PORT)?;
        if hosts.len() > 1 {
            return Err(bad("redis:// takes one host; use redis+cluster:// or redis+sentinel://".to_owned()));
        }
        let db = match self.path[..] {
            [] => 0,
            [db] => database(db)?,
            _ => return Err(bad("the path of redis:// must be a database number".to_owned())),
        };
        Ok(Address::Server { host: hosts.remove(0), db, access: self.access(encrypted)? })
    }

    fn sentinel(self, encrypted: bool) -> Result<Address> {
        let sentinels = hosts(self.hosts, DEFAULT_SENTINEL_PORT)?;
        let (master, db) = match self.path[..] {
            [master] => (master, 0),
            [master, db] => (master, database(db)?),
            _ => {
                return Err(bad("redis+sentinel:// needs the path /mastername or /mastername/db".to_owned()));
            }
        };
        Ok(Address::Sentinel { sentinels, master: decode(master)?, db, access: self.access(encrypted)? })
    }

    fn cluster(self, encrypted: bool) -> Result<Address> {
        let seeds = hosts(self.hosts, DEFAULT_PORT)?;
        if !matches!(self.path[..], [] | ["0"]) {
            return Err(bad("a Cluster has only database 0".to_owned()));
        }
        Ok(Address::Cluster { seeds, access: self.access(encrypted)? })
    }

    fn access(self, encrypted: bool) -> Result<Access> {
        let mut ca_file = None;
        for (name, value) in url::form_urlencoded::parse(self.query.unwrap_or_default().as_bytes()) {
            match &*name {
                "ca" if encrypted => ca_file = Some(PathBuf::from(&*value)),
                "ca" => return Err(bad("ca= needs a rediss scheme".to_owned())),
                _ => return Err(bad(format!("unknown parameter {name:?}; only ca=FILE is known"))),
            }
        }
        Ok(Access { user: self.user, password: self.password, tls: encrypted.then_some(Tls { ca_file }) })
    }
}

fn hosts(text: &str, default_port: u16) -> Result<Vec<Host>> {
    text.split(',').map(|host| Host::parse(host, default_port)).collect()
}

fn database(text: &str) -> Result<u32> {
    text.parse().map_err(|_| bad(format!("{text:?} is not a database number")))
}

fn bad(reason: String) -> Error {
    Error::Address(reason)
}

/// Decodes percent-encoding such as `%40`.
fn decode(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first != b'%' {
            bytes.push(*first);
            rest = tail;
            continue;
        }
        let hex = tail.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        let byte = hex.and_then(|pair| u8::from_str_radix(pair, 16).ok());
        bytes.push(byte.ok_or_else(|| bad("a % must be followed by two hexadecimal digits".to_owned()))?);
        rest = &tail[2..];
    }
    String::from_utf8(bytes).map_err(|_| bad("user, password and master must be UTF-8".to_owned()))
}

impl Host {
    pub(crate) fn parse(text: &str, default_port: u16) -> Result<Self> {
        let (name, port) = if let Some(rest) = text.strip_prefix('[') {
            let (name, port) = rest.split_once(']').ok_or_else(|| bad(format!("no ] in {text:?}")))?;
            (name, port.strip_prefix(':'))
        } else {
            match text.rsplit_once(':') {
                Some((name, _)) if name.contains(':') => {
                    return Err(bad(format!("an IPv6 address must be in brackets: [{text}]")));
                }
                Some((name, port)) => (name, Some(port)),
                None => (text, None),
            }
        };
        if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c == '/' || c == '@') {
            return Err(bad(format!("{text:?} is not a host")));
        }
        let port = match port {
            Some(port) => port.parse().map_err(|_| bad(format!("{port:?} is not a port")))?,
            None => default_port,
        };
        Ok(Self { name: name.to_owned(), port })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |hosts: &[Host]| hosts.iter().map(Host::to_string).collect::<Vec<_>>().join(",");
        let s = |access: &Access| if access.tls.is_some() { "s" } else { "" };
        match self {
            Self::Embedded => f.write_str("embedded://"),
            Self::Server { host, db, access } => write!(f, "redis{}://{host}/{db}", s(access)),
            Self::Sentinel { sentinels, master, db, access } => {
                write!(f, "redis{}+sentinel://{}/{master}/{db}", s(access), list(sentinels))
            }
            Self::Cluster { seeds, access } => write!(f, "redis{}+cluster://{}", s(access), list(seeds)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, port: u16) -> Host {
        Host { name: name.into(), port }
    }

    fn parse(text: &str) -> Address {
        text.parse().unwrap()
    }

    #[test]
    fn plain_url_gives_host_port_and_database() {
        let Address::Server { host: at, db, access } = parse("redis://cache.local:6390/3") else { panic!() };
        assert_eq!((at, db, access), (host("cache.local", 6390), 3, Access::default()));
        let Address::Server { host: at, .. } = parse("redis://[::1]") else { panic!() };
        assert_eq!(at, host("::1", 6379));
    }

    #[test]
    fn user_and_password_are_decoded() {
        let Address::Server { access, .. } = parse("rediss://hob:p%40ss%3A@h:1?ca=/etc/ca.pem") else {
            panic!()
        };
        assert_eq!(access.user.as_deref(), Some("hob"));
        assert_eq!(access.password.unwrap().reveal(), "p@ss:");
        assert_eq!(access.tls.unwrap().ca_file, Some("/etc/ca.pem".into()));
    }

    #[test]
    fn clusters_and_sentinels_take_several_hosts() {
        let Address::Cluster { seeds, .. } = parse("redis+cluster://a:1,b:2") else { panic!() };
        assert_eq!(seeds, [host("a", 1), host("b", 2)]);
        let address = parse("redis+sentinel://:secret@a,b:2/mymaster/4");
        let Address::Sentinel { sentinels, master, db, .. } = &address else { panic!() };
        assert_eq!(
            (sentinels.as_slice(), master.as_str(), *db),
            (&[host("a", 26379), host("b", 2)][..], "mymaster", 4)
        );
    }

    #[test]
    fn password_is_never_printed() {
        let address = parse("redis+sentinel://u:hunter2@a/m");
        assert!(!format!("{address} {address:?}").contains("hunter2"));
    }

    /// C14.
    #[test]
    fn environment_variables_give_the_address() {
        let vars = |pairs: &[(&str, &str)]| {
            let pairs: Vec<(String, String)> =
                pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
            Address::from_vars(move |name| pairs.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone()))
        };
        assert_eq!(vars(&[]).unwrap(), Address::Embedded);
        assert_eq!(vars(&[("REDIS_PASSWORD", "x")]).unwrap().to_string(), "redis://localhost:6379/0");
        assert_eq!(vars(&[("REDIS_HOST", "h"), ("REDIS_PORT", "7")]).unwrap().to_string(), "redis://h:7/0");
        let both = vars(&[("REDIS_HOST", "h"), ("HOB_REDIS_URL", "redis+cluster://c:1")]).unwrap();
        assert_eq!(both.to_string(), "redis+cluster://c:1");
        assert!(vars(&[("REDIS_PORT", "seven")]).unwrap_err().to_string().contains("REDIS_PORT"));
    }

    #[test]
    fn invalid_urls_are_refused_with_a_reason() {
        for (text, part) in [
            ("localhost:6379", "no scheme"),
            ("http://h", "unknown scheme"),
            ("redis://a,b", "takes one host"),
            ("redis://h:70000", "not a port"),
            ("redis://h/zero", "database number"),
            ("redis://::1:6379", "brackets"),
            ("redis://h?x=1", "unknown parameter"),
            ("redis://h?ca=f", "rediss"),
            ("redis+sentinel://h", "mastername"),
            ("redis+cluster://h/1", "database 0"),
            ("redis://", "not a host"),
            ("redis://%zz@h", "hexadecimal"),
            ("embedded://h", "must not have a host"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
