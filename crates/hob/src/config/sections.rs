//! The sections of the program. Each service has its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use hob_net::{InternalAddresses, Network, OutboundPolicy};
use hob_service::config::{Mistakes, SecretUrl};
use hob_service::{NodeName, Period, SecretRef, section};
use hob_trace::{Collector, Tracer};
use hob_web::Registration;

use crate::services;

section! {
    /// This node.
    pub struct NodeConfig("node") {
        /// The name on the Health page. Random if not set.
        pub name: Option<String> = None,
        /// The services that run on this node: "gateway", "uptime", "chat", "load", "pipeline". All if empty. The flag
        /// --only overrides it.
        pub services: Vec<String> = Vec::new(),
    }
    check check_node;
}

fn check_node(config: &NodeConfig, mistakes: &mut Mistakes) {
    if let Some(name) = &config.name {
        mistakes.check("name", name.parse::<NodeName>());
    }
    let known: Vec<&str> = services::ALL.iter().map(Registration::name).collect();
    mistakes.check_each("services", &config.services, |name| match known.contains(&name.as_str()) {
        true => Ok(()),
        false => Err(format!("unknown service {name:?}; expected one of {}", known.join(", "))),
    });
}

section! {
    /// Redis, Valkey or the embedded engine, for fast-changing state that can be rebuilt.
    pub struct RedisConfig("redis") {
        /// The address: redis://, rediss://, redis+cluster://, redis+sentinel:// or embedded://.
        /// Without it, REDIS_URL or REDIS_HOST, REDIS_PORT and REDIS_PASSWORD are used, else the embedded engine.
        pub url: Option<SecretUrl> = None,
        /// The address on which the embedded engine accepts redis-cli and other Redis clients, at most 1000 at a time:
        /// CONFIG SET maxclients changes that until the process ends.
        pub embedded_listen: SocketAddr = (Ipv4Addr::LOCALHOST, 7379).into(),
        /// The memory limit of the embedded engine, in MiB.
        pub embedded_memory_mib: u32 = 512 => 1..,
    }
    check check_redis;
}

fn check_redis(config: &RedisConfig, mistakes: &mut Mistakes) {
    if let Some(url) = &config.url {
        mistakes.check("url", url.reveal().parse::<hob_store::Address>());
    }
}

section! {
    /// SQLite or PostgreSQL, for everything that must not be lost.
    pub struct DatabaseConfig("database") {
        /// The path of a SQLite file, or postgres://user:password@host/database.
        pub url: SecretUrl = "hob-data/hob.db".to_owned().into(),
        /// The folder into which this node writes backups while it runs. Set it on one node. No backups if not set.
        pub backup_folder: Option<PathBuf> = None,
        /// The time between two backups.
        pub backup_interval: Period = Period::from_secs(86_400) => Period::from_secs(1)..,
        /// How many backups are kept in the folder. Older ones are deleted.
        pub backup_keep: u32 = 7 => 1..,
    }
    check check_database;
}

fn check_database(config: &DatabaseConfig, mistakes: &mut Mistakes) {
    mistakes.check("url", config.url.reveal().parse::<hob_database::Address>());
    if config.backup_folder.as_ref().is_some_and(|folder| folder.as_os_str().is_empty()) {
        mistakes.add("backup_folder", "must not be empty; remove the setting for no backups");
    }
}

section! {
    /// The addresses that this server connects to for its users: targets of checks, webhooks, load tests and pipelines.
    /// Public addresses are allowed. Link-local addresses, among them the metadata services of clouds, are refused
    /// unless they are listed, and so are multicast, broadcast and unspecified addresses.
    pub struct OutboundConfig("outbound") {
        /// Networks and addresses that are allowed, such as "10.1.0.0/16" or "192.168.1.7".
        pub allow: Vec<Network> = Vec::new(),
        /// Whether loopback and private addresses are allowed without being listed. Default: only if `[server] listen`
        /// is a loopback address. Set it to false if a proxy on this machine forwards requests of other users.
        pub private: Option<bool> = None,
    }
}

impl OutboundConfig {
    /// The policy of a server that listens on an address.
    pub(crate) fn policy(&self, listen: SocketAddr) -> OutboundPolicy {
        let is_allowed = self.private.unwrap_or(listen.ip().is_loopback());
        let internal = if is_allowed { InternalAddresses::Allowed } else { InternalAddresses::Denied };
        OutboundPolicy { internal, allow: self.allow.clone() }
    }

    /// The policy of a command in the terminal. Its user can connect to private addresses without Hob.
    pub(crate) fn terminal_policy(&self) -> OutboundPolicy {
        OutboundPolicy { internal: InternalAddresses::Allowed, allow: self.allow.clone() }
    }
}

section! {
    /// Export of spans to an OpenTelemetry collector: requests of the gateway and the API, checks, calls of pipelines and
    /// messages. Read at the start. Without an endpoint nothing is recorded; the gateway passes traceparent on all the same.
    pub struct TracingConfig("tracing") {
        /// The URL of a collector that accepts OTLP over HTTP, such as "http://127.0.0.1:4318". "/v1/traces" is added.
        /// Without it, OTEL_EXPORTER_OTLP_ENDPOINT is used.
        pub endpoint: Option<String> = None,
        /// Headers for the collector, such as an API key: the source of a secret, "env:NAME" or "file:PATH", in the format
        /// of OTEL_EXPORTER_OTLP_HEADERS, which is used without it: "name=value,name=value", values percent-encoded.
        pub headers: Option<SecretRef> = None,
        /// The PEM file of the authority that signed the certificate of the collector. The public ones if not set.
        pub ca_file: Option<PathBuf> = None,
        /// The share of traces that are sampled, from 0 to 1, of those that start here. Others keep the decision that they
        /// came with. It also holds for the traces that the gateway starts for its upstream without an endpoint.
        pub sample_ratio: f64 = 1.0 => 0.0..=1.0,
        /// The name of this deployment in the collector: service.name.
        pub service_name: String = "hob".to_owned(),
    }
    check check_tracing;
    check_files check_tracing_files;
}

fn check_tracing(config: &TracingConfig, mistakes: &mut Mistakes) {
    if let Some(endpoint) = &config.endpoint {
        mistakes.check("endpoint", Collector::parse_url(endpoint));
    }
    if config.service_name.is_empty() {
        mistakes.add("service_name", "must not be empty");
    }
}

fn check_tracing_files(config: &TracingConfig, mistakes: &mut Mistakes) {
    if config.endpoint.is_none() {
        return;
    }
    if let Some(headers) = config.headers.as_ref().and_then(|from| mistakes.check("headers", from.read())) {
        mistakes.check("headers", Collector::parse_headers(&headers));
    }
    if let Some(file) = &config.ca_file {
        mistakes.check("ca_file", hob_net::client_tls(Some(file)));
    }
}

impl TracingConfig {
    /// Starts the export if there is a collector.
    pub(crate) fn tracer(&self, node: &NodeName) -> anyhow::Result<Tracer> {
        let Some(endpoint) = &self.endpoint else { return Ok(Tracer::off(self.sample_ratio)) };
        let mut collector =
            Collector::new(endpoint, self.ca_file.as_deref(), &self.service_name, node.as_str())?;
        if let Some(headers) = &self.headers {
            collector = collector.with_headers(&headers.read()?)?;
        }
        Ok(Tracer::start(self.sample_ratio, collector))
    }
}
