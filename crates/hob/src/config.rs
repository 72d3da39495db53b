//! The configuration of the program: the sections of `hob.toml`, and how they are loaded.

mod environment;
mod example;
mod sections;
mod show;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use hob_net::Outbound;
use hob_service::Section;
use hob_service::config::{ConfigError, File, Layers, LiveSection, LiveSender, SectionType};
use hob_web::{Registration, SignInConfig};

pub(crate) use hob_service::config::SecretsConfig;
pub(crate) use sections::{DatabaseConfig, NodeConfig, OutboundConfig, RedisConfig};
pub(crate) use show::run;

use crate::services;
use environment::Environment;

/// Used if no other file is given and it exists.
const DEFAULT_FILE: &str = "hob.toml";

/// Settings that others have replaced.
const REPLACED: [(&str, &str, &str); 2] =
    [("uptime", "private_targets", "private"), ("uptime", "allowed_networks", "allow")];

/// The sections of the program. For those of the services, see [`LiveServices`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    pub(crate) node: NodeConfig,
    pub(crate) redis: RedisConfig,
    pub(crate) database: DatabaseConfig,
    pub(crate) server: hob_web::Config,
    pub(crate) sign_in: SignInConfig,
    pub(crate) outbound: OutboundConfig,
    pub(crate) secrets: SecretsConfig,
}

impl Config {
    fn from_layers(layers: &Layers) -> Result<Self, ConfigError> {
        let config = Self {
            node: layers.section()?,
            redis: layers.section()?,
            database: layers.section()?,
            server: layers.section()?,
            sign_in: layers.section()?,
            outbound: layers.section()?,
            secrets: layers.section()?,
        };
        let with_secrets = services::ALL.iter().filter(|service| service.uses_secrets);
        config.secrets.check_services(&with_secrets.map(Registration::name).collect::<Vec<_>>())?;
        Ok(config)
    }
}

/// All sections, in the order of the documentation.
fn kinds() -> Vec<SectionType> {
    let own = [
        SectionType::of::<NodeConfig>(),
        SectionType::of::<RedisConfig>(),
        SectionType::of::<DatabaseConfig>(),
        SectionType::of::<hob_web::Config>(),
        SectionType::of::<SignInConfig>(),
        SectionType::of::<OutboundConfig>(),
        SectionType::of::<SecretsConfig>(),
    ];
    own.into_iter().chain(services::ALL.iter().map(|service| service.section)).collect()
}

/// The sections of the services, which can be reloaded.
#[derive(Debug)]
pub(crate) struct LiveServices(BTreeMap<&'static str, LiveSection>);

impl LiveServices {
    /// The defaults of all services.
    #[cfg(test)]
    pub(crate) fn defaults() -> Self {
        Self::new(&Layers::default()).expect("the defaults are valid")
    }

    fn new(layers: &Layers) -> Result<Self, ConfigError> {
        let live = |service: &Registration| Ok((service.name(), service.section.live(layers)?));
        services::ALL.iter().map(live).collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn section(&self, service: &Registration) -> &LiveSection {
        self.0.get(service.name()).expect("every service has a section")
    }

    fn replace(&self, layers: &Layers) -> Result<(), ConfigError> {
        self.0.values().try_for_each(|section| section.replace(layers))
    }
}

/// The settings that can be reloaded.
pub(crate) struct Live {
    pub(crate) server: hob_service::Live<hob_web::Config>,
    pub(crate) sign_in: hob_service::Live<SignInConfig>,
    pub(crate) secrets: hob_service::Live<SecretsConfig>,
    pub(crate) outbound: Outbound,
    pub(crate) services: Arc<LiveServices>,
    replace_server: LiveSender<hob_web::Config>,
    replace_sign_in: LiveSender<SignInConfig>,
    replace_secrets: LiveSender<SecretsConfig>,
}

impl Live {
    /// Applies a reloaded configuration. Settings that are read once take effect at the next start.
    pub(crate) fn replace(&self, config: Config, loaded: &Loaded) -> Result<(), ConfigError> {
        self.services.replace(&loaded.layers)?;
        self.outbound.replace(config.outbound.policy(config.server.listen));
        self.replace_sign_in.replace(config.sign_in);
        self.replace_server.replace(config.server);
        self.replace_secrets.replace(config.secrets);
        Ok(())
    }
}

/// The loaded configuration and its sources.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    layers: Layers,
    environment: Environment,
    unknown_variables: Vec<String>,
    contradictions: Vec<String>,
    file: Option<File>,
}

impl Loaded {
    /// The settings that can be reloaded, with `config` for the sections of the program.
    pub(crate) fn live(&self, config: Config) -> Result<Live, ConfigError> {
        let outbound = Outbound::new(config.outbound.policy(config.server.listen));
        let (server, replace_server) = hob_service::Live::new(config.server);
        let (sign_in, replace_sign_in) = hob_service::Live::new(config.sign_in);
        let (secrets, replace_secrets) = hob_service::Live::new(config.secrets);
        let services = Arc::new(LiveServices::new(&self.layers)?);
        Ok(Live {
            server,
            sign_in,
            secrets,
            outbound,
            services,
            replace_server,
            replace_sign_in,
            replace_secrets,
        })
    }

    /// A section of a service.
    pub(crate) fn section<S: Section>(&self) -> Result<S, ConfigError> {
        self.layers.section().map_err(|error| self.environment.explain(error))
    }

    /// The addresses that a command in the terminal may connect to.
    pub(crate) fn terminal_outbound(&self) -> Outbound {
        Outbound::new(self.config.outbound.terminal_policy())
    }

    /// Environment variables that start with `HOB_` and set nothing: spelling mistakes, most likely.
    pub(crate) fn unknown_variables(&self) -> &[String] {
        &self.unknown_variables
    }

    /// Settings that are valid, but do not fit together.
    pub(crate) fn contradictions(&self) -> &[String] {
        &self.contradictions
    }

    fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(File::path)
    }
}

/// Loads the given file, or `hob.toml` if it exists, and the environment.
pub(crate) fn load(named: Option<&Path>) -> Result<Loaded, ConfigError> {
    let default = Path::new(DEFAULT_FILE);
    let path = named.or_else(|| default.exists().then_some(default));
    let file = path.map(File::read).transpose()?;
    let variables = environment::of_process();
    refuse_replaced(file.as_ref(), &variables)?;
    if let Some(file) = &file {
        // Finds unknown sections, and reports mistakes with their line.
        file.check(&kinds())?;
    }
    let environment = Environment::new(variables, file.as_ref(), &kinds())?;
    let layers = Layers::new(file.as_ref(), environment.layer())?;
    let read = || {
        let settings = kinds().iter().map(|kind| kind.settings(&layers)).collect::<Result<Vec<_>, _>>()?;
        Ok((Config::from_layers(&layers)?, settings.concat()))
    };
    let (config, settings) = read().map_err(|error| environment.explain(error))?;
    let unknown_variables = environment.unknown(&settings);
    let contradictions = find_contradictions(&config, &layers.section()?);
    Ok(Loaded { config, layers, environment, unknown_variables, contradictions, file })
}

fn find_contradictions(config: &Config, chat: &hob_chat::Config) -> Vec<String> {
    let (of_chat, of_server) = (chat.max_connections, config.server.max_connections);
    let too_many = format!(
        "[chat] max_connections ({of_chat}) is larger than [server] max_connections ({of_server}), which limits the \
         connections of the chat as well"
    );
    (of_chat > of_server).then_some(too_many).into_iter().collect()
}

/// Refuses settings of earlier versions that restricted outbound connections, and names their replacement. As a variable
/// they would only cause a warning.
fn refuse_replaced(file: Option<&File>, variables: &BTreeMap<String, String>) -> Result<(), ConfigError> {
    for (section, key, by) in REPLACED {
        if let Some(file) = file {
            file.refuse_replaced(section, key, &format!("[outbound] {by}"))?;
        }
        let name = format!("HOB_{section}_{key}").to_ascii_uppercase();
        if variables.contains_key(&name) {
            let message = format!("has been replaced by HOB_OUTBOUND_{}", by.to_ascii_uppercase());
            return Err(ConfigError::InSetting { name, message });
        }
    }
    Ok(())
}

/// The addresses that a command in the terminal may connect to.
pub(crate) fn terminal_outbound(file: Option<&Path>) -> Result<Outbound, ConfigError> {
    Ok(load(file)?.terminal_outbound())
}

/// The section `[pipeline]` for a command in the terminal.
pub(crate) fn terminal_pipeline(file: Option<&Path>) -> Result<hob_pipeline::Config, ConfigError> {
    let loaded = load(file)?;
    loaded.layers.section().map_err(|error| loaded.environment.explain(error))
}

/// Loads the configuration again. A file that existed and set something before must still do so: an editor or a
/// deployment may leave it missing or empty for a moment.
pub(crate) fn reload(named: Option<&Path>, last: &Loaded) -> Result<Loaded, ConfigError> {
    let loaded = load(named.or(last.path()))?;
    match (&loaded.file, &last.file) {
        (Some(now), Some(before)) if now.sets_nothing() && !before.sets_nothing() => {
            Err(ConfigError::Emptied { path: now.path().to_owned() })
        }
        _ => Ok(loaded),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutated_configurations_are_read_within_limits() {
        const FILE: &str = "[server]\nlisten = \"127.0.0.1:7070\"\n[sign_in.oidc]\nissuer = \"https://a.example\"\n\
            client_id = \"hob\"\nredirect_url = \"https://b.example/sign-in/oidc/callback\"\n\
            roles = [{ group = \"a\", role = \"viewer\" }]\n[secrets.smtp]\nfrom = \"env:SMTP\"\nfor = [\"uptime\"]\nhosts = [\"a.example\"]\n[gateway]\n\
            upstream = [\"http://127.0.0.1:3000\"]\n[[gateway.rules]]\nname = \"a\"\nwindows = \"20/1s, 500/1m\"\n\
            [uptime]\nkeep_results = \"7d\"\n[pipeline]\n[load]\n[chat]\n";
        let test = "config::tests::mutated_configurations_are_read_within_limits";
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hob.toml");
        let example = include_str!("../../../hob.example.toml");
        hob_testkit::fuzz(test, &[FILE, example], |text| {
            std::fs::write(&path, text).unwrap();
            drop(load(Some(&path)));
        });
    }
}
