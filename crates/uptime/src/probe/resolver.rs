//! Resolves names to addresses.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hob_net::{AddressDenied, Outbound};
use url::Host;

use crate::monitor::check::{Failure, FailureClass};

/// The longest that a record is cached, whatever its TTL.
const MAX_CACHED: Duration = Duration::from_secs(60);

/// The longest that a missing name is cached.
const MAX_ABSENCE_CACHED: Duration = Duration::from_secs(1);

/// Concurrent lookups.
const MAX_LOOKUPS: usize = 1024;

/// Addresses of a name that are tried.
const MAX_ADDRESSES: usize = 8;

pub(super) struct NameResolver {
    cached: Option<TokioResolver>,
    uncached: Option<TokioResolver>,
}

impl NameResolver {
    pub(super) fn new(server: Option<SocketAddr>) -> Self {
        Self { cached: open(server, cached_options), uncached: open(server, uncached_options) }
    }

    /// The allowed addresses of a host. A host that is an address is not looked up.
    pub(super) async fn addresses<S: AsRef<str>>(
        &self,
        host: &Host<S>,
        outbound: &Outbound,
    ) -> Result<Vec<IpAddr>, Failure> {
        let found = match host {
            Host::Ipv4(address) => vec![IpAddr::V4(*address)],
            Host::Ipv6(address) => vec![IpAddr::V6(*address)],
            Host::Domain(name) => self.lookup(name.as_ref()).await?,
        };
        let mut allowed = outbound.allowed(found).map_err(forbidden)?;
        if allowed.is_empty() {
            return Err(Failure::new(FailureClass::Name, "the name has no address"));
        }
        allowed.truncate(MAX_ADDRESSES);
        Ok(allowed)
    }

    async fn lookup(&self, name: &str) -> Result<Vec<IpAddr>, Failure> {
        let resolver = self.cached.as_ref().ok_or_else(no_resolver)?;
        let found = resolver.lookup_ip(name).await.map_err(|error| failure(&error))?;
        Ok(found.iter().collect())
    }

    /// A resolver without a cache.
    pub(super) fn uncached(&self) -> Result<&TokioResolver, Failure> {
        self.uncached.as_ref().ok_or_else(no_resolver)
    }
}

/// A resolver that queries one server, without a cache.
pub(super) fn resolver_for(server: SocketAddr) -> Result<TokioResolver, Failure> {
    open(Some(server), uncached_options).ok_or_else(no_resolver)
}

fn cached_options(options: &mut ResolverOpts) {
    options.positive_max_ttl = Some(MAX_CACHED);
    options.negative_max_ttl = Some(MAX_ABSENCE_CACHED);
}

fn uncached_options(options: &mut ResolverOpts) {
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
}

/// `None` if the system has no name servers configured: names cannot be resolved, but addresses work.
fn open(server: Option<SocketAddr>, tune: fn(&mut ResolverOpts)) -> Option<TokioResolver> {
    let mut builder = match server {
        Some(server) => TokioResolver::builder_with_config(config(server), TokioRuntimeProvider::default()),
        None => TokioResolver::builder_tokio().ok()?,
    };
    let options = builder.options_mut();
    options.max_active_requests = MAX_LOOKUPS;
    tune(options);
    builder.build().ok()
}

/// One server over UDP, and over TCP for large answers.
fn config(server: SocketAddr) -> ResolverConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = server.port();
        connection
    });
    let server = NameServerConfig::new(server.ip(), true, connections.to_vec());
    ResolverConfig::from_parts(None, Vec::new(), vec![server])
}

pub(super) fn failure(error: &NetError) -> Failure {
    let message = match error {
        error if error.is_nx_domain() => "the name does not exist".to_owned(),
        error if error.is_no_records_found() => "the name has no such record".to_owned(),
        NetError::Timeout => "no name server responded in time".to_owned(),
        error => error.to_string(),
    };
    Failure::new(FailureClass::Name, message)
}

#[allow(clippy::needless_pass_by_value, reason = "for `map_err`")]
pub(super) fn forbidden(denied: AddressDenied) -> Failure {
    Failure::new(FailureClass::Forbidden, denied.to_string())
}

fn no_resolver() -> Failure {
    Failure::new(FailureClass::Name, "this system has no name servers configured")
}

impl fmt::Debug for NameResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").finish_non_exhaustive()
    }
}
