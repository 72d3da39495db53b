//! Configuration as code: a file lists the monitors, a plan shows the changes, and applying it is idempotent.

use std::collections::BTreeMap;
use std::fmt;

use hob_database::{Database, Transaction};
use hob_document::{Document, Format, Mistake};
use hob_service::config::Secrets;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::database::monitors::{self, MonitorEdit};
use crate::error::Result;
use crate::incident::alert::Channel;
use crate::incident::{self, Resolution};
use crate::keys::MonitorId;
use crate::monitor::check::{FieldError, MonitorKind};
use crate::monitor::secrets;
use crate::monitor::{Monitor, MonitorSpec};

/// Enough for [`MAX_MONITORS`](crate::MAX_MONITORS).
const MAX_FILE_BYTES: usize = 32 << 20;

/// The content of a file: monitors by id.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    monitors: BTreeMap<String, MonitorSpec>,
}

/// What happens to monitors that the file does not list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlisted {
    Keep,
    Remove,
}

/// The changes that make the monitors match a file.
#[derive(Debug)]
pub struct Plan {
    pub steps: Vec<Step>,
    /// Monitors that match the file already.
    pub unchanged: usize,
    /// Monitors that the file does not list and that stay.
    pub unlisted_kept: usize,
}

#[derive(Debug)]
pub enum Step {
    Add {
        id: MonitorId,
        spec: Box<MonitorSpec>,
    },
    Change {
        id: MonitorId,
        spec: Box<MonitorSpec>,
        /// Names of the fields that change.
        fields: Vec<String>,
    },
    Remove {
        id: MonitorId,
        name: String,
    },
}

/// The changes of a [`Plan`], as users and clients of the API see them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = MonitorChanges)]
pub struct Changes {
    pub steps: Vec<Change>,
    /// Monitors that match the file already.
    pub unchanged: usize,
    /// Monitors that the file does not list and that stay.
    pub unlisted_kept: usize,
}

/// The change of one monitor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "action", rename_all = "snake_case")]
#[schema(as = MonitorChange)]
pub enum Change {
    Add {
        id: String,
        name: String,
        kind: MonitorKind,
        target: String,
    },
    Change {
        id: String,
        name: String,
        /// Names of the fields that change.
        fields: Vec<String>,
    },
    Remove {
        id: String,
        name: String,
    },
}

/// All errors in a file, one per line.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct InvalidFile(pub Vec<Mistake>);

/// What exists already: monitors, and what the monitors of a file may refer to.
#[derive(Clone, Copy, Debug)]
pub struct Existing<'a> {
    pub monitors: &'a [Monitor],
    pub channels: &'a [Channel],
    pub secrets: &'a Secrets,
}

impl Plan {
    /// Compares a YAML file with the existing monitors.
    pub fn new(yaml: &str, existing: Existing<'_>, unlisted: Unlisted) -> Result<Self, InvalidFile> {
        let document = Document::parse(yaml, Format::Yaml, MAX_FILE_BYTES)?;
        let mut wanted = read(&document, existing)?;
        let mut plan = Self { steps: Vec::new(), unchanged: 0, unlisted_kept: 0 };
        for monitor in existing.monitors {
            match (wanted.remove(&monitor.id), unlisted) {
                (Some(spec), _) if spec == monitor.spec => plan.unchanged += 1,
                (Some(spec), _) => {
                    let fields = changed_fields(&monitor.spec, &spec);
                    plan.steps.push(Step::Change { id: monitor.id.clone(), spec: Box::new(spec), fields });
                }
                (None, Unlisted::Keep) => plan.unlisted_kept += 1,
                (None, Unlisted::Remove) => {
                    plan.steps.push(Step::Remove { id: monitor.id.clone(), name: monitor.spec.name.clone() });
                }
            }
        }
        plan.steps.extend(wanted.into_iter().map(|(id, spec)| Step::Add { id, spec: Box::new(spec) }));
        Ok(plan)
    }

    #[must_use]
    pub fn changes(&self) -> Changes {
        let steps = self.steps.iter().map(Change::from).collect();
        Changes { steps, unchanged: self.unchanged, unlisted_kept: self.unlisted_kept }
    }

    /// Applies the plan to the database. Running nodes see it within seconds.
    pub async fn apply(&self, database: &Database) -> Result<()> {
        for step in &self.steps {
            match step {
                Step::Add { id, spec } => drop(monitors::add(database, id, spec).await?),
                Step::Change { id, spec, .. } => drop(edit_monitor(database, id, spec).await?),
                Step::Remove { id, .. } => drop(monitors::remove(database, id).await?),
            }
        }
        Ok(())
    }
}

/// The errors of a monitor, including secrets that it may not use and channels that do not exist.
fn validate(spec: &MonitorSpec, existing: Existing<'_>) -> Vec<FieldError> {
    let checked = spec.validate().and_then(|(check, _)| secrets::check_monitor(existing.secrets, &check));
    let mut errors = checked.err().unwrap_or_default();
    let is_missing = |text: &String| {
        !existing.channels.iter().any(|channel| channel.id.as_str() == text || channel.spec.name == *text)
    };
    let missing: Vec<String> = spec.channels.iter().filter(|text| is_missing(text)).cloned().collect();
    errors.extend(spec.missing_channels(&missing));
    errors
}

fn read(
    document: &Document<'_>,
    existing: Existing<'_>,
) -> Result<BTreeMap<MonitorId, MonitorSpec>, InvalidFile> {
    let file: File = document.read()?;
    let mut errors = Vec::new();
    let mut wanted = BTreeMap::new();
    for (id, spec) in file.monitors {
        for FieldError { field, message } in validate(&spec, existing) {
            errors.push(document.mistake(&format!("monitors.{id}.{field}"), message));
        }
        match MonitorId::new(&id) {
            Ok(id) => drop(wanted.insert(id, spec)),
            Err(error) => errors.push(document.mistake(&format!("monitors.{id}"), error.to_string())),
        }
    }
    if errors.is_empty() { Ok(wanted) } else { Err(InvalidFile(errors)) }
}

impl From<Mistake> for InvalidFile {
    fn from(mistake: Mistake) -> Self {
        Self(vec![mistake])
    }
}

/// Names of the fields in which two specs differ.
fn changed_fields(old: &MonitorSpec, new: &MonitorSpec) -> Vec<String> {
    let fields = |spec: &MonitorSpec| match serde_json::to_value(spec) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let (old, new) = (fields(old), fields(new));
    let mut names: Vec<String> =
        old.keys().chain(new.keys()).filter(|name| old.get(*name) != new.get(*name)).cloned().collect();
    names.sort();
    names.dedup();
    names
}

/// Edits a monitor. Pausing it resolves its open incident.
pub(crate) async fn edit_monitor(
    database: &Database,
    id: &MonitorId,
    spec: &MonitorSpec,
) -> Result<MonitorEdit> {
    let work = |tx: Transaction| async move {
        let edited = monitors::edit(&tx, id, spec).await?;
        if let MonitorEdit::Edited(monitor) = &edited
            && monitor.spec.paused
        {
            incident::resolve(&tx, monitor, tx.now(), Resolution::Paused, None).await?;
        }
        Ok(edited)
    };
    database.write(work).await
}

impl From<&Step> for Change {
    fn from(step: &Step) -> Self {
        match step {
            Step::Add { id, spec } => Self::Add {
                id: id.to_string(),
                name: spec.name.clone(),
                kind: spec.kind,
                target: spec.target.clone(),
            },
            Step::Change { id, spec, fields } => {
                Self::Change { id: id.to_string(), name: spec.name.clone(), fields: fields.clone() }
            }
            Step::Remove { id, name } => Self::Remove { id: id.to_string(), name: name.clone() },
        }
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            writeln!(f, "{step}")?;
        }
        let count = |wanted: fn(&Change) -> bool| self.steps.iter().filter(|step| wanted(step)).count();
        write!(
            f,
            "{} to add, {} to change, {} to remove; {} unchanged, {} not in the file",
            count(|step| matches!(step, Change::Add { .. })),
            count(|step| matches!(step, Change::Change { .. })),
            count(|step| matches!(step, Change::Remove { .. })),
            self.unchanged,
            self.unlisted_kept
        )
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add { id, name, kind, target } => write!(f, "+ {id}  {name} {kind} {target}"),
            Self::Change { id, name, fields } => write!(f, "~ {id}  {name}: {}", fields.join(", ")),
            Self::Remove { id, name } => write!(f, "- {id}  {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn monitor(id: &str, yaml: &str) -> Monitor {
        let spec: MonitorSpec = Document::parse(yaml, Format::Yaml, 1000).unwrap().read().unwrap();
        let (check, assertions) = spec.validate().unwrap();
        let id = MonitorId::new(id).unwrap();
        let created_at = hob_database::UnixMs(0);
        Monitor { id, generation: 1, spec, check, assertions, token: None, created_at }
    }

    fn plan_of(yaml: &str, monitors: &[Monitor], unlisted: Unlisted) -> Result<Plan, InvalidFile> {
        let existing = Existing { monitors, channels: &[], secrets: &Secrets::none() };
        Plan::new(yaml, existing, unlisted)
    }

    const FILE: &str = "
monitors:
  shop:
    name: Shop
    kind: http
    target: https://shop.example/
    assertions: ['status in 200..299']
  db:
    name: Database
    kind: tcp
    target: db.example:5432
";

    #[test]
    fn plan_lists_additions_changes_and_removals() {
        let there = [
            monitor("db", "{name: Database, kind: tcp, target: 'db.example:5432', interval_s: 30}"),
            monitor("old", "{name: Old, kind: tcp, target: 'x:1'}"),
        ];
        let plan = plan_of(FILE, &there, Unlisted::Keep).unwrap();
        let expected = "~ db  Database: interval_s\n+ shop  Shop http https://shop.example/\n\
                        1 to add, 1 to change, 0 to remove; 0 unchanged, 1 not in the file";
        assert_eq!(plan.changes().to_string(), expected);
        let changes = plan_of(FILE, &there, Unlisted::Remove).unwrap().changes();
        assert!(changes.to_string().contains("- old  Old"), "{changes}");
    }

    #[test]
    fn every_error_has_a_position() {
        let errors = "monitors:\n  a: {name: A, kind: tcp, target: nowhere}\n  b: {name: '', kind: http, target: 'x:'}";
        let lines = plan_of(errors, &[], Unlisted::Keep).unwrap_err().to_string();
        assert!(lines.starts_with("line 2, column 35: monitors.a.target: "), "{lines}");
        assert!(lines.contains("\nline 3, column 13: monitors.b.name: "), "{lines}");
        for (file, mistake) in [
            (
                "monitors:\n  a: {name: A, kind: http, target: 'https://x.example/',\n      http: {auth: {bearer: {token: t}}}}",
                "line 3, column 37: monitors.a.http.auth.bearer.token: there is no secret t under [secrets]",
            ),
            (
                "monitors:\n  a: {name: A, kind: tcp, intervall: 3}",
                "line 2, column 38: monitors.a.intervall: unknown field",
            ),
            ("monitors:\n  a: {name: A, kind: ftp}", "line 2, column 22: monitors.a.kind: unknown variant"),
            (
                "monitors:\n  a: {name: A, kind: tcp, target: 'x:1', channels: [ops]}",
                "line 2, column 53: monitors.a.channels[0]: there is no channel with the id or name ops",
            ),
            ("monitor: {}", "line 1, column 10: monitor: unknown field"),
            ("{", "line 1, column 1: unclosed bracket"),
            ("[1]", "line 1, column 2: [0]: invalid type"),
        ] {
            let error = plan_of(file, &[], Unlisted::Keep).unwrap_err().to_string();
            assert!(error.starts_with(mistake), "{file}: {error}");
        }
    }

    #[test]
    fn file_may_list_tens_of_thousands_of_monitors() {
        let monitor = |n: usize| format!("  m{n}: {{name: M{n}, kind: tcp, target: 'x:1'}}\n");
        let yaml = format!("monitors:\n{}", (0..40_000).map(monitor).collect::<String>());
        assert_eq!(plan_of(&yaml, &[], Unlisted::Keep).unwrap().steps.len(), 40_000);
    }
}
