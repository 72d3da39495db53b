//! A plan as a person hands it in: its text, and the files that the text names.

use std::collections::BTreeMap;

use super::{Format, Mistake, Plan, Position};

/// A plan that was not understood yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub source: String,
    pub format: Format,
    pub files: Files,
}

/// The files of a plan, by the names under which it speaks of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Files(BTreeMap<String, String>);

impl Written {
    /// A plan in TOML that names no files.
    #[must_use]
    pub fn toml(source: impl Into<String>) -> Self {
        Self { source: source.into(), format: Format::Toml, files: Files::default() }
    }

    /// Reads and checks the plan.
    pub fn read(&self) -> Result<Plan, Mistake> {
        self.files.check()?;
        Plan::read_with(&self.source, self.format, &|name| {
            let file = self.files.0.get(name).cloned();
            file.ok_or_else(|| format!("no file {name:?} was given with the plan"))
        })
    }
}

impl Files {
    pub const MOST: usize = 16;
    /// Of all together.
    pub const MOST_BYTES: usize = 512 << 10;
    const LONGEST_NAME: usize = 100;

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

    /// Puts a file in the place of the one of that name. One that is empty is taken away.
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
        if self.0.len() > Self::MOST {
            return wrong("", format!("a plan has at most {} files", Self::MOST));
        }
        let mut bytes = 0;
        for (name, text) in &self.0 {
            let is_plain = |sign: char| sign.is_alphanumeric() || "-_. ".contains(sign);
            if !(1..=Self::LONGEST_NAME).contains(&name.len()) || !name.chars().all(is_plain) {
                return wrong(
                    name,
                    "a file's name has letters, digits, -, _ and dots, no folders".to_owned(),
                );
            }
            bytes += text.len();
            if bytes > Self::MOST_BYTES {
                let most = Self::MOST_BYTES >> 10;
                return wrong(name, format!("the files of a plan have at most {most} KiB together"));
            }
        }
        Ok(())
    }
}
