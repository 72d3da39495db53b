//! The contract as another program sees it: the real binary, and a plain Redis client that reads keys, types, TTLs and
//! values, on the embedded engine and on Redis. Each test names the contract ids that it proves.

mod chat;
mod gateway;
mod load;
mod pipeline;
mod uptime;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use hob_testkit::{LIMIT, RedisServer};
use redis::FromRedisValue;
use tempfile::TempDir;

use crate::program::{LOG, Server, hob};

/// The store of a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Embedded,
    Redis,
}

/// A running `hob serve`, and a client of its store.
pub(crate) struct Deployment {
    pub(crate) server: Server,
    client: RefCell<redis::Connection>,
    port: u16,
    /// `None` for the embedded engine.
    redis: Option<RedisServer>,
    settings: Settings,
}

/// What a server is started with.
#[derive(Default)]
pub(crate) struct Settings {
    service: String,
    /// The text of its `hob.toml`.
    config: String,
    variables: Vec<(String, String)>,
    /// The folder of a database that outlives the server.
    _database: Option<TempDir>,
    log: LogOutput,
}

/// Where a server writes its log.
#[derive(Default, PartialEq, Eq)]
enum LogOutput {
    #[default]
    Stderr,
    /// A file, for [`Server::log`].
    File,
}

/// The TTL of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ttl {
    NoKey,
    None,
    Seconds(u64),
}

/// Runs each test on the embedded engine and on Redis: `on_every_store! { "uptime"; fn name(deployment: Deployment) { … } }`,
/// or `on_every_store! { fn name(store: Store) { … } }` if the test starts the deployment with settings.
macro_rules! on_every_store {
    ($service:literal; $($(#[doc = $about:literal])+ fn $name:ident($deployment:ident: Deployment) $body:block)+) => {
        crate::contract::on_every_store! {
            $(
                $(#[doc = $about])+
                fn $name(store: Store) {
                    let $deployment = crate::contract::Deployment::start(store, $service);
                    $body
                }
            )+
        }
    };
    ($($(#[doc = $about:literal])+ fn $name:ident($store:ident: Store) $body:block)+) => {
        $(
            $(#[doc = $about])+
            mod $name {
                #[allow(unused_imports, reason = "not every test needs everything")]
                use super::*;

                fn test($store: crate::contract::Store) $body

                #[test]
                fn embedded() {
                    test(crate::contract::Store::Embedded);
                }

                #[test]
                fn redis() {
                    test(crate::contract::Store::Redis);
                }
            }
        )+
    };
}
pub(crate) use on_every_store;

impl Settings {
    pub(crate) fn new(service: &str) -> Self {
        Self { service: service.to_owned(), ..Self::default() }
    }

    pub(crate) fn config(mut self, text: &str) -> Self {
        self.config.push_str(text);
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With a database that [`Deployment::restart`] finds again.
    pub(crate) fn lasting_database(self) -> Self {
        let folder = tempfile::tempdir().expect("cannot create a temporary folder");
        let path = folder.path().join("hob.db").display().to_string();
        Self { _database: Some(folder), ..self.variable("DATABASE_URL", &path) }
    }

    /// With a log that [`Server::log`] reads.
    pub(crate) fn log_to_file(self) -> Self {
        Self { log: LogOutput::File, ..self }
    }

    /// Starts a server; on the embedded engine without a URL.
    fn start(&self, redis: Option<&str>) -> Server {
        Server::launch("127.0.0.1:0", |command| {
            let folder = command.get_current_dir().expect("no working directory").to_owned();
            std::fs::write(folder.join("hob.toml"), &self.config)
                .expect("cannot write to the temporary folder");
            command.args(["--only", &self.service]).envs(self.variables.iter().cloned());
            if let Some(url) = redis {
                command.args(["--redis", url]);
            }
            if self.log == LogOutput::File {
                command.stderr(File::create(folder.join(LOG)).expect("cannot write to the temporary folder"));
            }
            command
        })
    }
}

impl Deployment {
    /// One service with its defaults.
    pub(crate) fn start(store: Store, service: &str) -> Self {
        Self::start_with(store, Settings::new(service))
    }

    pub(crate) fn start_with(store: Store, settings: Settings) -> Self {
        let redis = (store == Store::Redis).then(RedisServer::start);
        let server = settings.start(redis.as_ref().map(RedisServer::url).as_deref());
        let port = match &redis {
            Some(redis) => redis.port(),
            None => server.store_port.expect("the embedded engine does not listen"),
        };
        Self { server, client: RefCell::new(connect(port)), port, redis, settings }
    }

    /// Stops the server and starts it again, with the same settings, database and Redis. The embedded engine starts empty.
    pub(crate) fn restart(&mut self) {
        self.server.terminate();
        self.start_again();
    }

    /// [`restart`](Self::restart) after `kill -9`.
    pub(crate) fn kill_and_restart(&mut self) {
        self.server.kill();
        self.start_again();
    }

    /// The file of a [`lasting_database`](Settings::lasting_database).
    pub(crate) fn database_file(&self) -> &str {
        let variable = self.settings.variables.iter().find(|(name, _)| name == "DATABASE_URL");
        &variable.expect("the database does not last").1
    }

    fn start_again(&mut self) {
        self.server = self.settings.start(self.redis.as_ref().map(RedisServer::url).as_deref());
        if let Some(port) = self.server.store_port {
            self.port = port;
            self.client = RefCell::new(connect(port));
        }
    }

    /// Another server on the same store.
    pub(crate) fn another_node(&self, settings: &Settings) -> Server {
        settings.start(Some(&format!("redis://127.0.0.1:{}", self.port)))
    }

    /// Connects to Redis again after it was restarted.
    pub(crate) fn reconnect(&self) {
        self.client.replace(connect(self.port));
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

    /// Subscribes to channels of the store.
    pub(crate) fn subscribe(&self, channels: &[&str]) -> Messages {
        let (mut connection, channels) = (connect(self.port), channels.iter().map(|&name| name.to_owned()));
        let channels: Vec<String> = channels.collect();
        let (sender, messages) = mpsc::channel();
        let (ready, subscribed) = mpsc::channel();
        // Ends with the store, or with its receiver.
        std::thread::spawn(move || {
            let mut subscription = connection.as_pubsub();
            for channel in &channels {
                subscription.subscribe(channel).expect("cannot subscribe");
            }
            ready.send(()).expect("the test has ended");
            while let Ok(message) = subscription.get_message() {
                let payload = message.get_payload().expect("not a text");
                if sender.send((message.get_channel_name().to_owned(), payload)).is_err() {
                    break;
                }
            }
        });
        subscribed.recv_timeout(LIMIT).expect("no reply to SUBSCRIBE");
        Messages(messages)
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

/// The messages of a subscription.
pub(crate) struct Messages(mpsc::Receiver<(String, String)>);

impl Messages {
    /// Waits for the next message: its channel and its payload.
    #[track_caller]
    pub(crate) fn next(&self) -> (String, String) {
        self.0.recv_timeout(LIMIT).expect("no message")
    }
}

fn connect(port: u16) -> redis::Connection {
    let client = redis::Client::open(("127.0.0.1", port)).expect("an address");
    client.get_connection().expect("the store does not accept connections")
}

/// An HTTP server that responds with a status, and counts requests.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) url: String,
    status: Arc<AtomicU16>,
    requests: Arc<AtomicUsize>,
}

impl Target {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let target = Self { url, status: Arc::new(AtomicU16::new(200)), requests: Arc::default() };
        let this = target.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.read(&mut [0; 2048]);
                this.requests.fetch_add(1, Ordering::SeqCst);
                let status = this.status.load(Ordering::SeqCst);
                let _ =
                    write!(stream, "HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            }
        });
        target
    }

    pub(crate) fn respond_with(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// Whether a text has digits where the form has zeros, and is like the form elsewhere.
pub(crate) fn matches_form(text: &str, form: &str) -> bool {
    let same = |(found, expected): (u8, u8)| {
        if expected == b'0' { found.is_ascii_digit() } else { found == expected }
    };
    text.len() == form.len() && text.bytes().zip(form.bytes()).all(same)
}

/// A number that is written with digits only.
#[track_caller]
pub(crate) fn digits(bytes: impl AsRef<[u8]> + Debug) -> u64 {
    let text = std::str::from_utf8(bytes.as_ref()).expect("digits");
    assert!(!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()), "{text:?}");
    text.parse().expect("a number")
}
