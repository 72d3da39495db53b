//! Records a result (U2–U6): one script writes the health of the monitor and the views that clients read, and refuses the
//! result of an expired claim.

use std::time::Duration;

use hob_schema::Shard;
use hob_store::epoch::{Fence, MARKER, Outcome};
use hob_store::repair::{self, STORED};
use hob_store::{CLOCK, Reply, Script, Text};

use crate::error::Result;
use crate::keys::{Keys, MonitorId};
use crate::monitor::Monitor;
use crate::monitor::check::{AssertionResult, FailureClass, Observation, Phases};
use crate::schedule::state::{IncidentChange, MonitorHealth, MonitorState};
use crate::schedule::{Claim, HEALTH_LUA, Schedule, millis};

static RECORD: Script = Script::with(&[CLOCK, MARKER, STORED, HEALTH_LUA], include_str!("record/record.lua"));
static CONFIRM: Script = Script::new(include_str!("record/confirm.lua"));

/// A result with the health, change and next check that follow from it.
#[derive(Clone, Debug)]
pub struct JudgedResult<'a> {
    pub claim: &'a Claim,
    pub observation: &'a Observation,
    pub health: MonitorHealth,
    pub change: Option<IncidentChange>,
    pub next_ms: u64,
    /// TTLs of the status and the retry keys.
    pub status_ttl: Duration,
    pub retry_ttl: Duration,
}

/// The outcome of recording a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordOutcome {
    Recorded,
    /// Nothing was written.
    Refused(Refusal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The monitor was deleted or paused.
    Removed,
    Edited,
    /// The claim has expired, or a result was recorded under it.
    Stale,
}

/// A change between up and down that is not in the database yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingChange {
    pub id: MonitorId,
    pub fence: Fence,
    pub change: IncidentChange,
    /// When the change was found.
    pub at_ms: u64,
    pub first_failure_ms: u64,
    pub failures: u32,
    /// `None` after a success.
    pub class: Option<String>,
    pub message: String,
}

/// Whether alerts were sent for an incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alerted {
    Yes,
    NotYet,
}

impl Schedule {
    /// Records a result under its claim.
    pub async fn record(&self, result: &JudgedResult<'_>) -> Result<Outcome<RecordOutcome>> {
        let (claim, health) = (result.claim, &result.health);
        let shard = self.shard_of(&claim.id);
        let [schedule, leases, marker, standing, unsettled] = self.shard_keys(shard);
        let keys = &self.keys;
        let views = [keys.status(&claim.id), keys.incident(&claim.id), keys.retry(&claim.id)];
        let [status, incident, retry] = views;
        let call = RECORD.on(&[schedule, leases, marker, standing, unsettled, status, incident, retry]);
        let call = call.arg(self.epoch(shard)).arg(claim.id.as_str()).arg(claim.generation);
        let call = call.arg(claim.fence.get()).arg(result.next_ms).arg(health.to_string());
        let call = call.arg(result.pending_change().map(|change| change.to_string()).unwrap_or_default());
        let call = call.arg(ttl(result.status_ttl, Keys::STATUS_TTL_MIN, Keys::STATUS_TTL_MAX));
        let retries = (health.state == MonitorState::Suspect).then(|| health.failures.min(1000).to_string());
        let call = call.arg(retries.unwrap_or_default());
        let call = call.arg(ttl(result.retry_ttl, Keys::RETRY_TTL_MIN, Keys::RETRY_TTL_MAX));
        let failures = health.is_down().then(|| health.failures.to_string());
        let call = call.arg(failures.unwrap_or_default()).arg(health.first_failure_ms / 1000);
        let call = call.arg(health.last_failure_ms / 1000).arg(recent_result(health, result.observation));
        let call =
            status_fields(result).into_iter().fold(call, |call, (field, value)| call.arg(field).arg(value));
        let outcome = Outcome::read(self.run(shard, call).await?, |mut reply| match reply.word() {
            "recorded" => {
                while reply.left() > 0 {
                    repair::report("uptime", &reply.next::<Vec<u8>>()?);
                }
                Ok(RecordOutcome::Recorded)
            }
            "removed" => Ok(RecordOutcome::Refused(Refusal::Removed)),
            "edited" => Ok(RecordOutcome::Refused(Refusal::Edited)),
            "stale" => Ok(RecordOutcome::Refused(Refusal::Stale)),
            _ => Err(reply.unexpected()),
        });
        Ok(outcome?)
    }

    /// The changes of a shard that are not in the database yet.
    pub async fn pending_changes(&self, shard: Shard) -> Result<Vec<PendingChange>> {
        let key = self.keys.unsettled(shard);
        let all: Vec<(Vec<u8>, Text)> = self.run(shard, hob_store::cmd("HGETALL").arg(&key)).await?;
        let mut changes = Vec::with_capacity(all.len());
        for (id, Text(text)) in all {
            match std::str::from_utf8(&id).ok().and_then(|id| PendingChange::read(id, &text)) {
                Some(change) => changes.push(change),
                None => {
                    // It would block every other change of the monitor.
                    tracing::warn!(monitor = %String::from_utf8_lossy(&id), "invalid pending state change of a monitor discarded");
                    self.run::<u64>(shard, hob_store::cmd("HDEL").arg(&key).arg(id)).await?;
                }
            }
        }
        Ok(changes)
    }

    /// Confirms that a change is in the database.
    pub async fn confirm_change(&self, change: &PendingChange, alerted: Alerted) -> Result<()> {
        let shard = self.shard_of(&change.id);
        let unsettled = self.keys.unsettled(shard);
        let call = CONFIRM.on(&[unsettled, self.keys.incident(&change.id)]);
        let call = call.arg(change.id.as_str()).arg(change.fence.get());
        let alerted = match alerted {
            Alerted::Yes => "1",
            Alerted::NotYet => "0",
        };
        self.run::<Reply>(shard, call.arg(alerted)).await?;
        Ok(())
    }
}

impl<'a> JudgedResult<'a> {
    /// Applies a result that was complete at `ended_ms` to the health of its monitor.
    #[must_use]
    pub fn new(monitor: &Monitor, claim: &'a Claim, observation: &'a Observation, ended_ms: u64) -> Self {
        let (health, change) = claim.health.after(
            observation.verdict(),
            claim.claimed_ms,
            monitor.thresholds(),
            claim.last_change,
        );
        let ended_ms = ended_ms.max(claim.slot_ms).max(claim.claimed_ms);
        Self {
            claim,
            observation,
            health,
            change,
            next_ms: monitor.next_ms(&health, ended_ms),
            status_ttl: monitor.stale_after(),
            retry_ttl: monitor.retry_ttl(),
        }
    }

    /// The change that this result causes, to be written to the database.
    #[must_use]
    pub fn pending_change(&self) -> Option<PendingChange> {
        let failure = self.observation.failure();
        // A recovery resets the counts, so the outage is described by the health before it.
        let before = self.claim.health;
        let outage = if self.change == Some(IncidentChange::Resolved) { before } else { self.health };
        Some(PendingChange {
            id: self.claim.id.clone(),
            fence: self.claim.fence,
            change: self.change?,
            at_ms: self.health.last_ms,
            first_failure_ms: outage.first_failure_ms,
            failures: outage.failures,
            class: failure.map(|failure| failure.class.to_string()),
            message: failure.map(|failure| failure.message().to_owned()).unwrap_or_default(),
        })
    }
}

/// `fence change at first failures class message`
impl std::fmt::Display for PendingChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { fence, at_ms, first_failure_ms, failures, message, .. } = self;
        let (change, class) = (self.change.as_str(), self.class.as_deref().unwrap_or("-"));
        write!(f, "{fence} {change} {at_ms} {first_failure_ms} {failures} {class} {message}")
    }
}

impl PendingChange {
    fn read(id: &str, text: &str) -> Option<Self> {
        let mut words = text.splitn(7, ' ');
        let fence = Fence::from_u64(words.next()?.parse().ok()?);
        let change = words.next()?.parse().ok()?;
        Some(Self {
            id: MonitorId::new(id).ok()?,
            fence,
            change,
            at_ms: words.next()?.parse().ok()?,
            first_failure_ms: words.next()?.parse().ok()?,
            failures: words.next()?.parse().ok()?,
            class: Some(words.next()?.to_owned()).filter(|class| class != "-"),
            message: words.next()?.to_owned(),
        })
    }
}

/// U2: the fields of the last success, and those of the last result.
fn status_fields(result: &JudgedResult<'_>) -> Vec<(&'static str, String)> {
    let (observation, health) = (result.observation, &result.health);
    let total = observation.phases.total.unwrap_or_default();
    let mut fields = vec![
        ("state", health.state.to_string()),
        ("last_at", health.last_ms.to_string()),
        ("last_us", total.as_micros().to_string()),
        ("phases", phases(&observation.phases)),
        ("assertions", assertions(observation)),
        ("error", observation.failure().map(ToString::to_string).unwrap_or_default()),
    ];
    if let crate::monitor::check::CheckOutcome::Ok { status_code } = observation.outcome {
        fields.push(("status_code", status_code.to_string()));
        fields.push(("latency_ms", millis(total).to_string()));
        fields.push(("checked_at", (health.last_ms / 1000).to_string()));
        // After an edit, the check may not use TLS any more.
        let expiry = observation.certificate.map_or(0, |certificate| certificate.unix_s.max(0));
        fields.push(("certificate_expires_at", expiry.to_string()));
    }
    fields
}

/// A line for each assertion: whether it held, and what was found, which contains no line breaks.
fn assertions(observation: &Observation) -> String {
    let line = |one: &AssertionResult| format!("{}{}", if one.holds { '1' } else { '0' }, one.found);
    observation.assertions.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Microseconds of name lookup, connect, TLS and first byte; `-` if the check did not get there.
fn phases(phases: &Phases) -> String {
    let one = |phase: Option<Duration>| phase.map_or("-".to_owned(), |phase| phase.as_micros().to_string());
    [phases.dns, phases.connect, phases.tls, phases.first_byte].map(one).join(" ")
}

/// A result for the dashboard: the first letter of the state, milliseconds, and unix seconds in base 36. It is short
/// because every monitor keeps 30 of them.
fn recent_result(health: &MonitorHealth, observation: &Observation) -> String {
    let total_ms = millis(observation.phases.total.unwrap_or_default()).min(9_999_999);
    format!("{}{total_ms}:{}", &health.state.as_str()[..1], base36(health.last_ms / 1000))
}

fn base36(mut number: u64) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(char::from_digit(u32::try_from(number % 36).unwrap_or(0), 36).unwrap_or('0'));
        number /= 36;
        if number == 0 {
            return digits.iter().rev().collect();
        }
    }
}

fn ttl(wanted: Duration, least: Duration, most: Duration) -> u64 {
    millis(wanted.clamp(least, most))
}

impl Observation {
    /// The failure, if the check failed.
    #[must_use]
    pub fn failure(&self) -> Option<&crate::monitor::check::Failure> {
        match &self.outcome {
            crate::monitor::check::CheckOutcome::Failed(failure) => Some(failure),
            crate::monitor::check::CheckOutcome::Ok { .. } => None,
        }
    }

    /// The result of a job that reported success.
    pub(crate) fn reported(took_ms: Option<u64>) -> Self {
        let phases = Phases { total: took_ms.map(Duration::from_millis), ..Phases::default() };
        let outcome = crate::monitor::check::CheckOutcome::Ok { status_code: 0 };
        Self { phases, outcome, ..Self::failed(FailureClass::Reported, "") }
    }

    /// What the result means for the state of the monitor.
    #[must_use]
    pub fn verdict(&self) -> crate::schedule::state::Verdict {
        use crate::schedule::state::Verdict;
        match self.failure().map(|failure| failure.class) {
            None => Verdict::Success,
            Some(class) if FailureClass::is_retryable(class) => Verdict::Failure,
            Some(_) => Verdict::PermanentFailure,
        }
    }
}
