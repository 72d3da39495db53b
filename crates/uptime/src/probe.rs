//! Runs checks, and times what each part of them took.
//!
//! Every check makes a connection of its own: it should see what a new visitor sees, and a connection that was
//! kept open says nothing about the name, the port and the certificate. For the same reason TLS sessions are not
//! resumed. Only names are remembered, for as long as their records allow and for a minute at most.
//!
//! A target is not trusted. What it sends is bounded in time and size, and the address that is connected to is the
//! address that was judged by [`Targets`], after every redirect again.

mod connect;
mod dns;
mod fault;
mod http;
mod limits;
mod names;
pub(crate) mod network;
mod post;
mod redirect;
mod tls;
mod trace;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hob_service::config::Secrets;

use crate::monitor::assertion::{self, Assertion, Facts};
use crate::monitor::check::{AssertionResult, Check, Failure, FailureClass, Observation, Outcome};

use names::Names;
use tls::Handshakes;
use trace::Trace;

pub use http::Answer;
pub use limits::{Limits, Targets};
pub(crate) use post::Post;

/// What runs checks. Clones are handles to the same.
#[derive(Clone, Debug)]
pub struct Probe {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    limits: Limits,
    secrets: Secrets,
    names: Names,
    handshakes: Handshakes,
}

/// What a check found, before anybody judged it.
#[derive(Debug, Default)]
struct Sight {
    answer: Option<Answer>,
}

impl Probe {
    #[must_use]
    pub fn new(limits: Limits, secrets: Secrets) -> Self {
        let names = Names::new(limits.name_server);
        let handshakes = Handshakes::new(&limits.roots);
        Self { inner: Arc::new(Inner { limits, secrets, names, handshakes }) }
    }

    /// Runs a check, and judges what it found. Takes `timeout` at most.
    pub async fn run(&self, check: &Check, assertions: &[Assertion], timeout: Duration) -> Observation {
        let started_at = SystemTime::now();
        let mut trace = Trace::begin(timeout);
        let looked = tokio::time::timeout(timeout, self.look(check, assertions, &mut trace)).await;
        trace.phases.total = Some(trace.begun.elapsed());
        let seen = looked.unwrap_or_else(|_| Err(trace.out_of_time(timeout)));
        let (outcome, assertions) = match seen {
            Ok(sight) => judge(&sight, assertions, &trace),
            Err(failure) => (Outcome::Failed(failure), Vec::new()),
        };
        Observation {
            started_at,
            phases: trace.phases,
            outcome,
            certificate_days: trace.certificate_days,
            address: trace.address,
            assertions,
        }
    }

    async fn look(
        &self,
        check: &Check,
        assertions: &[Assertion],
        trace: &mut Trace,
    ) -> Result<Sight, Failure> {
        match check {
            Check::Http(check) => {
                let answer = self.http(check, assertions, trace).await?;
                return Ok(Sight { answer: Some(answer) });
            }
            Check::Tcp(endpoint) => drop(self.connect(&endpoint.host, endpoint.port, trace).await?),
            Check::Certificate(endpoint) => self.certificate(endpoint, trace).await?,
            Check::Dns(check) => self.dns(check, trace).await?,
            Check::Heartbeat(_) => {
                let message = "a heartbeat has nothing to be looked at";
                return Err(Failure::new(FailureClass::Misconfigured, message));
            }
        }
        Ok(Sight::default())
    }
}

fn judge(sight: &Sight, assertions: &[Assertion], trace: &Trace) -> (Outcome, Vec<AssertionResult>) {
    let answer = sight.answer.as_ref();
    let facts = Facts {
        status: answer.map(Answer::status),
        headers: answer.map(|answer| &answer.headers),
        body: answer.map(|answer| answer.body.as_slice()),
        latency: trace.phases.total.unwrap_or_default(),
        certificate_days: trace.certificate_days,
        mask: answer.map(|answer| &answer.mask),
    };
    let results = assertion::judge(assertions, &facts);
    let wrong = match results.iter().find(|result| !result.holds) {
        Some(result) => Some(format!("{}: found {}", result.text, result.found)),
        None => unwelcome(facts.status, assertions),
    };
    let failure = wrong.map(|message| Failure::new(FailureClass::Assertion, message));
    let outcome = match (failure, facts.status) {
        (None, status) => Outcome::Ok { status_code: status.unwrap_or(0) },
        (Some(failure), Some(status)) => Outcome::Failed(failure.with_status(status)),
        (Some(failure), None) => Outcome::Failed(failure),
    };
    (outcome, results)
}

/// Where no assertion says which status is good, one from 400 on is not.
fn unwelcome(status: Option<u16>, assertions: &[Assertion]) -> Option<String> {
    let status = status.filter(|status| *status >= 400)?;
    (!assertions.iter().any(Assertion::reads_status)).then(|| format!("the status is {status}"))
}
