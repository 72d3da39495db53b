//! Whom requests may go to: this machine, and hosts that the configuration names. Nobody floods a stranger.

use std::net::{IpAddr, SocketAddr};

use rustls_pki_types::ServerName;
use tokio::net::lookup_host;

use super::Route;
use super::connection::{Destination, tls};
use crate::plan::{Origin, Plan, Scheme};

/// The hosts that may be tested, and how fast.
#[derive(Clone, Debug, Default)]
pub struct Targets {
    /// Hosts beside this machine, as URLs name them.
    pub hosts: Vec<String>,
    /// The most requests per second to them.
    pub most_rate: f64,
}

/// Why a plan may not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("{0} is neither this machine nor among the hosts that may be tested")]
    Host(String),
    #[error("the plan wants {planned} requests per second, more than the {most} that are allowed to {host}")]
    Rate { host: String, planned: u64, most: u64 },
    #[error("{host} has no address: {reason}")]
    Unresolved { host: String, reason: String },
    #[error("{0}")]
    Tls(String),
}

impl Targets {
    /// Whether a plan may run, without looking up its hosts.
    pub fn check(&self, plan: &Plan, run_type: usize) -> Result<(), Refused> {
        for origin in plan.origins.iter().filter(|origin| !is_here(&origin.host)) {
            if !self.hosts.iter().any(|host| host.eq_ignore_ascii_case(&origin.host)) {
                return Err(Refused::Host(origin.host.clone()));
            }
            let planned = plan.planned_rate(run_type);
            if planned > self.most_rate {
                let (planned, most) = (planned.ceil() as u64, self.most_rate as u64);
                return Err(Refused::Rate { host: origin.host.clone(), planned, most });
            }
        }
        Ok(())
    }

    /// Looks up where the plan's requests go, and whether they may.
    pub async fn resolve(&self, plan: &Plan, run_type: usize) -> Result<Route, Refused> {
        self.check(plan, run_type)?;
        let mut destinations = Vec::new();
        for origin in &plan.origins {
            destinations.push(resolve(origin, plan.ca.as_deref()).await?);
        }
        let outside = destinations.iter().any(|destination| !destination.address.ip().is_loopback());
        Ok(Route { destinations, most_rate: outside.then_some(self.most_rate) })
    }
}

/// Whether a host is this machine by its very name: nobody's DNS has a say in it.
fn is_here(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

async fn resolve(origin: &Origin, ca: Option<&str>) -> Result<Destination, Refused> {
    let unresolved = |reason: String| Refused::Unresolved { host: origin.host.clone(), reason };
    let found = lookup_host((origin.host.as_str(), origin.port)).await;
    let found: Vec<SocketAddr> = found.map_err(|error| unresolved(error.to_string()))?.collect();
    // Most servers on a developer's machine listen on IPv4 only.
    let address = found.iter().find(|address| address.is_ipv4()).or(found.first());
    let address = *address.ok_or_else(|| unresolved("none was found".into()))?;
    if is_here(&origin.host) && !address.ip().is_loopback() {
        return Err(Refused::Host(origin.host.clone()));
    }
    let secured = match origin.scheme {
        Scheme::Http => None,
        Scheme::Https => {
            let name = ServerName::try_from(origin.host.clone());
            let name = name.map_err(|_| Refused::Tls(format!("{} is no name for TLS", origin.host)))?;
            Some((tls(ca).map_err(Refused::Tls)?, name))
        }
    };
    Ok(Destination { address, tls: secured })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::Load;

    fn plan(url: &str, rate: f64) -> Plan {
        Plan::quick(url, Load::rate(rate, Duration::from_secs(1), 10)).unwrap()
    }

    #[test]
    fn strangers_are_left_in_peace() {
        let targets = Targets { hosts: vec!["staging.example".into()], most_rate: 100.0 };
        for url in ["http://127.0.0.1:1/", "http://localhost/", "http://[::1]/", "http://staging.example/x"] {
            assert_eq!(targets.check(&plan(url, 50.0), 0), Ok(()), "{url}");
        }
        for url in ["http://example.com/", "http://10.0.0.1/", "http://localhost.evil.example/"] {
            assert!(matches!(targets.check(&plan(url, 50.0), 0), Err(Refused::Host(_))), "{url}");
        }
        assert!(matches!(
            targets.check(&plan("http://staging.example/", 101.0), 0),
            Err(Refused::Rate { planned: 101, most: 100, .. })
        ));
        assert_eq!(targets.check(&plan("http://127.0.0.1/", 9000.0), 0), Ok(()));
    }
}
