//! The configuration of the whole program: which sections `hob.toml` has, and how they are read.

mod example;
mod sections;
mod show;

use std::path::{Path, PathBuf};

use anyhow::Result;
use hob_house::Section;
use hob_house::config::{BadConfig, File, Layers, SecretsConfig, Setting};
use serde::Deserialize;

pub(crate) use sections::{HotConfig, RecordsConfig, ServerConfig};
pub(crate) use show::run;

/// Read when no other file is named, and it is there.
const DEFAULT_FILE: &str = "hob.toml";

/// Lists the sections once: the struct, what a file may hold, what is shown and what is explained follow from it.
macro_rules! sections {
    ($($name:ident: $kind:ty,)*) => {
        /// Everything that is configured.
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub(crate) struct Config {
            $(pub(crate) $name: $kind,)*
        }

        impl Config {
            fn from_layers(layers: &Layers) -> Result<Self, BadConfig> {
                Ok(Self { $($name: layers.section::<$kind>()?,)* })
            }

            /// The settings that are in force, by section.
            fn settings(&self, layers: &Layers) -> Vec<Shown> {
                vec![$(Shown {
                    name: <$kind>::NAME,
                    about: <$kind>::ABOUT,
                    settings: layers.settings(&self.$name),
                },)*]
            }
        }
    };
}

sections! {
    server: ServerConfig,
    hot: HotConfig,
    records: RecordsConfig,
    secrets: SecretsConfig,
}

/// A section with its settings.
#[derive(Debug)]
struct Shown {
    name: &'static str,
    about: &'static str,
    settings: Vec<Setting>,
}

/// The configuration, and where it came from.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    layers: Layers,
    file: Option<PathBuf>,
}

/// Reads the file that is named, or `hob.toml` if it is there, and the environment.
pub(crate) fn load(named: Option<&Path>) -> Result<Loaded, BadConfig> {
    let default = Path::new(DEFAULT_FILE);
    let path = named.or_else(|| default.exists().then_some(default));
    let file = path.map(File::read).transpose()?;
    if let Some(file) = &file {
        // As a whole, since only this finds sections that nobody knows, and the places of mistakes.
        file.check::<Config>()?;
    }
    let layers = Layers::new(file.as_ref(), std::env::vars())?;
    Ok(Loaded { config: Config::from_layers(&layers)?, layers, file: path.map(Path::to_owned) })
}
