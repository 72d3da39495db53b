//! The sections of the program. Each service has its own.

use std::net::{Ipv4Addr, SocketAddr};

use hob_service::config::SecretUrl;
use hob_service::section;

section! {
    /// This node.
    pub struct NodeConfig("node") {
        /// The name on the Health page. Random if not set.
        pub name: Option<String> = None,
    }
}

section! {
    /// Redis, Valkey or the embedded engine, for fast-changing state that can be rebuilt.
    pub struct RedisConfig("redis") {
        /// The address: redis://, rediss://, redis+cluster://, redis+sentinel:// or embedded://.
        /// Without it, REDIS_URL or REDIS_HOST, REDIS_PORT and REDIS_PASSWORD are used, else the embedded engine.
        pub url: Option<SecretUrl> = None,
        /// The address on which the embedded engine accepts redis-cli and other Redis clients.
        pub store_listen: SocketAddr = (Ipv4Addr::LOCALHOST, 7379).into(),
        /// The memory limit of the embedded engine, in MiB.
        pub store_memory_mib: u32 = 512,
    }
}

section! {
    /// SQLite or PostgreSQL, for everything that must not be lost.
    pub struct DatabaseConfig("database") {
        /// The path of a SQLite file, or postgres://user:password@host/database.
        pub url: SecretUrl = "hob-data/hob.db".to_owned().into(),
    }
}
