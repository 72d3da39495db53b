//! The hosts that may be tested: this machine, and those that the configuration allows.

use std::net::{IpAddr, SocketAddr};

use rustls_pki_types::ServerName;
use tokio::net::lookup_host;

use super::ResolvedTargets;
use super::connection::{Destination, tls};
use crate::plan::{Origin, Plan, Scheme};

/// The hosts that may be tested, and the highest rate.
#[derive(Clone, Debug, Default)]
pub struct Targets {
    /// Hosts other than this machine, as they are written in URLs.
    pub hosts: Vec<String>,
    /// Requests per second to these hosts, at most.
    pub max_rate: f64,
}

/// Why the targets of a plan were rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("{0} may not be tested; add it to `[load] hosts`, or pass --allow {0}")]
    Host(String),
    #[error("the plan sends {planned} requests per second to {host}, but at most {max} are allowed")]
    Rate { host: String, planned: u64, max: u64 },
    #[error("cannot resolve {host}: {reason}")]
    Unresolved { host: String, reason: String },
    #[error("{0}")]
    Tls(String),
}

impl Targets {
    /// Checks the hosts and the rate of a plan, without DNS lookups.
    pub fn check(&self, plan: &Plan, run_type: usize) -> Result<(), TargetError> {
        for origin in plan.origins.iter().filter(|origin| !is_loopback(&origin.host)) {
            if !self.hosts.iter().any(|host| host.eq_ignore_ascii_case(&origin.host)) {
                return Err(TargetError::Host(origin.host.clone()));
            }
            let planned = plan.planned_rate(run_type);
            if planned > self.max_rate {
                let (planned, max) = (planned.ceil() as u64, self.max_rate as u64);
                return Err(TargetError::Rate { host: origin.host.clone(), planned, max });
            }
        }
        Ok(())
    }

    /// Checks a plan and resolves its hosts.
    pub async fn resolve(&self, plan: &Plan, run_type: usize) -> Result<ResolvedTargets, TargetError> {
        self.check(plan, run_type)?;
        let mut destinations = Vec::new();
        for origin in &plan.origins {
            destinations.push(resolve(origin, plan.ca.as_deref()).await?);
        }
        let is_remote = destinations.iter().any(|destination| !destination.address.ip().is_loopback());
        Ok(ResolvedTargets { destinations, max_rate: is_remote.then_some(self.max_rate) })
    }
}

/// Whether a host is this machine by its name alone, without DNS.
fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

async fn resolve(origin: &Origin, ca: Option<&str>) -> Result<Destination, TargetError> {
    let unresolved = |reason: String| TargetError::Unresolved { host: origin.host.clone(), reason };
    let found = lookup_host((origin.host.as_str(), origin.port)).await;
    let found: Vec<SocketAddr> = found.map_err(|error| unresolved(error.to_string()))?.collect();
    // Many servers on a developer's machine listen on IPv4 only.
    let address = found.iter().find(|address| address.is_ipv4()).or(found.first());
    let address = *address.ok_or_else(|| unresolved("no address found".into()))?;
    if is_loopback(&origin.host) && !address.ip().is_loopback() {
        return Err(TargetError::Host(origin.host.clone()));
    }
    let tls_config = match origin.scheme {
        Scheme::Http => None,
        Scheme::Https => {
            let name = ServerName::try_from(origin.host.clone());
            let name = name
                .map_err(|_| TargetError::Tls(format!("{} is not a valid TLS server name", origin.host)))?;
            Some((tls(ca).map_err(TargetError::Tls)?, name))
        }
    };
    Ok(Destination { address, tls: tls_config })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::LoadModel;

    fn plan(url: &str, rate: f64) -> Plan {
        Plan::quick(url, LoadModel::rate(rate, Duration::from_secs(1), 10)).unwrap()
    }

    #[test]
    fn only_allowed_hosts_may_be_tested() {
        let targets = Targets { hosts: vec!["staging.example".into()], max_rate: 100.0 };
        for url in ["http://127.0.0.1:1/", "http://localhost/", "http://[::1]/", "http://staging.example/x"] {
            assert_eq!(targets.check(&plan(url, 50.0), 0), Ok(()), "{url}");
        }
        for url in ["http://example.com/", "http://10.0.0.1/", "http://localhost.evil.example/"] {
            assert!(matches!(targets.check(&plan(url, 50.0), 0), Err(TargetError::Host(_))), "{url}");
        }
        assert!(matches!(
            targets.check(&plan("http://staging.example/", 101.0), 0),
            Err(TargetError::Rate { planned: 101, max: 100, .. })
        ));
        assert_eq!(targets.check(&plan("http://127.0.0.1/", 9000.0), 0), Ok(()));
    }
}
