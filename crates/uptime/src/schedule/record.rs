//! Recording a result (U2–U6): one script that moves the standing and everything that others read of it, and that
//! refuses whoever is late.

use std::time::Duration;

use hob_schema::Shard;
use hob_store::epoch::{Fence, MARKER, Outcome};
use hob_store::{CLOCK, Reply, Script};

use crate::error::Result;
use crate::keys::{Keys, MonitorId};
use crate::monitor::Monitor;
use crate::monitor::check::{AssertionResult, FailureClass, Observation, Phases};
use crate::schedule::state::{Change, Standing, State};
use crate::schedule::{Claim, STANDING, Schedule, millis};

static RECORD: Script = Script::with(&[CLOCK, MARKER, STANDING], include_str!("record/record.lua"));
static SETTLE: Script = Script::new(include_str!("record/settle.lua"));

/// A result, judged: what is to be written of it.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    pub claim: &'a Claim,
    pub observation: &'a Observation,
    pub standing: Standing,
    pub change: Option<Change>,
    pub next_ms: u64,
    /// How long the result counts as news, and a retry as one.
    pub status_ttl: Duration,
    pub retry_ttl: Duration,
}

/// What became of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    Recorded,
    /// Nothing was written: the monitor is gone, was edited, or another has its claim.
    Refused(Refusal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Gone,
    Edited,
    Stale,
}

/// A change between up and down that is not in the database yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsettled {
    pub id: MonitorId,
    pub fence: Fence,
    pub change: Change,
    /// When the change was found.
    pub at_ms: u64,
    pub first_failure_ms: u64,
    pub failures: u32,
    /// `None` after a success.
    pub class: Option<String>,
    pub message: String,
}

/// Whether somebody is told of an incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Yes,
    NotYet,
}

impl Schedule {
    /// Records a result under its claim.
    pub async fn record(&self, entry: &Entry<'_>) -> Result<Outcome<Recorded>> {
        let (claim, standing) = (entry.claim, &entry.standing);
        let shard = self.shard_of(&claim.id);
        let [schedule, leases, marker, standings, unsettled] = self.shard_keys(shard);
        let keys = &self.keys;
        let views = [keys.status(&claim.id), keys.incident(&claim.id), keys.retry(&claim.id)];
        let [status, incident, retry] = views;
        let call = RECORD.on(&[schedule, leases, marker, standings, unsettled, status, incident, retry]);
        let call = call.arg(self.epoch(shard)).arg(claim.id.as_str()).arg(claim.generation);
        let call = call.arg(claim.fence.get()).arg(entry.next_ms).arg(standing.to_string());
        let call = call.arg(entry.unsettled().map(|change| change.to_string()).unwrap_or_default());
        let call = call.arg(ttl(entry.status_ttl, Keys::STATUS_TTL_MIN, Keys::STATUS_TTL_MAX));
        let retries = (standing.state == State::Suspect).then(|| standing.failures.min(1000).to_string());
        let call = call.arg(retries.unwrap_or_default());
        let call = call.arg(ttl(entry.retry_ttl, Keys::RETRY_TTL_MIN, Keys::RETRY_TTL_MAX));
        let failures = standing.is_down().then(|| standing.failures.to_string());
        let call = call.arg(failures.unwrap_or_default()).arg(standing.first_failure_ms / 1000);
        let call = call.arg(standing.last_failure_ms / 1000).arg(in_short(standing, entry.observation));
        let call =
            status_fields(entry).into_iter().fold(call, |call, (field, value)| call.arg(field).arg(value));
        let outcome = Outcome::read(self.run(shard, call).await?, |reply| match reply.word() {
            "recorded" => Ok(Recorded::Recorded),
            "gone" => Ok(Recorded::Refused(Refusal::Gone)),
            "edited" => Ok(Recorded::Refused(Refusal::Edited)),
            "stale" => Ok(Recorded::Refused(Refusal::Stale)),
            _ => Err(reply.unexpected()),
        });
        Ok(outcome?)
    }

    /// The changes of a shard that are not in the database yet.
    pub async fn unsettled(&self, shard: Shard) -> Result<Vec<Unsettled>> {
        let key = self.keys.unsettled(shard);
        let all: Vec<(String, String)> = self.run(shard, hob_store::cmd("HGETALL").arg(&key)).await?;
        let mut changes = Vec::with_capacity(all.len());
        for (id, text) in all {
            match Unsettled::read(&id, &text) {
                Some(change) => changes.push(change),
                None => {
                    // Kept, it would hold every other change of the monitor back for ever.
                    tracing::warn!(monitor = id, "an unsettled change cannot be read, and was dropped");
                    self.run::<u64>(shard, hob_store::cmd("HDEL").arg(&key).arg(id)).await?;
                }
            }
        }
        Ok(changes)
    }

    /// Notes that a change is in the database.
    pub async fn settle(&self, change: &Unsettled, told: Told) -> Result<()> {
        let shard = self.shard_of(&change.id);
        let unsettled = self.keys.unsettled(shard);
        let call = SETTLE.on(&[unsettled, self.keys.incident(&change.id)]);
        let call = call.arg(change.id.as_str()).arg(change.fence.get());
        let told = match told {
            Told::Yes => "1",
            Told::NotYet => "0",
        };
        self.run::<Reply>(shard, call.arg(told)).await?;
        Ok(())
    }
}

impl<'a> Entry<'a> {
    /// What a result that was there at `ended_ms` means for its monitor.
    #[must_use]
    pub fn judge(monitor: &Monitor, claim: &'a Claim, observation: &'a Observation, ended_ms: u64) -> Self {
        let (standing, change) = claim.standing.after(
            observation.verdict(),
            claim.claimed_ms,
            monitor.thresholds(),
            claim.settled,
        );
        let ended_ms = ended_ms.max(claim.slot_ms).max(claim.claimed_ms);
        Self {
            claim,
            observation,
            standing,
            change,
            next_ms: monitor.next_ms(&standing, ended_ms),
            status_ttl: monitor.stale_after(),
            retry_ttl: monitor.retry_ttl(),
        }
    }

    /// The change that this result makes, to be brought into the database.
    #[must_use]
    pub fn unsettled(&self) -> Option<Unsettled> {
        let failure = self.observation.failure();
        // Of a recovery, how long the outage was is in what came before it.
        let before = self.claim.standing;
        let outage = if self.change == Some(Change::Resolved) { before } else { self.standing };
        Some(Unsettled {
            id: self.claim.id.clone(),
            fence: self.claim.fence,
            change: self.change?,
            at_ms: self.standing.last_ms,
            first_failure_ms: outage.first_failure_ms,
            failures: outage.failures,
            class: failure.map(|failure| failure.class.to_string()),
            message: failure.map(|failure| failure.message().to_owned()).unwrap_or_default(),
        })
    }
}

/// `fence change at first failures class message`
impl std::fmt::Display for Unsettled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { fence, at_ms, first_failure_ms, failures, message, .. } = self;
        let (change, class) = (self.change.as_str(), self.class.as_deref().unwrap_or("-"));
        write!(f, "{fence} {change} {at_ms} {first_failure_ms} {failures} {class} {message}")
    }
}

impl Unsettled {
    fn read(id: &str, text: &str) -> Option<Self> {
        let mut words = text.splitn(7, ' ');
        let fence = Fence::from_u64(words.next()?.parse().ok()?);
        let change = match words.next()? {
            "opened" => Change::Opened,
            "resolved" => Change::Resolved,
            _ => return None,
        };
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

/// U2: the last success, and beside it what there is to say of this result.
fn status_fields(entry: &Entry<'_>) -> Vec<(&'static str, String)> {
    let (observation, standing) = (entry.observation, &entry.standing);
    let total = observation.phases.total.unwrap_or_default();
    let mut fields = vec![
        ("state", standing.state.to_string()),
        ("last_at", standing.last_ms.to_string()),
        ("last_us", total.as_micros().to_string()),
        ("phases", phases(&observation.phases)),
        ("assertions", assertions(observation)),
        ("error", observation.failure().map(ToString::to_string).unwrap_or_default()),
    ];
    if let crate::monitor::check::Outcome::Ok { status_code } = observation.outcome {
        fields.push(("status_code", status_code.to_string()));
        fields.push(("latency_ms", millis(total).to_string()));
        fields.push(("checked_at", (standing.last_ms / 1000).to_string()));
    }
    fields
}

/// Whether each held and what was found, one a line: what was found has no line ends.
fn assertions(observation: &Observation) -> String {
    let line = |one: &AssertionResult| format!("{}{}", if one.holds { '1' } else { '0' }, one.found);
    observation.assertions.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Microseconds of name, connect, TLS and first byte; `-` where there was none.
fn phases(phases: &Phases) -> String {
    let one = |phase: Option<Duration>| phase.map_or("-".to_owned(), |phase| phase.as_micros().to_string());
    [phases.dns, phases.connect, phases.tls, phases.first_byte].map(one).join(" ")
}

/// A bar of the dashboard: the first letter of the state, how long it took, and when, in few letters since every
/// monitor has many of them.
fn in_short(standing: &Standing, observation: &Observation) -> String {
    let total_ms = millis(observation.phases.total.unwrap_or_default()).min(9_999_999);
    format!("{}{total_ms}:{}", &standing.state.as_str()[..1], base36(standing.last_ms / 1000))
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
    /// What went wrong, if something did.
    #[must_use]
    pub fn failure(&self) -> Option<&crate::monitor::check::Failure> {
        match &self.outcome {
            crate::monitor::check::Outcome::Failed(failure) => Some(failure),
            crate::monitor::check::Outcome::Ok { .. } => None,
        }
    }

    /// What a job that reports success says of itself.
    pub(crate) fn reported(took_ms: Option<u64>) -> Self {
        let phases = Phases { total: took_ms.map(Duration::from_millis), ..Phases::default() };
        let outcome = crate::monitor::check::Outcome::Ok { status_code: 0 };
        Self { phases, outcome, ..Self::failed(FailureClass::Reported, "") }
    }

    /// What the result says of the monitor.
    #[must_use]
    pub fn verdict(&self) -> crate::schedule::state::Verdict {
        use crate::schedule::state::Verdict;
        match self.failure().map(|failure| failure.class) {
            None => Verdict::Good,
            Some(class) if FailureClass::is_retryable(class) => Verdict::Bad,
            Some(_) => Verdict::Hopeless,
        }
    }
}
