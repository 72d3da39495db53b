//! Runs checks and measures their phases.
//!
//! Every check opens a new connection, to see what a new visitor sees: a reused connection does not test the name, the port
//! and the certificate. For the same reason TLS sessions are not resumed. Only DNS records are cached, for as long as
//! their TTL allows and at most a minute.
//!
//! A target is not trusted. Its response is bounded in time and size. The probe connects to the same address that
//! [`Outbound`](hob_net::Outbound) has allowed, and checks it again after every redirect.

mod connect;
mod dns;
mod failure;
mod http;
mod limits;
pub(crate) mod network;
mod post;
mod redirect;
mod resolver;
mod tls;
mod trace;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hob_service::config::Secrets;
use parking_lot::RwLock;

use crate::monitor::assertion::{self, Assertion, Facts};
use crate::monitor::check::{
    AssertionResult, CertificateExpiry, Check, CheckOutcome, Failure, FailureClass, Observation,
};

use resolver::NameResolver;
use tls::TlsConnectors;
use trace::Trace;

pub use http::HttpResponse;
pub use limits::Limits;
pub(crate) use post::Post;

/// Runs checks. Clones share one state.
#[derive(Clone, Debug)]
pub struct Probe {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    secrets: Secrets,
    /// Replaced as a whole when the configuration is reloaded.
    settings: RwLock<Arc<Settings>>,
}

/// The limits, and what is built from them.
#[derive(Debug)]
struct Settings {
    limits: Limits,
    resolver: NameResolver,
    tls: TlsConnectors,
}

impl Settings {
    fn new(limits: Limits) -> Arc<Self> {
        let resolver = NameResolver::new(limits.name_server);
        let tls = TlsConnectors::new(&limits.roots);
        Arc::new(Self { limits, resolver, tls })
    }
}

impl Probe {
    #[must_use]
    pub fn new(limits: Limits, secrets: Secrets) -> Self {
        Self { inner: Arc::new(Inner { secrets, settings: RwLock::new(Settings::new(limits)) }) }
    }

    /// Replaces the limits for checks that start from now on. Cached names are looked up again.
    pub fn replace(&self, limits: Limits) {
        *self.inner.settings.write() = Settings::new(limits);
    }

    fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.inner.settings.read())
    }

    /// Runs a check and evaluates its assertions. Takes at most `timeout`.
    pub async fn run(&self, check: &Check, assertions: &[Assertion], timeout: Duration) -> Observation {
        let started_at = SystemTime::now();
        let mut trace = Trace::begin(timeout);
        let response = tokio::time::timeout(timeout, self.run_check(check, assertions, &mut trace)).await;
        trace.phases.total = Some(trace.started.elapsed());
        let response = response.unwrap_or_else(|_| Err(trace.timeout_failure(timeout)));
        let (outcome, assertions) = match response {
            Ok(response) => evaluate(response.as_ref(), assertions, &trace),
            Err(failure) => (CheckOutcome::Failed(failure), Vec::new()),
        };
        Observation {
            started_at,
            phases: trace.phases,
            outcome,
            certificate: trace.certificate,
            address: trace.address,
            assertions,
        }
    }

    /// Runs a check. Only HTTP has a response to evaluate.
    async fn run_check(
        &self,
        check: &Check,
        assertions: &[Assertion],
        trace: &mut Trace,
    ) -> Result<Option<HttpResponse>, Failure> {
        match check {
            Check::Http(check) => return self.http(check, assertions, trace).await.map(Some),
            Check::Tcp(endpoint) => drop(self.connect(&endpoint.host, endpoint.port, trace).await?),
            Check::Certificate(endpoint) => self.certificate(endpoint, trace).await?,
            Check::Dns(check) => self.dns(check, trace).await?,
            Check::Heartbeat(_) => {
                let message = "a heartbeat monitor cannot be checked on demand: it waits for reports from the monitored job";
                return Err(Failure::new(FailureClass::Misconfigured, message));
            }
        }
        Ok(None)
    }
}

fn evaluate(
    response: Option<&HttpResponse>,
    assertions: &[Assertion],
    trace: &Trace,
) -> (CheckOutcome, Vec<AssertionResult>) {
    let facts = Facts {
        status: response.map(HttpResponse::status),
        headers: response.map(|response| &response.headers),
        body: response.map(|response| response.body.as_slice()),
        latency: trace.phases.total.unwrap_or_default(),
        certificate_days: trace.certificate.map(CertificateExpiry::days_left),
        mask: response.map(|response| &response.mask),
    };
    let results = assertion::evaluate(assertions, &facts);
    let problem = match results.iter().find(|result| !result.holds) {
        Some(result) => Some(format!("{}: found {}", result.text, result.found)),
        None => status_failure(facts.status, assertions),
    };
    let failure = problem.map(|message| Failure::new(FailureClass::Assertion, message));
    let outcome = match (failure, facts.status) {
        (None, status) => CheckOutcome::Ok { status_code: status.unwrap_or(0) },
        (Some(failure), Some(status)) => CheckOutcome::Failed(failure.with_status(status)),
        (Some(failure), None) => CheckOutcome::Failed(failure),
    };
    (outcome, results)
}

/// Unless an assertion tests the status, 400 and above is a failure.
fn status_failure(status: Option<u16>, assertions: &[Assertion]) -> Option<String> {
    let status = status.filter(|status| *status >= 400)?;
    (!assertions.iter().any(Assertion::reads_status)).then(|| format!("the status is {status}"))
}
