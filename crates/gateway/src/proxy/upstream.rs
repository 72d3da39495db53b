//! Upstreams: how many requests each has in flight, and which are available.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use http::Uri;
use http::uri::{Authority, Scheme};
use parking_lot::Mutex;
use tokio_rustls::TlsConnector;

use super::pool::{ConnectionPool, Target};

/// After this many failures in a row, an upstream gets no requests for `EJECTED_FOR`.
const MAX_FAILURES: u32 = 3;
const EJECTED_FOR: Duration = Duration::from_secs(5);

/// The minimum time between two log lines about failed requests: an unavailable upstream fails all of them.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// A server that requests are forwarded to.
#[derive(Debug)]
pub(crate) struct Upstream {
    address: String,
    authority: Authority,
    pub(crate) target: Target,
    pub(crate) pool: Arc<ConnectionPool>,
    in_flight: AtomicU32,
    failures: AtomicU32,
    /// In milliseconds since `Upstreams::created`.
    ejected_until_ms: AtomicU64,
    /// The result of the last health check.
    unhealthy: AtomicBool,
    failure_log: Mutex<FailureLog>,
}

/// The log lines about failed requests.
#[derive(Debug, Default)]
struct FailureLog {
    logged_at: Option<Instant>,
    /// Failures since then without a line.
    suppressed: u64,
}

/// All upstreams.
#[derive(Debug)]
pub(crate) struct Upstreams {
    all: Vec<Arc<Upstream>>,
    created: Instant,
    next: AtomicUsize,
}

/// A request in flight; counted until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Upstream>);

/// An invalid upstream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid upstream {0:?}: expected http://host:port or https://host without a path")]
pub(crate) struct BadUpstream(String);

impl Upstreams {
    pub(crate) fn new(addresses: &[String], tls: &TlsConnector) -> Result<Self, BadUpstream> {
        let all =
            addresses.iter().map(|address| parse(address, tls).map(Arc::new)).collect::<Result<_, _>>()?;
        Ok(Self { all, created: Instant::now(), next: AtomicUsize::new(0) })
    }

    /// The upstreams at these addresses. One that stays keeps its connections, failures and health.
    pub(crate) fn with_addresses(
        &self,
        addresses: &[String],
        tls: &TlsConnector,
    ) -> Result<Self, BadUpstream> {
        let keep_or_add = |address: &String| match self.all.iter().find(|known| known.address == *address) {
            Some(known) => Ok(Arc::clone(known)),
            None => parse(address, tls).map(Arc::new),
        };
        let all = addresses.iter().map(keep_or_add).collect::<Result<_, _>>()?;
        Ok(Self { all, created: self.created, next: AtomicUsize::new(0) })
    }

    /// The least busy available upstream that was not tried yet. If none is available, the least busy one that was not
    /// tried.
    pub(crate) fn pick(&self, tried: &[InFlight]) -> Option<InFlight> {
        let is_untried =
            |upstream: &&Arc<Upstream>| !tried.iter().any(|other| Arc::ptr_eq(&other.0, upstream));
        // Round robin among equally busy ones.
        let next = self.next.fetch_add(1, Relaxed);
        let rotated =
            || (0..self.all.len()).map(|at| &self.all[(next + at) % self.all.len()]).filter(is_untried);
        let requests_in_flight = |upstream: &&Arc<Upstream>| upstream.in_flight.load(Relaxed);
        let now_ms = self.now_ms();
        let available =
            rotated().filter(|upstream| upstream.is_available(now_ms)).min_by_key(requests_in_flight);
        let picked = available.or_else(|| rotated().min_by_key(requests_in_flight))?;
        picked.in_flight.fetch_add(1, Relaxed);
        Some(InFlight(Arc::clone(picked)))
    }

    pub(crate) fn record_success(&self, picked: &InFlight) {
        picked.0.failures.store(0, Relaxed);
    }

    pub(crate) fn record_failure(&self, picked: &InFlight) {
        if picked.0.failures.fetch_add(1, Relaxed) + 1 >= MAX_FAILURES {
            picked.0.ejected_until_ms.store(self.now_ms() + EJECTED_FOR.as_millis() as u64, Relaxed);
        }
    }

    pub(crate) fn all(&self) -> &[Arc<Upstream>] {
        &self.all
    }

    fn now_ms(&self) -> u64 {
        self.created.elapsed().as_millis() as u64
    }
}

impl Upstream {
    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Records the result of a health check.
    pub(crate) fn set_health(&self, health: Result<(), String>) {
        let was_unhealthy = self.unhealthy.swap(health.is_err(), Relaxed);
        match health {
            Err(reason) if !was_unhealthy => {
                tracing::warn!(upstream = %self.authority, reason, "upstream became unhealthy");
            }
            Ok(()) if was_unhealthy => {
                tracing::info!(upstream = %self.authority, "upstream is healthy again");
            }
            _ => {}
        }
    }

    /// Logs why a request failed.
    pub(crate) fn log_failure(&self, reason: &str) {
        let mut log = self.failure_log.lock();
        if log.logged_at.is_some_and(|at| at.elapsed() < LOG_INTERVAL) {
            log.suppressed += 1;
            return;
        }
        let FailureLog { suppressed, .. } =
            std::mem::replace(&mut *log, FailureLog { logged_at: Some(Instant::now()), suppressed: 0 });
        drop(log);
        tracing::warn!(upstream = %self.authority, reason, suppressed, "upstream request failed");
    }

    fn is_available(&self, now_ms: u64) -> bool {
        !self.unhealthy.load(Relaxed) && self.ejected_until_ms.load(Relaxed) <= now_ms
    }
}

impl InFlight {
    pub(crate) fn upstream(&self) -> &Upstream {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

/// Checks the address of an upstream.
pub(crate) fn check_upstream(address: &str) -> Result<(), BadUpstream> {
    parse_address(address).map(drop)
}

/// The scheme, the host and port as they are written, and the port.
fn parse_address(address: &str) -> Result<(Scheme, Authority, u16), BadUpstream> {
    let bad = || BadUpstream(address.to_owned());
    let uri: Uri = address.parse().map_err(|_| bad())?;
    let (scheme, default_port) = match uri.scheme() {
        Some(scheme) if *scheme == Scheme::HTTP => (scheme.clone(), 80),
        Some(scheme) if *scheme == Scheme::HTTPS => (scheme.clone(), 443),
        _ => return Err(bad()),
    };
    let bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
    let authority = uri.authority().filter(|authority| bare && !authority.as_str().contains('@'));
    let authority = authority.cloned().ok_or_else(bad)?;
    // `port_u16` is also `None` for a number that is too large.
    let has_port = authority.as_str() != authority.host();
    let port = if has_port { authority.port_u16().filter(|port| *port > 0) } else { Some(default_port) };
    Ok((scheme, authority, port.ok_or_else(bad)?))
}

fn parse(address: &str, tls: &TlsConnector) -> Result<Upstream, BadUpstream> {
    let (scheme, authority, port) = parse_address(address)?;
    let tls = (scheme == Scheme::HTTPS).then(|| tls.clone());
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    Ok(Upstream {
        address: address.to_owned(),
        target: Target { host, port, tls },
        authority,
        pool: Arc::default(),
        in_flight: AtomicU32::new(0),
        failures: AtomicU32::new(0),
        ejected_until_ms: AtomicU64::new(0),
        unhealthy: AtomicBool::new(false),
        failure_log: Mutex::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_all(addresses: &[String]) -> Result<Upstreams, BadUpstream> {
        Upstreams::new(addresses, &super::super::forward::connector(None).unwrap())
    }

    fn upstreams(count: u32) -> Upstreams {
        let addresses: Vec<String> = (0..count).map(|number| format!("http://10.0.0.{number}:80")).collect();
        parse_all(&addresses).unwrap()
    }

    #[test]
    fn least_busy_upstream_is_picked() {
        let upstreams = upstreams(3);
        let mut busy: Vec<InFlight> = (0..3).map(|_| upstreams.pick(&[]).unwrap()).collect();
        let authorities: std::collections::BTreeSet<&str> =
            busy.iter().map(|picked| picked.upstream().authority().as_str()).collect();
        assert_eq!(authorities.len(), 3);
        // The idle upstream is picked, however often it was picked before.
        for at in [1, 1, 0, 2] {
            let idle = busy.remove(at);
            let authority = idle.upstream().authority().clone();
            drop(idle);
            let next = upstreams.pick(&[]).unwrap();
            assert_eq!(next.upstream().authority(), &authority);
            busy.insert(at, next);
        }
    }

    #[test]
    fn failing_upstream_is_skipped_while_another_is_available() {
        let upstreams = upstreams(2);
        let failing = upstreams.pick(&[]).unwrap();
        (0..MAX_FAILURES).for_each(|_| upstreams.record_failure(&failing));
        for _ in 0..10 {
            let picked = upstreams.pick(&[]).unwrap();
            assert_ne!(picked.upstream().authority(), failing.upstream().authority());
        }
        let other = upstreams.pick(&[]).unwrap();
        assert!(upstreams.pick(std::slice::from_ref(&other)).is_some());
        assert!(upstreams.pick(&[failing, other]).is_none());
    }

    #[test]
    fn unchanged_upstream_keeps_its_state() {
        let before = upstreams(2);
        before.all()[1].set_health(Err("status 503".to_owned()));
        let tls = super::super::forward::connector(None).unwrap();
        let after = before
            .with_addresses(&["http://10.0.0.1:80", "http://10.0.0.9:80"].map(str::to_owned), &tls)
            .unwrap();
        assert!(Arc::ptr_eq(&before.all()[1], &after.all()[0]));
        assert_eq!(after.pick(&[]).unwrap().upstream().authority().as_str(), "10.0.0.9:80");
    }

    #[test]
    fn upstreams_with_a_path_are_refused() {
        for text in ["", "localhost:3000", "http://a/path", "https://a?x", "http://u@a", "ftp://a"] {
            assert!(parse_all(&[text.to_owned()]).is_err(), "{text:?}");
        }
        let parse = parse_all(&["http://localhost:3000/", "https://[::1]"].map(str::to_owned)).unwrap();
        let targets: Vec<String> =
            parse.all().iter().map(|upstream| format!("{:?}", upstream.target)).collect();
        assert_eq!(targets, ["localhost:3000", "::1:443"]);
    }
}
