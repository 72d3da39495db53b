//! The contract as another program sees it: the real binary, and a plain Redis client that reads keys, types, TTLs and
//! values, on the embedded engine and on Redis. Each test names the contract ids that it proves.

mod pipeline;
mod uptime;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;

use hob_testkit::RedisServer;
use redis::FromRedisValue;

use crate::program::{Server, hob};

/// A running `hob serve`, and a client of its store.
pub(crate) struct Deployment {
    pub(crate) server: Server,
    client: RefCell<redis::Connection>,
    port: u16,
    /// `None` for the embedded engine.
    _redis: Option<RedisServer>,
}

/// The TTL of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ttl {
    NoKey,
    None,
    Seconds(u64),
}

/// Runs each test on the embedded engine and on Redis: `on_every_store! { "uptime"; fn name(deployment: Deployment) { … } }`.
macro_rules! on_every_store {
    ($service:literal; $($(#[doc = $about:literal])+ fn $name:ident($deployment:ident: Deployment) $body:block)+) => {
        $(
            $(#[doc = $about])+
            mod $name {
                #[allow(unused_imports, reason = "not every test needs everything")]
                use super::*;

                fn test($deployment: crate::contract::Deployment) $body

                #[test]
                fn embedded() {
                    test(crate::contract::Deployment::embedded($service));
                }

                #[test]
                fn redis() {
                    test(crate::contract::Deployment::redis($service));
                }
            }
        )+
    };
}
pub(crate) use on_every_store;

impl Deployment {
    /// One service on the embedded engine.
    pub(crate) fn embedded(service: &str) -> Self {
        let server = Server::start(&["--only", service]);
        let port = server.store_port.expect("the embedded engine does not listen");
        Self::new(server, port, None)
    }

    /// One service on a Redis server.
    pub(crate) fn redis(service: &str) -> Self {
        let redis = RedisServer::start();
        let server = Server::start(&["--only", service, "--redis", &redis.url()]);
        Self::new(server, redis.port(), Some(redis))
    }

    fn new(server: Server, port: u16, redis: Option<RedisServer>) -> Self {
        let client = redis::Client::open(("127.0.0.1", port)).expect("an address");
        let client = RefCell::new(client.get_connection().expect("the store does not accept connections"));
        Self { server, client, port, _redis: redis }
    }

    /// Sends a command to the store.
    #[track_caller]
    pub(crate) fn run<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        command.query(&mut *self.client.borrow_mut()).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    pub(crate) fn exists(&self, key: &str) -> bool {
        self.run::<u8>(&["EXISTS", key]) == 1
    }

    /// The fields of a hash; empty if there is none.
    #[track_caller]
    pub(crate) fn hash(&self, key: &str) -> BTreeMap<String, String> {
        self.run(&["HGETALL", key])
    }

    /// The bytes of one field of a hash.
    #[track_caller]
    pub(crate) fn field(&self, key: &str, field: &str) -> Option<Vec<u8>> {
        self.run(&["HGET", key, field])
    }

    #[track_caller]
    pub(crate) fn ttl(&self, key: &str) -> Ttl {
        match self.run::<i64>(&["TTL", key]) {
            -2 => Ttl::NoKey,
            -1 => Ttl::None,
            seconds => Ttl::Seconds(u64::try_from(seconds).expect("a TTL is -2, -1 or positive")),
        }
    }

    #[track_caller]
    pub(crate) fn assert_type(&self, key: &str, expected: &str) {
        assert_eq!(self.run::<String>(&["TYPE", key]), expected, "the type of {key}");
    }

    /// Checks a TTL that was set to `set` seconds less than five minutes ago.
    #[track_caller]
    pub(crate) fn assert_ttl(&self, key: &str, set: u64) {
        let Ttl::Seconds(left) = self.ttl(key) else { panic!("{key} has no TTL: {:?}", self.ttl(key)) };
        assert!(left <= set && left + 300 > set, "the TTL of {key} is {left} s, was set to {set} s");
    }

    /// Checks all keys in the store against the schema files.
    #[track_caller]
    pub(crate) fn assert_audit_is_clean(&self) {
        let url = format!("redis://127.0.0.1:{}", self.port);
        let audit = hob().args(["schema", "audit", &url]).output().expect("cannot start hob");
        let report = String::from_utf8_lossy(&audit.stdout);
        assert_eq!(audit.status.code(), Some(0), "{report}{}", String::from_utf8_lossy(&audit.stderr));
    }
}

/// A number that is written with digits only.
#[track_caller]
pub(crate) fn digits(bytes: impl AsRef<[u8]> + Debug) -> u64 {
    let text = std::str::from_utf8(bytes.as_ref()).expect("digits");
    assert!(!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()), "{text:?}");
    text.parse().expect("a number")
}
