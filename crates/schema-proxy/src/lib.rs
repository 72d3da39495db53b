//! A proxy in front of a Redis, a Valkey or a Cluster that checks every write against key schemas.
//!
//! Bytes are forwarded as they are. Of each command only its boundaries and its name are parsed, and of a command that writes,
//! also its keys, values and TTL. What the words of a command show is judged before the command is forwarded; in the mode
//! [`Mode::Enforce`] a command that breaks the schemas is refused. What they do not show, such as the effect of a script or a
//! missing TTL, is read from the keys shortly afterwards (`checks`) and reported.
//!
//! - `framing`: requests in the bytes of a client; `rules` and `writes`: what each command does; `judge`: whether it may.
//! - `connection`: one client; `replies`: the place of a refusal among the replies.
//! - `nodes`: one listener for each server of a Cluster; `redirects` and `cluster_map`: their addresses.
//! - `ledger`: counts, log, report, metrics.

mod checks;
mod cluster_map;
mod connection;
mod expiry;
mod framing;
mod judge;
mod ledger;
mod nodes;
mod proxy;
mod redirects;
mod replies;
mod rules;
mod session;
mod upstream;
mod writes;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hob_store::Address;
use tokio::sync::Semaphore;

pub use judge::{Slots, UndeclaredScriptKeys};
pub use proxy::{Error, Proxy, Totals};

use judge::{Finding, Judge};
use ledger::{Ledger, Origin, When};
use rules::Rules;

/// What the proxy does about a command that breaks the schemas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Counts it.
    Observe,
    /// Counts and logs it.
    Warn,
    /// Counts and logs it, and refuses it if its words show that it breaks the schemas.
    Enforce,
}

/// How to run a proxy.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address for clients. With a Cluster, it is the address for the first server; the others get the following ports,
    /// or free ones if the port is 0.
    pub listen: SocketAddr,
    pub upstream: Address,
    pub mode: Mode,
    pub slots: Slots,
    pub undeclared_script_keys: UndeclaredScriptKeys,
    /// How long after a write a key is read.
    pub grace: Duration,
    /// Maximum number of keys to read per second and server.
    pub reads_per_second: u32,
    /// Maximum number of clients.
    pub max_connections: usize,
}

/// What all connections share.
#[derive(Debug)]
struct Shared {
    options: Options,
    judge: Judge,
    rules: Rules,
    ledger: Ledger,
    permits: Arc<Semaphore>,
}

impl Shared {
    fn record(&self, when: When, origin: Origin<'_>, finding: &Finding) {
        self.ledger.record(&self.judge.catalog, self.options.mode, when, origin, finding);
    }
}

/// The requests in these bytes when they arrive in pieces of this size, and whether they end in a mistake of the protocol. For
/// fuzzing.
#[doc(hidden)]
pub fn requests_in_pieces(bytes: &[u8], piece: usize) -> (Vec<Vec<Vec<u8>>>, bool) {
    framing::requests_in_pieces(bytes, piece)
}
