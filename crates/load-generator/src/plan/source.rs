//! A plan as a user submits it: its text and its files.

use std::collections::BTreeMap;

use super::{Format, Mistake, Plan, Position};

/// The source of a plan, not checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanSource {
    pub source: String,
    pub format: Format,
    pub files: PlanFiles,
}

/// The files that a plan refers to, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct PlanFiles(BTreeMap<String, String>);

impl PlanSource {
    /// A plan in TOML without files.
    #[must_use]
    pub fn toml(source: impl Into<String>) -> Self {
        Self { source: source.into(), format: Format::Toml, files: PlanFiles::default() }
    }

    /// Reads and checks the plan.
    pub fn read(&self) -> Result<Plan, Mistake> {
        self.files.check()?;
        Plan::read_with(&self.source, self.format, &|name| {
            let file = self.files.0.get(name).cloned();
            file.ok_or_else(|| format!("no file {name:?} in the files of the plan; upload it with the plan"))
        })
    }
}

impl PlanFiles {
    pub const MAX_FILES: usize = 16;
    /// Of all files together.
    pub const MAX_BYTES: usize = 512 << 10;
    const MAX_NAME_LEN: usize = 100;

    #[must_use]
    pub fn new(files: BTreeMap<String, String>) -> Self {
        Self(files)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds or replaces a file. An empty text removes it.
    pub fn put(&mut self, name: &str, text: &str) {
        if text.trim().is_empty() {
            self.0.remove(name);
        } else {
            self.0.insert(name.to_owned(), text.to_owned());
        }
    }

    fn check(&self) -> Result<(), Mistake> {
        let wrong = |name: &str, message: String| {
            Err(Mistake { at: Position::START, field: format!("files.{name}"), message })
        };
        if self.0.len() > Self::MAX_FILES {
            return wrong("", format!("a plan has at most {} files", Self::MAX_FILES));
        }
        let mut bytes = 0;
        for (name, text) in &self.0 {
            let is_plain = |character: char| character.is_alphanumeric() || "-_. ".contains(character);
            if !(1..=Self::MAX_NAME_LEN).contains(&name.len()) || !name.chars().all(is_plain) {
                return wrong(
                    name,
                    "a file name has 1 to 100 letters, digits, spaces, -, _ and dots".to_owned(),
                );
            }
            bytes += text.len();
            if bytes > Self::MAX_BYTES {
                let max = Self::MAX_BYTES >> 10;
                return wrong(name, format!("the files of the plan are larger than {max} KiB in total"));
            }
        }
        Ok(())
    }
}
