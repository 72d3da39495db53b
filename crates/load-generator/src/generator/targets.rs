//! The hosts that may be tested: this machine, and those that the configuration allows. Their addresses must be allowed
//! as well.

use std::net::IpAddr;

use hob_net::{AddressDenied, Outbound, OutboundError};
use rustls_pki_types::ServerName;

use super::ResolvedTargets;
use super::connection::{Destination, tls};
use crate::plan::{Origin, Plan, Scheme};

/// The hosts that may be tested, and the highest rate.
#[derive(Clone, Debug, Default)]
pub struct Targets {
    /// Hosts other than this machine, as they are written in URLs.
    pub hosts: Vec<String>,
    /// Maximum number of requests per second to these hosts.
    pub max_rate: f64,
    /// The addresses that they may have.
    pub outbound: Outbound,
}

/// Why the targets of a plan were rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("{0} may not be tested; add it to `[load] hosts`, or pass --allow {0}")]
    Host(String),
    #[error("the plan sends {planned} requests per second to {host}, but at most {max} are allowed")]
    Rate { host: String, planned: u64, max: u64 },
    #[error(transparent)]
    Denied(#[from] AddressDenied),
    #[error("cannot resolve {host}: {reason}")]
    Unresolved { host: String, reason: String },
    #[error("{0}")]
    Tls(String),
}

impl Targets {
    /// Checks the hosts and the rate of a plan, without DNS lookups.
    pub fn check(&self, plan: &Plan, run_type: usize) -> Result<(), TargetError> {
        for address in plan.origins.iter().filter_map(|origin| origin.host.parse::<IpAddr>().ok()) {
            self.outbound.check(address)?;
        }
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
            destinations.push(resolve(origin, plan.ca.as_deref(), &self.outbound).await?);
        }
        let is_remote = destinations.iter().any(|destination| !destination.address.ip().is_loopback());
        Ok(ResolvedTargets { destinations, max_rate: is_remote.then_some(self.max_rate) })
    }
}

/// Whether a host is this machine by its name alone, without DNS.
fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

async fn resolve(origin: &Origin, ca: Option<&str>, outbound: &Outbound) -> Result<Destination, TargetError> {
    let unresolved = |reason: String| TargetError::Unresolved { host: origin.host.clone(), reason };
    let found = outbound.resolve(&origin.host, origin.port).await.map_err(|error| match error {
        OutboundError::Denied(denied) => TargetError::Denied(denied),
        OutboundError::Resolve { source, .. } => unresolved(source.to_string()),
        error => unresolved(error.to_string()),
    })?;
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

    use hob_net::{InternalAddresses, OutboundPolicy};

    use super::*;
    use crate::plan::LoadModel;

    fn plan(url: &str, rate: f64) -> Plan {
        Plan::quick(url, LoadModel::rate(rate, Duration::from_secs(1), 10)).unwrap()
    }

    #[test]
    fn only_allowed_hosts_may_be_tested() {
        let targets =
            Targets { hosts: vec!["staging.example".into()], max_rate: 100.0, ..Targets::default() };
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

    #[tokio::test]
    async fn denied_address_may_not_be_tested_even_if_its_host_is_allowed() {
        let hosts = ["169.254.169.254", "0.0.0.0"].map(str::to_owned).to_vec();
        let targets = Targets { hosts, max_rate: 100.0, ..Targets::default() };
        for host in ["169.254.169.254", "0.0.0.0"] {
            let plan = plan(&format!("http://{host}/"), 50.0);
            assert!(matches!(targets.check(&plan, 0), Err(TargetError::Denied(_))), "{host}");
        }
        // A server that does not listen on loopback.
        let policy = OutboundPolicy { internal: InternalAddresses::Denied, allow: Vec::new() };
        targets.outbound.replace(policy);
        for host in ["127.0.0.1", "[::1]", "localhost"] {
            let plan = plan(&format!("http://{host}/"), 50.0);
            let refused = targets.resolve(&plan, 0).await.unwrap_err();
            assert!(refused.to_string().contains("loopback addresses are not allowed"), "{host}: {refused}");
        }
    }
}
