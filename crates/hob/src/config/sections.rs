//! The sections of the program. Each service has its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use hob_net::{InternalAddresses, Network, OutboundPolicy};
use hob_service::config::{Mistakes, SecretUrl};
use hob_service::{NodeName, Period, section};
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
