//! Plans: what a load test does. Written in TOML or JSON, checked whole before anything runs; see
//! `docs/load.md` for the language.

pub(crate) mod cache;
pub(crate) mod catalog;
mod curve;
mod expect;
mod read;
mod request;
mod rows;
mod source;
mod template;
mod threshold;
mod written;

use std::fmt;
use std::time::Duration;

pub use curve::{Arrivals, Curve, Leg, Spacing};
pub use expect::{Answer, Check, Extract, From};
pub use hob_document::{Mistake, Position};
pub use request::{Origin, Request, Scheme};
pub use template::{Names, Template};
pub use threshold::{Bound, Metric, Threshold};
pub use written::{Files, Written};

/// A plan that can be run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub name: String,
    pub scenarios: Vec<Scenario>,
    /// The steps of all scenarios.
    pub steps: Vec<Step>,
    /// The servers that requests go to.
    pub origins: Vec<Origin>,
    pub thresholds: Vec<Threshold>,
    /// At least one.
    pub run_types: Vec<RunType>,
    pub names: Names,
    /// The values of the variables at the start of an iteration.
    pub values: Vec<String>,
    /// The authority to trust beside the public ones, as PEM.
    pub ca: Option<String>,
}

/// Steps in order, and the load that they are put under.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: String,
    pub load: Load,
    /// Places in [`Plan::steps`].
    pub steps: Vec<usize>,
    pub think: Pause,
    /// The least time from the start of an iteration to the start of the user's next.
    pub pacing: Option<Duration>,
}

/// How requests come.
#[derive(Clone, Debug)]
pub enum Load {
    /// Iterations start at a rate, whatever became of the earlier ones.
    Open { rate: Curve, arrivals: ArrivalKind, most_users: u32 },
    /// So many users, each starting over when it is done.
    Closed { users: Curve },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalKind {
    Even,
    Poisson,
}

/// One request, what is expected of its response and taken from it.
#[derive(Clone, Debug)]
pub struct Step {
    pub name: String,
    pub group: Option<String>,
    pub request: Request,
    pub checks: Vec<Check>,
    pub extract: Vec<Extract>,
    pub think: Option<Pause>,
    pub timeout: Duration,
    /// Whether the response's body has to be kept until it was looked at.
    pub needs_body: bool,
}

/// How long a user waits after a step: between two times, evenly distributed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    pub least: Duration,
    pub most: Duration,
}

/// A kind of run: a part of the plan's groups, a part of its load, its own users.
#[derive(Clone, Debug)]
pub struct RunType {
    pub name: String,
    /// All, if not said.
    pub groups: Option<Vec<String>>,
    pub scale: f64,
    /// The variables that a user's row sets.
    pub columns: Vec<usize>,
    pub rows: Vec<Vec<String>>,
}

/// The language that a plan is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = LoadPlanFormat)]
pub enum Format {
    Toml,
    Json,
}

impl Plan {
    /// Longer texts are refused.
    pub const MOST_BYTES: usize = 256 << 10;
    pub const MOST_STEPS: usize = 64;
    pub const MOST_SCENARIOS: usize = 16;
    pub const MOST_ROWS: usize = 10_000;
    pub const MOST_USERS: f64 = 20_000.0;
    pub const MOST_RATE: f64 = 1_000_000.0;
    pub const LONGEST: Duration = Duration::from_secs(24 * 3600);

    /// Reads and checks a plan that names no files.
    pub fn read(text: &str, format: Format) -> Result<Self, Mistake> {
        Self::read_with(text, format, &|_| Err("there are no files beside this plan".to_owned()))
    }

    /// Reads and checks a plan; `file` knows what is in the files that it names, or why it does not.
    pub fn read_with(
        text: &str,
        format: Format,
        file: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<Self, Mistake> {
        read::plan(text, format, file)
    }

    /// How long it takes, without the iterations that are on their way at the end.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.scenarios.iter().map(|scenario| scenario.load.curve().duration()).max().unwrap_or_default()
    }

    #[must_use]
    pub fn run_type(&self, name: &str) -> Option<usize> {
        self.run_types.iter().position(|run_type| run_type.name == name)
    }

    /// The groups of a kind of run, in the order of their first steps.
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

    /// The most users there are to be at a time, where the plan says so.
    #[must_use]
    pub fn target_users(&self, run_type: usize) -> u32 {
        let scale = self.run_types[run_type].scale;
        let users = |scenario: &Scenario| match &scenario.load {
            Load::Closed { users } => (users.peak() * scale).ceil() as u32,
            Load::Open { .. } => 0,
        };
        self.scenarios.iter().map(users).sum()
    }

    /// The most requests per second that its open scenarios plan.
    #[must_use]
    pub fn planned_rate(&self, run_type: usize) -> f64 {
        let run_type = &self.run_types[run_type];
        let rate = |scenario: &Scenario| match &scenario.load {
            Load::Open { rate, .. } => {
                let steps =
                    scenario.steps.iter().filter(|step| run_type.includes(&self.steps[**step])).count();
                rate.peak() * run_type.scale * steps as f64
            }
            Load::Closed { .. } => 0.0,
        };
        self.scenarios.iter().map(rate).sum()
    }

    /// The same plan with at most so many users at a time.
    #[must_use]
    pub fn capped(mut self, most_users: u32, run_type: usize) -> Self {
        let planned = self.target_users(run_type);
        for scenario in &mut self.scenarios {
            match &mut scenario.load {
                Load::Open { most_users: most, .. } => *most = (*most).min(most_users),
                Load::Closed { users } if planned > most_users => {
                    *users = users.times(f64::from(most_users) / f64::from(planned));
                }
                Load::Closed { .. } => {}
            }
        }
        self
    }

    /// The plan of `hob load quick`: one request, over and over.
    pub fn quick(url: &str, load: Load) -> Result<Self, String> {
        read::quick(url, load)
    }
}

impl Load {
    /// Rates or users over time.
    #[must_use]
    pub fn curve(&self) -> &Curve {
        match self {
            Self::Open { rate, .. } => rate,
            Self::Closed { users } => users,
        }
    }

    /// So many users for so long.
    #[must_use]
    pub fn users(users: u32, lasting: Duration) -> Self {
        Self::Closed { users: level(f64::from(users), lasting) }
    }

    /// So many arrivals a second for so long.
    #[must_use]
    pub fn rate(rate: f64, lasting: Duration, most_users: u32) -> Self {
        Self::Open { rate: level(rate, lasting), arrivals: ArrivalKind::Even, most_users }
    }
}

fn level(level: f64, lasting: Duration) -> Curve {
    Curve::new(vec![Leg { from: level, to: level, seconds: lasting.as_secs_f64() }])
}

impl RunType {
    /// Whether a step is part of such a run. Steps without a group always are.
    #[must_use]
    pub fn includes(&self, step: &Step) -> bool {
        match (&self.groups, &step.group) {
            (Some(groups), Some(group)) => groups.contains(group),
            _ => true,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Toml => "toml",
            Self::Json => "json",
        })
    }
}

impl std::str::FromStr for Format {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "toml" => Ok(Self::Toml),
            "json" => Ok(Self::Json),
            _ => Err(()),
        }
    }
}
