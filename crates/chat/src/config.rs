//! The `[chat]` section of `hob.toml`.

use std::path::Path;

use hob_service::config::{Mistakes, check_origin};
use hob_service::{Period, SecretRef, section};

use crate::session::token::{public_key, read_secret};

section! {
    /// Chat: presence, typing, unread counts and messages.
    pub struct Config("chat") {
        /// The secret that signs and verifies HS256 user tokens: env:NAME or file:PATH. If no key is configured, each
        /// process generates its own secret and accepts only its own tokens.
        pub token_secret: Option<SecretRef> = None,
        /// Public keys in PEM files. RSA keys verify RS256, P-256 keys verify ES256.
        pub token_public_keys: Vec<String> = Vec::new(),
        /// The required audience (`aud`) of tokens. Not checked if empty.
        pub token_audience: String = String::new(),
        /// How long a connection stays open after its token expired, so that the client can refresh it.
        pub token_grace: Period = Period::from_secs(5),
        /// Other origins whose pages may connect, for example https://shop.example. This server's own pages and
        /// clients that are not browsers can always connect.
        pub origins: Vec<String> = Vec::new(),
        /// The most messages of a user in one window.
        pub message_rate_limit: u32 = 20 => 1..,
        /// The length of the window. Default: MESSAGE_RATE_WINDOW in milliseconds, or one minute.
        pub message_rate_window: Option<Period> = None => Period::from_millis(1)..,
        /// How messages are counted: fixed_counter (as documented), or gcra, which allows no burst at the edge of a
        /// window.
        pub message_rate_algorithm: hob_store::limit::Algorithm = hob_store::limit::Algorithm::FixedCounter,
        /// The most connection attempts of a user per minute, over all nodes.
        pub connects_per_minute: u32 = 120 => 1..,
        /// The most commands of a connection per second, on average. A burst can be ten times as large.
        pub commands_per_second: u32 = 50 => 1..,
        /// The most connections of this node. They count towards max_connections of [server], too.
        pub max_connections: u32 = 20_000 => 1..,
        /// The most channels of one connection.
        pub channels_per_connection: u32 = 128 => 1..,
        /// The largest frame that a client may send, in bytes.
        pub max_frame_bytes: u32 = 65_536 => 1..,
        /// The size of a client's write queue, in bytes. A client that exceeds it is disconnected and can recover.
        pub queue_bytes: u32 = 1_048_576 => 1..,
        /// The shortest interval between two writes to a busy connection. Pushes in between are sent together.
        /// Replies, and pushes to an idle connection, are written at once.
        pub write_interval: Period = Period::from_millis(20),
        /// The interval between pings to an idle connection.
        pub ping_interval: Period = Period::from_secs(25) => Period::from_millis(100)..,
        /// The lease of a node. Other nodes set the users of a node offline when its lease has expired.
        pub node_lease: Period = Period::from_secs(9) => Period::from_millis(300)..,
    }
    check check;
    check_files check_files;
}

fn check(config: &Config, mistakes: &mut Mistakes) {
    mistakes.check_each("origins", &config.origins, |origin| check_origin(origin));
}

fn check_files(config: &Config, mistakes: &mut Mistakes) {
    if let Some(source) = &config.token_secret {
        mistakes.check("token_secret", read_secret(source));
    }
    mistakes.check_each("token_public_keys", &config.token_public_keys, |path| public_key(Path::new(path)));
}
