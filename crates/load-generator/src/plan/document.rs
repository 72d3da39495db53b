//! The structure of a plan in TOML or JSON, before its values are checked.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, de};

/// A plan.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanDocument {
    pub(super) name: String,
    pub(super) target: Option<String>,
    pub(super) timeout: Option<String>,
    pub(super) tls: Option<Tls>,
    #[serde(default)]
    pub(super) vars: BTreeMap<String, Scalar>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) run: BTreeMap<String, RunType>,
    #[serde(default)]
    pub(super) scenario: Vec<Scenario>,
    #[serde(default)]
    pub(super) thresholds: Vec<Threshold>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tls {
    /// Certificate authorities to trust in addition to the public ones: PEM, or the name of a PEM file.
    pub(super) ca: String,
}

/// A run type.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunType {
    pub(super) groups: Option<Vec<String>>,
    pub(super) scale: Option<f64>,
    #[serde(default)]
    pub(super) users: Vec<BTreeMap<String, Scalar>>,
    pub(super) csv: Option<String>,
    pub(super) csv_file: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scenario {
    pub(super) name: String,
    pub(super) load: LoadSection,
    pub(super) think: Option<String>,
    pub(super) pacing: Option<String>,
    #[serde(default)]
    pub(super) step: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoadSection {
    pub(super) rate: Option<f64>,
    pub(super) users: Option<f64>,
    pub(super) r#for: Option<String>,
    pub(super) ramp: Option<String>,
    pub(super) stages: Option<Vec<Stage>>,
    pub(super) arrivals: Option<String>,
    /// `most_users` in plans of earlier versions.
    #[serde(alias = "most_users")]
    pub(super) max_users: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stage {
    pub(super) rate: Option<f64>,
    pub(super) users: Option<f64>,
    pub(super) r#for: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    pub(super) name: String,
    pub(super) group: Option<String>,
    pub(super) request: String,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Option<String>,
    /// Any JSON; its strings may contain variables.
    pub(super) json: Option<serde_json::Value>,
    pub(super) form: Option<BTreeMap<String, Scalar>>,
    #[serde(default)]
    pub(super) expect: Expect,
    #[serde(default)]
    pub(super) extract: BTreeMap<String, String>,
    pub(super) think: Option<String>,
    pub(super) timeout: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expect {
    pub(super) status: Option<Statuses>,
    pub(super) contains: Option<String>,
    pub(super) matches: Option<String>,
    pub(super) within: Option<String>,
    #[serde(default)]
    pub(super) header: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) json: BTreeMap<String, Scalar>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "one status such as 200, or a list of them")]
pub(super) enum Statuses {
    One(u16),
    Any(Vec<u16>),
}

#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "a condition such as \"p99 < 300ms\", or a table with `that` and `abort_after`"
)]
pub(super) enum Threshold {
    That(String),
    Abort { that: String, abort_after: Option<String> },
}

/// A string, number or boolean, as the text that a request contains.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scalar(pub(super) String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl de::Visitor<'_> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a number or a boolean")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Scalar, E> {
        Ok(Scalar(value.to_owned()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Scalar, E> {
        Ok(Scalar(value.to_string()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Scalar, E> {
        Ok(Scalar(value.to_string()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Scalar, E> {
        Ok(Scalar(value.to_string()))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Scalar, E> {
        Ok(Scalar(value.to_string()))
    }
}
