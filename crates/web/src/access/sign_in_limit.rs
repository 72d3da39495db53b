//! The rate limit of sign-in attempts.

use std::net::IpAddr;

use hob_store::Store;
use hob_store::limit::{Algorithm, Decision, Rule, Window};

use crate::Error;
use hob_service::keys::{Client, Keys};

/// Enough for typing mistakes, too few to guess a token.
const LIMIT: u32 = 10;
const PER_MINUTES: u64 = 10;

#[derive(Debug)]
pub(crate) struct SignInLimit {
    store: Store,
    keys: Keys,
    rule: Rule,
}

impl SignInLimit {
    pub(crate) fn new(store: &Store, keys: Keys) -> Result<Self, Error> {
        let window = Window::new(LIMIT, std::time::Duration::from_secs(60 * PER_MINUTES));
        Ok(Self { store: store.clone(), keys, rule: Rule::new(Algorithm::Gcra, vec![window])? })
    }

    /// Counts an attempt and decides whether it is allowed.
    pub(crate) async fn take(&self, client: IpAddr) -> Result<Decision, hob_store::Error> {
        let id = Client::new(network(client)).map_err(|error| hob_store::Error::Misuse(error.to_string()))?;
        self.rule.take(&self.store, &[self.keys.sign_in(&id).as_bytes()], 1).await
    }
}

/// The network that counts as one client. IPv6 clients usually have a /64.
fn network(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            std::net::Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).to_string()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_network_is_one_client() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), of("2001:db8:1:2::1"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.7"), "192.0.2.7");
    }
}
