//! The configuration of the whole program: which sections `hob.toml` has, and how they are read.

mod example;
mod sections;
mod show;

use std::path::Path;

use anyhow::Result;
use hob_house::config::{BadConfig, File, Layers, Setting};
use hob_house::{Live, Section};
use serde::Deserialize;

pub(crate) use hob_house::config::SecretsConfig;
pub(crate) use sections::{HotConfig, NodeConfig, RecordsConfig};
pub(crate) use show::run;

/// Read when no other file is named, and it is there.
const DEFAULT_FILE: &str = "hob.toml";

/// Lists the sections once: the struct, what a file may hold, what is shown and what is explained follow from it.
/// Some are only read at the start, the others may change while they are in use.
macro_rules! sections {
    (
        at_start { $($fixed:ident: $fixed_kind:ty,)* }
        live { $($name:ident: $kind:ty,)* }
    ) => {
        /// Everything that is configured.
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub(crate) struct Config {
            $(pub(crate) $fixed: $fixed_kind,)*
            $(pub(crate) $name: $kind,)*
        }

        impl Config {
            fn from_layers(layers: &Layers) -> Result<Self, BadConfig> {
                Ok(Self {
                    $($fixed: layers.section()?,)*
                    $($name: layers.section()?,)*
                })
            }

            /// The settings that are in force, by section.
            fn settings(&self, layers: &Layers) -> Vec<Shown> {
                vec![$(Shown::new(layers, &self.$fixed),)* $(Shown::new(layers, &self.$name),)*]
            }
        }

        /// The sections that may change while they are in use.
        pub(crate) struct LiveConfig {
            $(pub(crate) $name: Live<$kind>,)*
        }

        /// The means to replace them.
        pub(crate) struct Replace {
            $($name: hob_house::config::Replace<$kind>,)*
        }

        /// What of the configuration may change, as it is now, and the means to replace it.
        pub(crate) fn live(config: Config) -> (LiveConfig, Replace) {
            $(let $name = Live::new(config.$name);)*
            (LiveConfig { $($name: $name.0,)* }, Replace { $($name: $name.1,)* })
        }

        impl Replace {
            /// Puts another configuration into force. What is only read at the start waits for the next one.
            pub(crate) fn replace(&self, config: Config) {
                $(self.$name.replace(config.$name);)*
            }
        }
    };
}

sections! {
    at_start {
        node: NodeConfig,
        hot: HotConfig,
        records: RecordsConfig,
    }
    live {
        server: hob_web::Config,
        secrets: SecretsConfig,
        gateway: hob_gateway::Config,
        uptime: hob_uptime::Config,
        chat: hob_chat::Config,
        loadtest: hob_loadtest::Config,
        pipeline: hob_pipeline::Config,
    }
}

/// A section with its settings.
#[derive(Debug)]
struct Shown {
    name: &'static str,
    about: &'static str,
    settings: Vec<Setting>,
}

impl Shown {
    fn new<S: Section>(layers: &Layers, section: &S) -> Self {
        Self { name: S::NAME, about: S::ABOUT, settings: layers.settings(section) }
    }
}

/// The configuration, and where it came from.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    layers: Layers,
    file: Option<File>,
}

impl Loaded {
    fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(File::path)
    }
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
    let config = Config::from_layers(&layers)?;
    config.secrets.check_systems(&[hob_uptime::Config::NAME, hob_pipeline::Config::NAME])?;
    Ok(Loaded { config, layers, file })
}

/// Reads the configuration of a running process again. A file that was there when `last` was read must still be
/// there, and must still set something: an editor or a deployment that replaces it may leave it missing or empty for a
/// moment, and the defaults are not what the operator asked for.
pub(crate) fn reload(named: Option<&Path>, last: &Loaded) -> Result<Loaded, BadConfig> {
    let loaded = load(named.or(last.path()))?;
    match (&loaded.file, &last.file) {
        (Some(now), Some(before)) if now.sets_nothing() && !before.sets_nothing() => {
            Err(BadConfig::Emptied { path: now.path().to_owned() })
        }
        _ => Ok(loaded),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutated_configurations_are_read_within_limits() {
        const FILE: &str = "[server]\nlisten = \"127.0.0.1:7070\"\n[secrets.smtp]\nfrom = \"env:SMTP\"\nfor = [\"uptime\"]\nhosts = [\"a.example\"]\n[gateway]\n\
            upstream = [\"http://127.0.0.1:3000\"]\n[[gateway.rules]]\nname = \"a\"\nwindows = \"20/1s, 500/1m\"\n\
            [uptime]\nkeep_results = \"7d\"\n[pipeline]\n[loadtest]\n[chat]\n";
        let test = "config::tests::mutated_configurations_are_read_within_limits";
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hob.toml");
        let example = include_str!("../../../../hob.example.toml");
        hob_testkit::fuzz(test, &[FILE, example], |text| {
            std::fs::write(&path, text).unwrap();
            drop(load(Some(&path)));
        });
    }
}
