//! The `[chat]` section of `hob.toml`.

use hob_service::{Period, SecretRef, section};

section! {
    /// Chat: presence, typing, unread counts and messages.
    pub struct Config("chat") {
        /// The secret that HS256 tokens of users are signed with: env:NAME or file:PATH. Without any key a secret
        /// is made up at the start, so that only tokens from this very process are let in.
        pub token_secret: Option<SecretRef> = None,
        /// Files with public keys in PEM: RSA keys verify RS256, P-256 keys ES256.
        pub token_public_keys: Vec<String> = Vec::new(),
        /// What a token's `aud` must name. Not asked for if empty.
        pub token_audience: String = String::new(),
        /// How long a connection may go on once its token has expired, so that a new token can come.
        pub token_grace: Period = Period::from_secs(10),
        /// Other sites whose pages may open sockets, as browsers write them: https://shop.example. This server's own
        /// pages, and programs that are no browsers, always may.
        pub origins: Vec<String> = Vec::new(),
        /// How many messages a user may send in a window.
        pub message_rate_limit: u32 = 20 => "MESSAGE_RATE_LIMIT",
        /// How long that window is. If it is not given, MESSAGE_RATE_WINDOW says it, in milliseconds; else it is a minute.
        pub message_rate_window: Option<Period> = None,
        /// How messages are counted: fixed_counter (as documented), or gcra, which lets no burst pass between windows.
        pub message_rate_algorithm: hob_store::limit::Algorithm = hob_store::limit::Algorithm::FixedCounter,
        /// How often a user may connect in a minute, over all nodes.
        pub connects_per_minute: u32 = 120,
        /// How many commands a connection may send in a second on the long run; ten times as many at once.
        pub commands_per_second: u32 = 50,
        /// The most connections of this node.
        pub max_connections: u32 = 50_000,
        /// The most channels of one connection.
        pub channels_per_connection: u32 = 128,
        /// The largest frame that a client may send, in bytes.
        pub max_frame_bytes: u32 = 65_536,
        /// What may wait for a slow client, in bytes, before it is told to come back and recover.
        pub queue_bytes: u32 = 1_048_576,
        /// A connection that is told much is written to this often at most: what comes meanwhile goes together. Answers,
        /// and what comes after a quiet moment, never wait.
        pub write_every: Period = Period::from_millis(20),
        /// How often a quiet connection is asked for a sign of life.
        pub ping_every: Period = Period::from_secs(25),
        /// How long a node may be silent before the others take its users offline.
        pub node_lease: Period = Period::from_secs(9),
    }
}
