//! "Test now": runs the check of a monitor that is not saved yet.

use std::time::Duration;

use hob_web::components::{Badge, Quantity, Tone, Unit};

use crate::monitor::MonitorSpec;
use crate::monitor::check::{CheckOutcome, FieldError, Observation};
use crate::monitor::secrets;
use crate::uptime::Uptime;

/// The person who tests waits for the answer.
const MAX_TIMEOUT: Duration = Duration::from_secs(15);

/// What a test has found.
pub(super) struct Trial {
    pub(super) badge: Badge,
    pub(super) summary: String,
    pub(super) phases: Vec<(&'static str, Quantity)>,
    pub(super) assertions: Vec<(Badge, String, String)>,
}

impl Trial {
    /// Checks the target once. The result is not stored.
    pub(super) async fn run(uptime: &Uptime, spec: &MonitorSpec) -> Result<Self, Vec<FieldError>> {
        let (check, assertions) = spec.validate()?;
        secrets::check_monitor(&uptime.inner.context.secrets, &check)?;
        let timeout = Duration::from_secs(u64::from(spec.timeout_s.unwrap_or(10))).min(MAX_TIMEOUT);
        let observation = uptime.inner.probe.run(&check, &assertions, timeout).await;
        Ok(Self::new(&observation))
    }

    fn new(observation: &Observation) -> Self {
        let (badge, summary) = match &observation.outcome {
            CheckOutcome::Ok { status_code: 0 } => (Tone::Good.badge("up"), String::new()),
            CheckOutcome::Ok { status_code } => (Tone::Good.badge("up"), format!("status {status_code}")),
            CheckOutcome::Failed(failure) => (Tone::Bad.badge("down"), failure.to_string()),
        };
        let phases = &observation.phases;
        let named = [
            ("Name lookup", phases.dns),
            ("Connect", phases.connect),
            ("TLS", phases.tls),
            ("First byte", phases.first_byte),
            ("Total", phases.total),
        ];
        let millis = |took: Duration| Unit::Millis.of(took.as_secs_f64() * 1000.0);
        let phases = named.into_iter().filter_map(|(name, took)| Some((name, millis(took?)))).collect();
        let result =
            |holds: bool| if holds { Tone::Good.badge("holds") } else { Tone::Bad.badge("does not hold") };
        let assertions = observation.assertions.iter();
        let assertions =
            assertions.map(|one| (result(one.holds), one.text.clone(), one.found.clone())).collect();
        Self { badge, summary, phases, assertions }
    }
}
