//! Limits what a client may try on status pages: wrong passwords, and subscriptions. The limit holds across nodes; while the
//! store is away, each node limits by itself.

use std::net::IpAddr;
use std::time::Duration;

use hob_store::limit::{Algorithm, Rule, Window};
use hob_store::repair::{self, KeyType};
use hob_units::AuthThrottle;

use crate::keys::Client;
use crate::uptime::Uptime;

/// A reader does not wait longer for the store.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Attempts of a client at once, on all nodes together.
const MAX_ATTEMPTS: u32 = 10;
/// The time after which a blocked client gets another attempt.
const REFILL: Duration = Duration::from_secs(60);

/// The attempts of all clients.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    passwords: AuthThrottle,
    subscriptions: AuthThrottle,
}

/// What is tried.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Attempt<'a> {
    Password(&'a str),
    Subscription(&'a str),
}

impl Attempts {
    /// How long the client has to wait; `None` if it may try now.
    pub(crate) async fn blocked_for(
        &self,
        uptime: &Uptime,
        client: IpAddr,
        attempt: Attempt<'_>,
    ) -> Option<Duration> {
        if let Some(wait) = self.throttle(attempt).blocked_for(client) {
            return Some(wait);
        }
        let left = take(uptime, client, attempt, 0).await?;
        (left == 0).then_some(REFILL)
    }

    /// Counts an attempt.
    pub(crate) async fn record(&self, uptime: &Uptime, client: IpAddr, attempt: Attempt<'_>) {
        let (Attempt::Password(text) | Attempt::Subscription(text)) = attempt;
        self.throttle(attempt).record_failure(client, text.as_bytes());
        take(uptime, client, attempt, 1).await;
    }

    fn throttle(&self, attempt: Attempt<'_>) -> &AuthThrottle {
        match attempt {
            Attempt::Password(_) => &self.passwords,
            Attempt::Subscription(_) => &self.subscriptions,
        }
    }
}

/// Counts an attempt in the store, or with a cost of 0 only reads: how many are left. `None` if the store does not answer, or
/// another client has changed the key.
async fn take(uptime: &Uptime, client: IpAddr, attempt: Attempt<'_>, cost: u32) -> Option<u32> {
    let window = Window::new(MAX_ATTEMPTS, REFILL * MAX_ATTEMPTS);
    let rule = Rule::new(Algorithm::Gcra, vec![window]).ok()?;
    let client = Client::new(network(client)).ok()?;
    let keys = uptime.schedule().keys();
    let key = match attempt {
        Attempt::Password(_) => keys.passwords(&client),
        Attempt::Subscription(_) => keys.subscriptions(&client),
    };
    let store = uptime.inner.context.store.with_deadline(TIMEOUT);
    match rule.take(&store, std::slice::from_ref(&key), cost).await {
        Ok(decision) => Some(decision.quota().remaining),
        Err(error) => {
            if error.is_foreign_value() {
                // The next attempt finds no count.
                let _ = repair::repair(&store, &error, &[(key, KeyType::String)]).await;
            }
            None
        }
    }
}

/// The network that counts as one client: an IPv4 address, or the /64 of an IPv6 address.
fn network(client: IpAddr) -> String {
    match client.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{a:x}-{b:x}-{c:x}-{d:x}")
        }
    }
}
