//! Type-erased sections: the binary reads, checks, shows and reloads the sections of all services in the same way.

use std::any::Any;
use std::fmt;

use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};

use super::layers::{ConfigError, File, Layers, Setting};
use super::live::Live;
use super::{Mistakes, Section};

/// The type-erased operations of a [`Section`].
#[derive(Clone, Copy)]
pub struct SectionType {
    pub name: &'static str,
    pub about: &'static str,
    check: fn(Spanned<DeValue<'_>>) -> Result<(), toml::de::Error>,
    remove_bad_variables: fn(&mut Layers) -> Vec<ConfigError>,
    mistakes: fn(&Layers, Option<&File>) -> Vec<ConfigError>,
    file_mistakes: fn(&Layers, Option<&File>) -> Vec<ConfigError>,
    settings: fn(&Layers) -> Result<Vec<Setting>, ConfigError>,
    live: fn(&Layers) -> Result<LiveSection, ConfigError>,
}

/// The current value of a section, type-erased.
pub struct LiveSection {
    /// A `Live<S>`.
    live: Box<dyn Any + Send + Sync>,
    replace: Box<ReplaceWith>,
}

type ReplaceWith = dyn Fn(&Layers) -> Result<(), ConfigError> + Send + Sync;

impl SectionType {
    #[must_use]
    pub const fn of<S: Section>() -> Self {
        Self {
            name: S::NAME,
            about: S::ABOUT,
            check: check::<S>,
            remove_bad_variables: Layers::remove_bad_variables::<S>,
            mistakes: |layers, file| mistakes::<S>(layers, file, S::mistakes),
            file_mistakes: |layers, file| mistakes::<S>(layers, file, S::file_mistakes),
            settings: settings::<S>,
            live: LiveSection::new::<S>,
        }
    }

    /// Checks a table of a file. The error has its position in the file.
    pub(super) fn check(&self, table: Spanned<DeValue<'_>>) -> Result<(), toml::de::Error> {
        (self.check)(table)
    }

    /// Removes the variables that cannot be read, and returns their errors.
    pub fn remove_bad_variables(&self, layers: &mut Layers) -> Vec<ConfigError> {
        (self.remove_bad_variables)(layers)
    }

    /// What is wrong with the values, and where they are set.
    #[must_use]
    pub fn mistakes(&self, layers: &Layers, file: Option<&File>) -> Vec<ConfigError> {
        (self.mistakes)(layers, file)
    }

    /// What is wrong with the files that the values name.
    #[must_use]
    pub fn file_mistakes(&self, layers: &Layers, file: Option<&File>) -> Vec<ConfigError> {
        (self.file_mistakes)(layers, file)
    }

    /// The current settings, each with its origin. Fails if an environment variable is invalid.
    pub fn settings(&self, layers: &Layers) -> Result<Vec<Setting>, ConfigError> {
        (self.settings)(layers)
    }

    /// Reads the section.
    pub fn live(&self, layers: &Layers) -> Result<LiveSection, ConfigError> {
        (self.live)(layers)
    }
}

fn check<S: Section>(table: Spanned<DeValue<'_>>) -> Result<(), toml::de::Error> {
    S::deserialize(ValueDeserializer::from(table)).map(drop)
}

fn mistakes<S: Section>(layers: &Layers, file: Option<&File>, find: fn(&S) -> Mistakes) -> Vec<ConfigError> {
    match layers.section::<S>() {
        Ok(section) => layers.locate::<S>(file, find(&section)),
        Err(error) => vec![error],
    }
}

fn settings<S: Section>(layers: &Layers) -> Result<Vec<Setting>, ConfigError> {
    Ok(layers.settings(&layers.section::<S>()?))
}

impl LiveSection {
    fn new<S: Section>(layers: &Layers) -> Result<Self, ConfigError> {
        let (live, sender) = Live::<S>::new(layers.section()?);
        let replace = move |layers: &Layers| {
            sender.replace(layers.section()?);
            Ok(())
        };
        Ok(Self { live: Box::new(live), replace: Box::new(replace) })
    }

    /// The section with its type; `None` if `S` is not its type.
    #[must_use]
    pub fn of<S: Section>(&self) -> Option<Live<S>> {
        self.live.downcast_ref::<Live<S>>().cloned()
    }

    /// Reads the section again and replaces its value.
    pub fn replace(&self, layers: &Layers) -> Result<(), ConfigError> {
        (self.replace)(layers)
    }
}

impl fmt::Debug for SectionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SectionType").field(&self.name).finish()
    }
}

impl fmt::Debug for LiveSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveSection").finish_non_exhaustive()
    }
}
