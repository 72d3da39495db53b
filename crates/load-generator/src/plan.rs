//! Plans: what a run requests, how often, and which results it must reach. Written in TOML or JSON and fully checked before
//! a run; `docs/load.md` describes the language.

mod check;
mod curve;
mod document;
mod read;
mod request;
mod source;
mod template;
mod threshold;
mod users;

use std::time::Duration;

pub use check::{Check, Extraction, ResponseView, ValueSource};
pub use curve::{Arrivals, Curve, Segment, Spacing};
pub use hob_document::{Mistake, Position};
pub use request::{Origin, Request, Scheme};
pub use source::{PlanFiles, PlanSource};
pub use template::{Template, Variables};
pub use threshold::{Bound, Threshold, ThresholdMetric};

/// A plan that can be run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub name: String,
    pub scenarios: Vec<Scenario>,
    /// The steps of all scenarios.
    pub steps: Vec<Step>,
    /// The servers of the requests.
    pub origins: Vec<Origin>,
    /// Always with one for the error rate of all steps.
    pub thresholds: Vec<Threshold>,
    /// At least one.
    pub run_types: Vec<RunType>,
    pub variables: Variables,
    /// The values of the variables at the start of an iteration.
    pub values: Vec<String>,
    /// Certificate authorities to trust in addition to the public ones, as PEM.
    pub ca: Option<String>,
}

/// Steps in order, and their load.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: String,
    pub load: LoadModel,
    /// Indexes into [`Plan::steps`].
    pub steps: Vec<usize>,
    pub think: ThinkTime,
    /// The least time between the starts of two iterations of a user.
    pub pacing: Option<Duration>,
}

/// How iterations start.
#[derive(Clone, Debug)]
pub enum LoadModel {
    /// Iterations start at a rate, whether or not earlier ones have ended.
    Open { rate: Curve, arrivals: ArrivalKind, max_users: u32 },
    /// A number of users, each of which repeats its iterations.
    Closed { users: Curve },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalKind {
    Even,
    Poisson,
}

/// A request, the checks of its response, and the values to extract from it.
#[derive(Clone, Debug)]
pub struct Step {
    pub name: String,
    pub group: Option<String>,
    pub request: Request,
    pub checks: Vec<Check>,
    pub extract: Vec<Extraction>,
    pub think: Option<ThinkTime>,
    pub timeout: Duration,
    /// Whether a check or an extraction needs the body.
    pub needs_body: bool,
}

/// How long a user waits after a step, uniformly distributed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThinkTime {
    pub min: Duration,
    pub max: Duration,
}

/// A run type: some groups of the plan, a scale of its load, and users.
#[derive(Clone, Debug)]
pub struct RunType {
    pub name: String,
    /// `None` for all groups.
    pub groups: Option<Vec<String>>,
    pub scale: f64,
    /// The variables that a row sets.
    pub columns: Vec<usize>,
    pub rows: Vec<Vec<String>>,
}

/// The format of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = LoadPlanFormat))]
pub enum Format {
    Toml,
    Json,
}

impl Plan {
    pub const MAX_BYTES: usize = 256 << 10;
    pub const MAX_STEPS: usize = 64;
    pub const MAX_SCENARIOS: usize = 16;
    pub const MAX_ROWS: usize = 10_000;
    pub const MAX_USERS: f64 = 20_000.0;
    pub const MAX_RATE: f64 = 1_000_000.0;
    pub const MAX_DURATION: Duration = Duration::from_secs(24 * 3600);

    /// Reads and checks a plan without files.
    pub fn read(text: &str, format: Format) -> Result<Self, Mistake> {
        Self::read_with(text, format, &|_| Err("this plan has no files".to_owned()))
    }

    /// Reads and checks a plan. `file` returns the content of a file that the plan names.
    pub fn read_with(
        text: &str,
        format: Format,
        file: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<Self, Mistake> {
        read::plan(text, format, file)
    }

    /// The duration, without iterations in flight at the end.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.scenarios.iter().map(|scenario| scenario.load.curve().duration()).max().unwrap_or_default()
    }

    #[must_use]
    pub fn run_type(&self, name: &str) -> Option<usize> {
        self.run_types.iter().position(|run_type| run_type.name == name)
    }

    /// The groups of a run type, in the order of their first steps.
    #[must_use]
    pub fn groups(&self, run_type: usize) -> Vec<&str> {
        let mut groups: Vec<&str> = Vec::new();
        for step in self.steps.iter().filter(|step| self.run_types[run_type].includes(step)) {
            if let Some(group) = step.group.as_deref().filter(|group| !groups.contains(group)) {
                groups.push(group);
            }
        }
        groups
    }

    /// The thresholds of a run type: those for all steps, and for the steps that it includes.
    pub fn thresholds_of(&self, run_type: usize) -> impl Iterator<Item = &Threshold> {
        let run_type = &self.run_types[run_type];
        let included =
            |name: &str| self.steps.iter().any(|step| step.name == name && run_type.includes(step));
        self.thresholds.iter().filter(move |threshold| threshold.step.as_deref().is_none_or(included))
    }

    /// The peak number of users of the closed scenarios.
    #[must_use]
    pub fn target_users(&self, run_type: usize) -> u32 {
        let scale = self.run_types[run_type].scale;
        let users = |scenario: &Scenario| match &scenario.load {
            LoadModel::Closed { users } => (users.peak() * scale).ceil() as u32,
            LoadModel::Open { .. } => 0,
        };
        self.scenarios.iter().map(users).sum()
    }

    /// The highest possible number of concurrent users: those of the closed scenarios, and the maximum of each open one.
    #[must_use]
    pub fn max_users(&self, run_type: usize) -> u32 {
        let open = self.scenarios.iter().map(|scenario| match &scenario.load {
            LoadModel::Open { max_users, .. } => *max_users,
            LoadModel::Closed { .. } => 0,
        });
        open.fold(self.target_users(run_type), u32::saturating_add)
    }

    /// The peak rate of the open scenarios, in requests per second.
    #[must_use]
    pub fn planned_rate(&self, run_type: usize) -> f64 {
        let run_type = &self.run_types[run_type];
        let rate = |scenario: &Scenario| match &scenario.load {
            LoadModel::Open { rate, .. } => {
                let steps =
                    scenario.steps.iter().filter(|step| run_type.includes(&self.steps[**step])).count();
                rate.peak() * run_type.scale * steps as f64
            }
            LoadModel::Closed { .. } => 0.0,
        };
        self.scenarios.iter().map(rate).sum()
    }

    /// The plan scaled down to at most `max_users` users.
    #[must_use]
    pub fn capped(mut self, max_users: u32, run_type: usize) -> Self {
        let planned = self.target_users(run_type);
        for scenario in &mut self.scenarios {
            match &mut scenario.load {
                LoadModel::Open { max_users: max, .. } => *max = (*max).min(max_users),
                LoadModel::Closed { users } if planned > max_users => {
                    *users = users.times(f64::from(max_users) / f64::from(planned));
                }
                LoadModel::Closed { .. } => {}
            }
        }
        self
    }

    /// The plan of `hob load quick`: one request, repeated.
    pub fn quick(url: &str, load: LoadModel) -> Result<Self, String> {
        read::quick(url, load)
    }
}

impl LoadModel {
    /// The rate or the number of users over time.
    #[must_use]
    pub fn curve(&self) -> &Curve {
        match self {
            Self::Open { rate, .. } => rate,
            Self::Closed { users } => users,
        }
    }

    /// A constant number of users.
    #[must_use]
    pub fn users(users: u32, lasting: Duration) -> Self {
        Self::Closed { users: constant(f64::from(users), lasting) }
    }

    /// A constant number of arrivals per second.
    #[must_use]
    pub fn rate(rate: f64, lasting: Duration, max_users: u32) -> Self {
        Self::Open { rate: constant(rate, lasting), arrivals: ArrivalKind::Even, max_users }
    }
}

fn constant(level: f64, lasting: Duration) -> Curve {
    Curve::new(vec![Segment { from: level, to: level, seconds: lasting.as_secs_f64() }])
}

impl RunType {
    /// Whether runs of this type include a step. Steps without a group are always included.
    #[must_use]
    pub fn includes(&self, step: &Step) -> bool {
        match (&self.groups, &step.group) {
            (Some(groups), Some(group)) => groups.contains(group),
            _ => true,
        }
    }
}

hob_units::names!(Format { Toml = "toml", Json = "json" });
