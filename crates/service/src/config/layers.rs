//! The layers of the configuration: defaults, then `hob.toml`, then environment variables. The binary applies its flags
//! on top.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use hob_units::plain_serde_error;
use toml::de::{DeArray, DeTable, DeValue};
use toml::{Spanned, Table, Value};

use super::mistakes::Mistake;
use super::{Field, Mistakes, Section, SectionType};

/// The maximum number of mistakes that are listed.
const MAX_LISTED: usize = 100;

/// A configuration file.
#[derive(Clone, Debug)]
pub struct File {
    path: PathBuf,
    text: String,
    /// Its values. [`check`](File::check) removes those that cannot be read.
    table: Table,
}

/// A setting of an earlier version, and the one that has replaced it.
#[derive(Clone, Copy, Debug)]
pub struct Replaced {
    pub section: &'static str,
    pub key: &'static str,
    /// The section and the key, as in `[outbound] allow`.
    pub by: &'static str,
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
    /// More than one error. `Display` joins them in one line; [`each`](Self::each) returns them one by one.
    #[error("{}", join(.0))]
    Several(Vec<ConfigError>),
}

impl ConfigError {
    /// Combines errors into one; `Ok` if there are none.
    pub fn combine(mut errors: Vec<Self>) -> Result<(), Self> {
        errors.truncate(MAX_LISTED);
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(Self::Several(errors)),
        }
    }

    /// The name of the setting or of the environment variable, if the error is in one.
    #[must_use]
    pub fn setting(&self) -> Option<&str> {
        match self {
            Self::InSetting { name, .. } => Some(name),
            _ => None,
        }
    }

    /// The errors one by one.
    #[must_use]
    pub fn each(&self) -> Vec<&Self> {
        match self {
            Self::Several(errors) => errors.iter().collect(),
            error => vec![error],
        }
    }
}

fn join(errors: &[ConfigError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl File {
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        match std::fs::read_to_string(path) {
            Ok(text) => {
                let table = text.parse().unwrap_or_default();
                Ok(Self { path: path.to_owned(), text, table })
            }
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

    /// Checks the whole file against the known sections, and returns all mistakes. Each field is read by itself, so that one
    /// mistake does not hide another, and a field that cannot be read is removed.
    pub fn check(&mut self, kinds: &[SectionType], replaced: &[Replaced]) -> Vec<ConfigError> {
        let text = std::mem::take(&mut self.text);
        let parsed = DeTable::parse(&text);
        let mut mistakes: Vec<(usize, String)> = Vec::new();
        // Sections, and fields of sections.
        let mut unusable: BTreeSet<(String, Option<String>)> = BTreeSet::new();
        match &parsed {
            Err(error) => mistakes.push((start(error), plain_serde_error(error.message()))),
            Ok(table) => {
                for (name, section) in table.get_ref() {
                    for (key, offset, message) in check_section(kinds, replaced, name, section) {
                        unusable.insert((name.get_ref().to_string(), key));
                        mistakes.push((offset, message));
                    }
                }
            }
        }
        drop(parsed);
        self.text = text;
        self.table.retain(|name, values| {
            if let Value::Table(values) = values {
                values.retain(|key, _| !unusable.contains(&(name.to_owned(), Some(key.to_owned()))));
            }
            !unusable.contains(&(name.to_owned(), None))
        });
        // In the order of the file. Truncated first, because computing the line and column of a mistake scans the text from
        // the start.
        mistakes.sort_by_key(|(offset, _)| *offset);
        mistakes.truncate(MAX_LISTED);
        mistakes.into_iter().map(|(offset, message)| self.error_at(offset, message)).collect()
    }

    /// The offset of a value in the file. If the file does not contain the value, the offset of the innermost table or list
    /// around it that the section in the file does contain.
    fn offset_of(&self, section: &str, path: &str) -> Option<usize> {
        let table = DeTable::parse(&self.text).ok()?;
        let (_, mut value) = table.get_ref().iter().find(|(name, _)| name.get_ref() == section)?;
        let mut found = None;
        for part in path.split(['.', '[']) {
            let next = match (value.get_ref(), part.strip_suffix(']')) {
                (DeValue::Array(list), Some(index)) => list.get(index.parse::<usize>().ok()?),
                (DeValue::Table(table), None) => {
                    table.iter().find(|(name, _)| name.get_ref() == part).map(|(_, value)| value)
                }
                _ => None,
            };
            let Some(next) = next else { break };
            (value, found) = (next, Some(next.span().start));
        }
        found
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
    pub fn new(file: Option<&File>, environment: impl IntoIterator<Item = (String, String)>) -> Self {
        Self {
            file: file.map(|file| (file.path.clone(), file.table.clone())),
            environment: environment.into_iter().filter(|(name, _)| name.starts_with("HOB_")).collect(),
        }
    }

    /// Removes the variables that cannot be read, and returns their errors.
    pub fn remove_bad_variables<S: Section>(&mut self) -> Vec<ConfigError> {
        let mut errors = Vec::new();
        for field in S::FIELDS {
            let name = field.variable(S::NAME);
            let Some(text) = self.environment.get(&name) else { continue };
            if let Err(error) = read_variable::<S>(field.name, &name, text) {
                errors.push(error);
                self.environment.remove(&name);
            }
        }
        errors
    }

    /// Turns mistakes into errors that say where each value is set. `file` must be the file that was passed to
    /// [`new`](Self::new).
    pub fn locate<S: Section>(&self, file: Option<&File>, mistakes: Mistakes) -> Vec<ConfigError> {
        let mistakes = mistakes.into_vec().into_iter().take(MAX_LISTED);
        mistakes.map(|mistake| self.locate_one::<S>(file, mistake)).collect()
    }

    fn locate_one<S: Section>(&self, file: Option<&File>, mistake: Mistake) -> ConfigError {
        let Mistake { path, message } = mistake;
        let key = path.split(['.', '[']).next().unwrap_or_default();
        let variable = S::FIELDS.iter().find(|field| field.name == key).map(|field| field.variable(S::NAME));
        let variable = variable.filter(|name| self.environment.contains_key(name));
        match (variable, file.and_then(|file| Some((file, file.offset_of(S::NAME, &path)?)))) {
            (Some(name), _) if path == key => ConfigError::InSetting { name, message },
            (Some(name), _) => ConfigError::InSetting { name, message: format!("{path}: {message}") },
            (None, Some((file, offset))) => file.error_at(offset, format!("[{}] {path}: {message}", S::NAME)),
            (None, None) => ConfigError::InSetting { name: format!("[{}] {path}", S::NAME), message },
        }
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

/// The mistakes of a section. Each has a key (`None` for the section as a whole), an offset in the file and a message.
fn check_section(
    kinds: &[SectionType],
    replaced: &[Replaced],
    name: &Spanned<impl AsRef<str>>,
    section: &Spanned<DeValue<'_>>,
) -> Vec<(Option<String>, usize, String)> {
    let title = name.get_ref().as_ref();
    let Some(kind) = kinds.iter().find(|kind| kind.name == title) else {
        let known = kinds.iter().map(|kind| format!("`{}`", kind.name)).collect::<Vec<_>>().join(", ");
        let message = format!("unknown section `{title}`, expected one of {known}");
        return vec![(None, name.span().start, message)];
    };
    let DeValue::Table(fields) = section.get_ref() else {
        let message = format!("`{title}` must be a section: write [{title}]");
        return vec![(None, section.span().start, message)];
    };
    let mut found = Vec::new();
    for (key, value) in fields {
        let field: &str = key.get_ref();
        if let Some(Replaced { by, .. }) =
            replaced.iter().find(|replaced| replaced.section == title && replaced.key == field)
        {
            let message = format!("[{title}] `{field}` has been replaced by {by}");
            found.push((Some(field.to_owned()), key.span().start, message));
            continue;
        }
        let read = |value: Spanned<DeValue<'_>>| {
            let alone = DeTable::from_iter([(key.clone(), value)]);
            kind.check(Spanned::new(section.span(), DeValue::Table(alone)))
        };
        let Err(error) = read(value.clone()) else { continue };
        let is_unknown = error.span() == Some(key.span());
        let elements = if is_unknown { Vec::new() } else { elements_with_mistakes(value, &read) };
        if elements.is_empty() {
            let message = format!("[{title}] {field}: {}", plain_serde_error(error.message()));
            found.push((Some(field.to_owned()), start(&error), message));
        }
        for (index, error) in elements {
            let message = format!("[{title}] {field}[{index}]: {}", plain_serde_error(error.message()));
            found.push((Some(field.to_owned()), start(&error), message));
        }
    }
    found
}

/// The elements of a list that are invalid in themselves, each with its error.
fn elements_with_mistakes(
    value: &Spanned<DeValue<'_>>,
    read: &dyn Fn(Spanned<DeValue<'_>>) -> Result<(), toml::de::Error>,
) -> Vec<(usize, toml::de::Error)> {
    let DeValue::Array(list) = value.get_ref() else { return Vec::new() };
    let alone = |element: &Spanned<DeValue<'_>>| {
        let list = DeArray::from_iter([element.clone()]);
        read(Spanned::new(element.span(), DeValue::Array(list))).err()
    };
    list.iter().enumerate().filter_map(|(index, element)| Some((index, alone(element)?))).collect()
}

fn start(error: &toml::de::Error) -> usize {
    error.span().map_or(0, |span| span.start)
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
