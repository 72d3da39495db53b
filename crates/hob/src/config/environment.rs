//! The environment variables that Hob reads, in one place.
//!
//! `HOB_<SECTION>_<KEY>` sets `[section] key` for every setting of every section, and takes precedence over `hob.toml`.
//! [`ALIASES`] are further documented names. Most names without `HOB_` are also used by other programs, so `hob.toml`
//! takes precedence over them. The variables of the key schemas have no setting in `hob.toml`; the services read them
//! when they open.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use hob_service::config::{ConfigError, File, Layers, Origin, SectionType, Setting};
use toml::Value;

use crate::schema;

/// Variables of the program that have no setting in `hob.toml`.
const PROGRAM: [&str; 2] = ["HOB_CONFIG", "HOB_LOG"];

/// Variables of commands that talk to a server. They do not configure a server, and one is a secret.
const CLIENT: [&str; 3] = ["HOB_SERVER", "HOB_TOKEN", "HOB_CA"];

/// Together they are another way to write `[redis] url`.
const REDIS_PARTS: [&str; 3] = ["REDIS_HOST", "REDIS_PORT", "REDIS_PASSWORD"];

const ALIASES: [Alias; 16] = [
    Alias::new("HOB_NODE", "node", "name", Rank::AboveFile),
    Alias::new("HOB_LISTEN", "server", "listen", Rank::AboveFile),
    Alias::new("HOB_EMBEDDED_LISTEN", "redis", "embedded_listen", Rank::AboveFile),
    Alias::new("HOB_EMBEDDED_MEMORY_MIB", "redis", "embedded_memory_mib", Rank::AboveFile),
    // The variable contains the token itself. The setting contains the source of the token.
    Alias {
        convert: |_| "env:HOB_ADMIN_TOKEN".to_owned(),
        ..Alias::new("HOB_ADMIN_TOKEN", "server", "admin_token", Rank::BelowFile)
    },
    Alias::new("REDIS_URL", "redis", "url", Rank::BelowFile),
    Alias::new("DATABASE_URL", "database", "url", Rank::BelowFile),
    Alias::new("OTEL_EXPORTER_OTLP_ENDPOINT", "tracing", "endpoint", Rank::BelowFile),
    // The variable contains the headers themselves. The setting contains their source.
    Alias {
        convert: |_| "env:OTEL_EXPORTER_OTLP_HEADERS".to_owned(),
        ..Alias::new("OTEL_EXPORTER_OTLP_HEADERS", "tracing", "headers", Rank::BelowFile)
    },
    Alias::new("OTEL_SERVICE_NAME", "tracing", "service_name", Rank::BelowFile),
    Alias::new("OTEL_TRACES_SAMPLER_ARG", "tracing", "sample_ratio", Rank::BelowFile),
    // G8: PM2 sets it for each process that it starts.
    Alias::new("pm_id", "gateway", "instance", Rank::BelowFile),
    Alias::new("MESSAGE_RATE_LIMIT", "chat", "message_rate_limit", Rank::BelowFile),
    Alias {
        convert: milliseconds,
        ..Alias::new("MESSAGE_RATE_WINDOW", "chat", "message_rate_window", Rank::BelowFile)
    },
    Alias::new("CALL_LIMIT_PER_HOUR", "pipeline", "call_limit_per_hour", Rank::BelowFile),
    Alias::new("COURTLISTENER_SAFETY_BUFFER", "pipeline", "safety_buffer", Rank::BelowFile),
];

/// Another name for the variable of a setting. An empty variable counts as not set.
struct Alias {
    variable: &'static str,
    section: &'static str,
    key: &'static str,
    rank: Rank,
    /// Converts the text to the form that the setting accepts.
    convert: fn(&str) -> String,
}

/// Whether a variable takes precedence over `hob.toml`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rank {
    AboveFile,
    BelowFile,
}

/// The variables that are set, assigned to settings.
#[derive(Debug, Default)]
pub(super) struct Environment {
    variables: BTreeMap<String, String>,
    /// `HOB_<SECTION>_<KEY>` of all settings.
    names: BTreeSet<String>,
    /// The values of settings, by the variable `HOB_<SECTION>_<KEY>` of each setting.
    assigned: BTreeMap<String, Assignment>,
}

#[derive(Clone, Debug)]
struct Assignment {
    text: String,
    /// The variables from which the value comes.
    source: String,
}

/// The variables of this process. Hob ignores variables whose name or value is not UTF-8.
pub(super) fn of_process() -> BTreeMap<String, String> {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).collect()
}

impl Environment {
    pub(super) fn new(
        variables: BTreeMap<String, String>,
        file: Option<&File>,
        sections: &[SectionType],
    ) -> Result<(Self, Vec<ConfigError>), ConfigError> {
        let mut errors = check_schema_variables(&variables);
        let mut environment = Self { variables, ..Self::default() };
        let in_file = Layers::new(file, []);
        for section in sections {
            for setting in section.settings(&in_file)?.iter().filter(|setting| is_declared(setting)) {
                let name = format!("HOB_{}_{}", section.name, setting.name).to_ascii_uppercase();
                match environment.find(&name, section.name, setting) {
                    Ok(Some(found)) => drop(environment.assigned.insert(name.clone(), found)),
                    Ok(None) => {}
                    Err(error) => errors.push(error),
                }
                environment.names.insert(name);
            }
        }
        Ok((environment, errors))
    }

    /// The variable that sets a setting: its own variable, or else the first of its aliases that is set.
    fn find(&self, name: &str, section: &str, setting: &Setting) -> Result<Option<Assignment>, ConfigError> {
        if let Some(text) = self.variables.get(name) {
            return Ok(Some(Assignment { text: text.clone(), source: name.to_owned() }));
        }
        let below_file = setting.origin == Origin::Default;
        let aliases = ALIASES.iter().filter(|alias| alias.section == section && alias.key == setting.name);
        for alias in aliases.filter(|alias| alias.rank == Rank::AboveFile || below_file) {
            if let Some(text) = self.non_empty(alias.variable) {
                let source = alias.variable.to_owned();
                return Ok(Some(Assignment { text: (alias.convert)(text), source }));
            }
        }
        if section == "redis" && setting.name == "url" && below_file { self.redis_parts() } else { Ok(None) }
    }

    fn non_empty(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }

    /// C14: `REDIS_HOST`, `REDIS_PORT` and `REDIS_PASSWORD` as a URL, if any of them is set.
    fn redis_parts(&self) -> Result<Option<Assignment>, ConfigError> {
        // Kubernetes sets REDIS_PORT=tcp://10.0.0.1:6379 beside a Service with the name redis.
        let is_set = |name: &&str| {
            self.non_empty(name).is_some_and(|text| *name != "REDIS_PORT" || !text.starts_with("tcp://"))
        };
        let set: Vec<&str> = REDIS_PARTS.into_iter().filter(is_set).collect();
        if set.is_empty() {
            return Ok(None);
        }
        let part = |name: &str| set.contains(&name).then(|| self.non_empty(name)).flatten();
        let port: u16 = match part("REDIS_PORT").map(|text| (text, text.parse())) {
            Some((_, Ok(port))) => port,
            Some((text, Err(_))) => {
                let message = format!("{text:?} is not a port number");
                return Err(ConfigError::InSetting { name: "REDIS_PORT".to_owned(), message });
            }
            None => 6379,
        };
        let host = part("REDIS_HOST").unwrap_or("localhost");
        let host =
            if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() };
        let password =
            part("REDIS_PASSWORD").map(|text| format!(":{}@", percent_encoded(text))).unwrap_or_default();
        Ok(Some(Assignment { text: format!("redis://{password}{host}:{port}"), source: set.join(", ") }))
    }

    /// The variables that [`Layers`] reads: the own variable of each setting.
    pub(super) fn layer(&self) -> impl Iterator<Item = (String, String)> {
        self.assigned.iter().map(|(name, assignment)| (name.clone(), assignment.text.clone()))
    }

    /// The variables behind a setting's own.
    pub(super) fn source<'a>(&'a self, name: &'a str) -> &'a str {
        self.assigned.get(name).map_or(name, |assignment| &assignment.source)
    }

    /// Replaces the name of a setting's own variable in an error by the variable that was set.
    pub(super) fn explain(&self, error: ConfigError) -> ConfigError {
        match error {
            ConfigError::InSetting { name, message } => {
                ConfigError::InSetting { name: self.source(&name).to_owned(), message }
            }
            other => other,
        }
    }

    /// The variables that start with `HOB_` and are not read. `settings` may refer to some as `env:NAME`.
    pub(super) fn unknown(&self, settings: &[Setting]) -> Vec<String> {
        let mut known: BTreeSet<String> = self.names.clone();
        known.extend(ALIASES.iter().map(|alias| alias.variable.to_owned()));
        known.extend(PROGRAM.map(str::to_owned));
        known.extend(CLIENT.map(str::to_owned));
        known.extend(SCHEMA_VARIABLES.iter().cloned());
        for value in settings.iter().filter_map(|setting| setting.value.as_ref()) {
            add_references(value, &mut known);
        }
        let ours = self.variables.keys().filter(|name| name.starts_with("HOB_"));
        ours.filter(|name| !known.contains(*name)).cloned().collect()
    }

    /// The variables without a setting in `hob.toml`, each with its text if it is set.
    pub(super) fn without_setting(&self) -> Vec<(String, Option<&str>)> {
        let schemas = SCHEMA_VARIABLES
            .iter()
            .filter(|name| !ALIASES.iter().any(|alias| alias.variable == **name))
            .cloned();
        let names = PROGRAM.map(str::to_owned).into_iter().chain(schemas);
        names.map(|name| (name.clone(), self.variables.get(&name).map(String::as_str))).collect()
    }
}

impl Alias {
    const fn new(variable: &'static str, section: &'static str, key: &'static str, rank: Rank) -> Self {
        Self { variable, section, key, rank, convert: str::to_owned }
    }
}

/// Whether the program knows the setting. In `[secrets]` the operator chooses the names.
fn is_declared(setting: &Setting) -> bool {
    !setting.about.is_empty()
}

/// A bare number counts milliseconds.
fn milliseconds(text: &str) -> String {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { format!("{text}ms") } else { text.to_owned() }
}

fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// The variables that the key schemas name, each once.
static SCHEMA_VARIABLES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let names = RefCell::new(Vec::new());
    let record = |name: &str| {
        let mut names = names.borrow_mut();
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
        None
    };
    for mut schema in schema::own().expect("the program's schemas are valid") {
        let _ = schema.apply_env(&record);
    }
    names.into_inner()
});

fn check_schema_variables(variables: &BTreeMap<String, String>) -> Vec<ConfigError> {
    if !SCHEMA_VARIABLES.iter().any(|name| variables.contains_key(name)) {
        return Vec::new();
    }
    // Several schemas may read the same variable.
    let mut unusable = BTreeMap::new();
    for mut schema in schema::own().expect("the program's schemas are valid") {
        if let Err(error) = schema.apply_env(&|name| variables.get(name).cloned()) {
            unusable.insert(error.variable, format!("{:?} is not {}", error.text, error.expected));
        }
    }
    unusable.into_iter().map(|(name, message)| ConfigError::InSetting { name, message }).collect()
}

/// Adds the variables that a value refers to as `env:NAME`.
fn add_references(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => names.extend(text.strip_prefix("env:").map(str::to_owned)),
        Value::Array(values) => values.iter().for_each(|value| add_references(value, names)),
        Value::Table(table) => table.values().for_each(|value| add_references(value, names)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_is_documented() {
        let page = include_str!("../../../../docs/configuration.md");
        let aliases = ALIASES.iter().map(|alias| alias.variable.to_owned());
        let names = PROGRAM.iter().chain(&CLIENT).chain(&REDIS_PARTS).map(|name| (*name).to_owned());
        for name in aliases.chain(names).chain(SCHEMA_VARIABLES.iter().cloned()) {
            assert!(page.contains(&format!("`{name}`")), "{name} is missing in docs/configuration.md");
        }
    }
}
