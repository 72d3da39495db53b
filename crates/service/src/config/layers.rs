//! The layers of the configuration: defaults, then `hob.toml`, then environment variables. The binary applies its flags
//! on top.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use hob_units::plain_serde_error;
use toml::de::DeTable;
use toml::{Table, Value};

use super::{Field, Section, SectionType};

/// The text of a configuration file.
#[derive(Clone, Debug)]
pub struct File {
    path: PathBuf,
    text: String,
}

/// The parsed file and the environment variables.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    file: Option<(PathBuf, Table)>,
    environment: BTreeMap<String, String>,
}

/// Where a setting comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Default,
    File(PathBuf),
    Variable(String),
}

/// The current value of a setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    pub name: String,
    pub about: &'static str,
    /// `None` if it is not set and has no default.
    pub value: Option<Value>,
    pub origin: Origin,
}

/// What is wrong with the configuration, and where.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {path}: {source}")]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error(
        "{path} no longer contains any settings; keeping the previous ones",
        path = path.display()
    )]
    Emptied { path: PathBuf },
    #[error("{path}:{line}:{column}: {message}", path = path.display())]
    InFile { path: PathBuf, line: usize, column: usize, message: String },
    #[error("{name}: {message}")]
    InSetting { name: String, message: String },
}

impl File {
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(Self { path: path.to_owned(), text }),
            Err(source) => Err(ConfigError::Unreadable { path: path.to_owned(), source }),
        }
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file has no settings: it is empty, or has only comments and empty sections.
    #[must_use]
    pub fn sets_nothing(&self) -> bool {
        let empty = |value: &Value| value.as_table().is_some_and(Table::is_empty);
        self.text.parse::<Table>().is_ok_and(|table| table.values().all(empty))
    }

    /// Checks the whole file against the known sections.
    pub fn check(&self, kinds: &[SectionType]) -> Result<(), ConfigError> {
        let table = DeTable::parse(&self.text).map_err(|error| self.error(&error))?;
        for (name, section) in table.into_inner() {
            match kinds.iter().find(|kind| kind.name == name.get_ref()) {
                Some(kind) => kind.check(section).map_err(|error| self.error(&error))?,
                None => {
                    let known =
                        kinds.iter().map(|kind| format!("`{}`", kind.name)).collect::<Vec<_>>().join(", ");
                    let message = format!("unknown section `{}`, expected one of {known}", name.get_ref());
                    return Err(self.error_at(name.span().start, message));
                }
            }
        }
        Ok(())
    }

    /// Refuses a setting of an earlier version. `by` names the setting to use instead.
    pub fn refuse_replaced(&self, section: &str, key: &str, by: &str) -> Result<(), ConfigError> {
        let table = DeTable::parse(&self.text).map_err(|error| self.error(&error))?;
        let section = table.get_ref().iter().find(|(name, _)| name.get_ref() == section);
        let keys = section.and_then(|(_, values)| values.get_ref().as_table());
        match keys.and_then(|keys| keys.keys().find(|name| name.get_ref() == key)) {
            Some(name) => Err(self.error_at(name.span().start, format!("`{key}` has been replaced by {by}"))),
            None => Ok(()),
        }
    }

    fn error(&self, error: &toml::de::Error) -> ConfigError {
        self.error_at(error.span().map_or(0, |span| span.start), plain_serde_error(error.message()))
    }

    fn error_at(&self, offset: usize, message: String) -> ConfigError {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        ConfigError::InFile {
            path: self.path.clone(),
            line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
            column: 1 + String::from_utf8_lossy(&before[line_start..]).chars().count(),
            message,
        }
    }
}

impl Layers {
    /// Combines a file that has passed [`File::check`] with environment variables.
    pub fn new(
        file: Option<&File>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let table = |file: &File| match file.text.parse::<Table>() {
            Ok(table) => Ok((file.path.clone(), table)),
            Err(error) => Err(file.error(&error)),
        };
        Ok(Self {
            file: file.map(table).transpose()?,
            environment: environment.into_iter().filter(|(name, _)| name.starts_with("HOB_")).collect(),
        })
    }

    /// Reads a section.
    pub fn section<S: Section>(&self) -> Result<S, ConfigError> {
        let mut table = self.table::<S>().cloned().unwrap_or_default();
        for field in S::FIELDS {
            let name = field.variable(S::NAME);
            let Some(text) = self.environment.get(&name) else { continue };
            table.insert(field.name.to_owned(), read_variable::<S>(field.name, &name, text)?);
        }
        table.try_into().map_err(|error: toml::de::Error| ConfigError::InSetting {
            name: S::NAME.to_owned(),
            message: plain_serde_error(error.message()),
        })
    }

    /// The settings of a section, each with its origin.
    pub fn settings<S: Section>(&self, section: &S) -> Vec<Setting> {
        let values = Table::try_from(section).unwrap_or_default();
        let in_file: BTreeSet<&str> =
            self.table::<S>().map(|table| table.keys().map(String::as_str).collect()).unwrap_or_default();
        let field_setting = |field: &Field| {
            let variable = field.variable(S::NAME);
            let origin = match &self.file {
                _ if self.environment.contains_key(&variable) => Origin::Variable(variable),
                Some((path, _)) if in_file.contains(field.name) => Origin::File(path.clone()),
                _ => Origin::Default,
            };
            let (name, value) = (field.name.to_owned(), values.get(field.name).cloned());
            Setting { name, about: field.about, value, origin }
        };
        // In a section without declared fields, the operator chooses the names, so all of them come from the file.
        let own = values.iter().filter(|_| S::FIELDS.is_empty()).map(|(name, value)| {
            let origin = self.file.as_ref().map_or(Origin::Default, |(path, _)| Origin::File(path.clone()));
            Setting { name: name.clone(), about: "", value: Some(value.clone()), origin }
        });
        S::FIELDS.iter().map(field_setting).chain(own).collect()
    }

    fn table<S: Section>(&self) -> Option<&Table> {
        self.file.as_ref()?.1.get(S::NAME)?.as_table()
    }
}

/// The value of an environment variable. It is parsed as TOML if the field accepts the result, otherwise it is plain
/// text.
fn read_variable<S: Section>(field: &str, name: &str, text: &str) -> Result<Value, ConfigError> {
    let fits = |value: &Value| {
        let table = Table::from_iter([(field.to_owned(), value.clone())]);
        table.try_into::<S>().map_err(|error: toml::de::Error| plain_serde_error(error.message()))
    };
    let plain = Value::String(text.to_owned());
    let as_toml = format!("value = {text}").parse::<Table>().ok().and_then(|mut table| table.remove("value"));
    if let Some(value) = as_toml {
        match fits(&value) {
            Ok(_) => return Ok(value),
            Err(message) if fits(&plain).is_err() => {
                return Err(ConfigError::InSetting { name: name.to_owned(), message });
            }
            Err(_) => {}
        }
    }
    match fits(&plain) {
        Ok(_) => Ok(plain),
        Err(message) => Err(ConfigError::InSetting { name: name.to_owned(), message }),
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Variable(name) => f.write_str(name),
        }
    }
}
