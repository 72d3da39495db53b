//! The sections of the program itself; each service has its own.

use std::net::{Ipv4Addr, SocketAddr};

use hob_service::config::SecretUrl;
use hob_service::section;

section! {
    /// This node.
    pub struct NodeConfig("node") {
        /// What it is called on the Health page; random when not given.
        pub name: Option<String> = None,
    }
}

section! {
    /// Redis, Valkey or the embedded engine: what changes by the second. It may be lost at any instant.
    pub struct RedisConfig("redis") {
        /// Where it lives: redis://, rediss://, redis+cluster://, redis+sentinel://, or embedded://.
        /// When not given, REDIS_HOST, REDIS_PORT and REDIS_PASSWORD are heeded; without them it is embedded.
        pub url: Option<SecretUrl> = None,
        /// Where the embedded store listens for redis-cli and other Redis clients.
        pub store_listen: SocketAddr = (Ipv4Addr::LOCALHOST, 7379).into(),
        /// The most memory that the embedded store may use, in MiB.
        pub store_memory_mib: u32 = 512,
    }
}

section! {
    /// SQLite or PostgreSQL: everything that must not be lost.
    pub struct DatabaseConfig("database") {
        /// A SQLite file, or postgres://.
        pub url: SecretUrl = "hob-data/hob.db".to_owned().into(),
    }
}
