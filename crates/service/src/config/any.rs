//! Type-erased sections: the binary reads, checks, shows and reloads the sections of all services in the same way.

use std::any::Any;
use std::fmt;

use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};

use super::Section;
use super::layers::{ConfigError, Layers, Setting};
use super::live::Live;

/// The type-erased operations of a [`Section`].
#[derive(Clone, Copy)]
pub struct SectionType {
    pub name: &'static str,
    pub about: &'static str,
    check: fn(Spanned<DeValue<'_>>) -> Result<(), toml::de::Error>,
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
            settings: settings::<S>,
            live: LiveSection::new::<S>,
        }
    }

    /// Checks a table of a file. The error has its position in the file.
    pub(super) fn check(&self, table: Spanned<DeValue<'_>>) -> Result<(), toml::de::Error> {
        (self.check)(table)
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
