//! The `[chat]` section of `hob.toml`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hob_net::client_tls;
use hob_service::config::{Mistakes, check_origin};
use hob_service::{Period, SecretRef, section};
use hob_web::ProtectedUrl;
use serde::{Deserialize, Serialize};

use crate::namespace::{self, Namespace};
use crate::proxy::{self, Proxy};
use crate::session::token::{public_key, read_secret};
use crate::webhook::{self, Webhook};

section! {
    /// Chat: presence, typing, unread counts and messages.
    pub struct Config("chat") {
        /// The secret that signs and verifies HS256 user tokens: env:NAME or file:PATH. If no key is configured, each
        /// process generates its own secret and accepts only its own tokens.
        pub token_secret: Option<SecretRef> = None,
        /// Public keys in PEM files. RSA keys verify RS256, P-256 keys verify ES256.
        pub token_public_keys: Vec<String> = Vec::new(),
        /// A URL with public keys (JWKS), such as that of an identity provider. They verify RS256 and ES256. Must start with https://,
        /// except on this machine. Set token_audience, too, if the provider signs tokens for other applications.
        pub token_jwks_url: Option<ProtectedUrl> = None,
        /// The keys are fetched again after this time, and at most every 30 seconds when a token names an unknown key. A key that was
        /// withdrawn is accepted for up to this time.
        pub token_jwks_refresh: Period = Period::from_secs(600) => Period::from_secs(1)..,
        /// How long fetched keys are used while the URL is not reachable. After that, tokens are not accepted.
        pub token_jwks_max_age: Period = Period::from_secs(86_400) => Period::from_secs(1)..,
        /// A PEM file with the certificate authorities of token_jwks_url. Default: the public ones.
        pub token_jwks_ca_file: Option<PathBuf> = None,
        /// The required audience (`aud`) of tokens. Not checked if empty.
        pub token_audience: String = String::new(),
        /// The required issuer (`iss`) of tokens. Not checked if empty.
        pub token_issuer: String = String::new(),
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
        /// After four pushes to a connection within this interval, the next ones wait for its end and are sent together.
        /// It grows to five times its length while the connection stays busy. Replies are written at once.
        pub write_interval: Period = Period::from_millis(20),
        /// The interval between pings to an idle connection.
        pub ping_interval: Period = Period::from_secs(25) => Period::from_millis(100)..,
        /// Whether a member who left and was added again can read what was said in between: hidden or visible.
        pub messages_during_absence: AbsenceMessages = AbsenceMessages::Hidden,
        /// How often each node looks for messages that have expired.
        pub expiry_interval: Period = Period::from_secs(10) => Period::from_millis(10)..,
        /// Whether attachments may have http URLs. Otherwise, only https.
        pub http_attachments: bool = false,
        /// The lease of a node. Other nodes set the users of a node offline when its lease has expired.
        pub node_lease: Period = Period::from_secs(9) => Period::from_millis(300)..,
        /// The key of Centrifugo's server API under /centrifugo/api, for back ends: env:NAME or file:PATH, at least 16 bytes. If it is
        /// not set, the API is off.
        pub api_key: Option<SecretRef> = None,
        /// URLs that receive events: messages, messages for offline members, and presence. Requests are signed. See docs/chat.md.
        ///
        ///   [chat.webhooks.app]
        ///   url    = "https://app.example/hooks/chat"
        ///   secret = "chat_hook"                       # the name of a secret under [secrets], for "chat"
        ///   events = ["message", "offline", "presence"]
        pub webhooks: BTreeMap<String, Webhook> = BTreeMap::new(),
        /// The attempts to send an event to a webhook. After the last one, the event is a dead letter.
        pub webhook_attempts: u32 = 12 => 1..,
        /// The pause after the first failed attempt. It doubles with each attempt, up to 30 minutes.
        pub webhook_backoff: Period = Period::from_secs(5) => Period::from_millis(1)..,
        /// How long a webhook may take to respond.
        pub webhook_timeout: Period = Period::from_secs(10) => Period::from_millis(1)..,
        /// How long dead letters are kept, at most 10000 of them.
        pub webhook_keep_failed: Period = Period::from_secs(30 * 86_400),
        /// Endpoints of your application that decide what clients may do, as in Centrifugo. Requests are signed. See docs/chat.md.
        ///
        ///   [chat.proxy]
        ///   secret         = "chat_proxy"                       # the name of a secret under [secrets], for "chat"
        ///   connect        = "https://app.example/chat/connect" # who a client without a token is
        ///   refresh        = "https://app.example/chat/refresh" # whether such a connection stays open when it has expired
        ///   subscribe      = "https://app.example/chat/subscribe" # in namespaces with proxy_subscribe
        ///   publish        = "https://app.example/chat/publish" # in namespaces with proxy_publish
        ///   rpc            = "https://app.example/chat/rpc"     # RPC methods that are not those of the chat
        ///   headers        = ["cookie"]                         # headers of the client's request that are passed on
        ///   timeout        = "1s"                               # at most 30s; without an answer, nothing is granted
        ///   max_concurrent = 256                                # requests of this node that wait for an answer
        pub proxy: Option<Proxy> = None,
        /// Namespaces of channels other than conversations, as in Centrifugo. Everything is off unless it is set, and channels of
        /// other namespaces are refused. See docs/chat.md.
        ///
        ///   [chat.namespaces.news]                # channels such as news:sport
        ///   history_size                  = 100   # publications that are kept per channel, at most 10000
        ///   history_ttl                   = "1h"  # how long they are kept after the last one, at most 30d
        ///   force_recovery                = true  # clients that reconnect get what they missed
        ///   presence                      = true  # the subscribed clients can be listed
        ///   join_leave                    = true  # subscribers can get joins and leaves
        ///   force_push_join_leave         = false # all subscribers get them
        ///   allow_subscribe_for_client    = true  # all users can subscribe; if false: with a token for the channel
        ///   allow_user_limited_channels   = false # the listed users can subscribe to news:x#42,43
        ///   proxy_subscribe               = false # your application decides on subscriptions: see [chat.proxy]
        ///   proxy_publish                 = false # and on publications of clients
        ///   allow_publish_for_client      = false # and the same with _for_subscriber
        ///   allow_history_for_subscriber  = true  # and the same with _for_client
        ///   allow_presence_for_subscriber = true  # and the same with _for_client
        pub namespaces: BTreeMap<String, Namespace> = BTreeMap::new(),
        /// The options of channels whose names have no colon, such as user#42, in a table [chat.without_namespace].
        pub without_namespace: Option<Namespace> = None,
    }
    check check;
    check_files check_files;
}

/// What a member can read who left and was added again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AbsenceMessages {
    /// What was said before they left and since they are back.
    #[default]
    Hidden,
    /// Everything.
    Visible,
}

fn check(config: &Config, mistakes: &mut Mistakes) {
    mistakes.check_each("origins", &config.origins, |origin| check_origin(origin));
    namespace::check(config, mistakes);
    webhook::check(config, mistakes);
    proxy::check(config, mistakes);
}

fn check_files(config: &Config, mistakes: &mut Mistakes) {
    if let Some(source) = &config.token_secret {
        mistakes.check("token_secret", read_secret(source));
    }
    if let Some(source) = &config.api_key {
        mistakes.check("api_key", read_secret(source));
    }
    mistakes.check("token_jwks_ca_file", client_tls(config.token_jwks_ca_file.as_deref()));
    mistakes.check_each("token_public_keys", &config.token_public_keys, |path| public_key(Path::new(path)));
}
