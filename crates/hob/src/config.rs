//! The configuration of the program: the sections of `hob.toml`, and how they are loaded.

mod environment;
mod example;
mod sections;
mod show;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use hob_net::Outbound;
use hob_service::Section;
use hob_service::config::{
    ConfigError, File, Layers, LiveSection, LiveSender, Mistakes, Replaced, SectionType,
};
use hob_web::{Registration, SignInConfig};

pub(crate) use hob_service::config::SecretsConfig;
pub(crate) use sections::{DatabaseConfig, NodeConfig, OutboundConfig, RedisConfig, TracingConfig};
pub(crate) use show::run;

use crate::services;
use environment::Environment;

/// Used if no other file is given and it exists.
pub(crate) const DEFAULT_FILE: &str = "hob.toml";

/// Settings of earlier versions that restricted outbound connections. As a variable they would only cause a warning.
const REPLACED: [Replaced; 2] = [
    Replaced { section: "uptime", key: "private_targets", by: "[outbound] private" },
    Replaced { section: "uptime", key: "allowed_networks", by: "[outbound] allow" },
];

/// The names in scopes such as `uptime:read`.
pub(crate) const SCOPE_NAMES: [&str; 7] =
    ["gateway", "uptime", "chat", "load", "pipelines", "console", "metrics"];

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
    pub(crate) tracing: TracingConfig,
}

impl Config {
    fn from_layers(layers: &Layers) -> Result<Self, ConfigError> {
        Ok(Self {
            node: layers.section()?,
            redis: layers.section()?,
            database: layers.section()?,
            server: layers.section()?,
            sign_in: layers.section()?,
            outbound: layers.section()?,
            secrets: layers.section()?,
            tracing: layers.section()?,
        })
    }

    /// What is wrong with the access to this node. Not part of the checks of the sections, because flags of `hob serve` may
    /// change the addresses.
    pub(crate) fn access_mistakes(&self) -> (Mistakes, Mistakes) {
        let (mut server, mut redis) = (Mistakes::default(), Mistakes::default());
        let admin = match self.server.admin() {
            Ok(admin) => admin,
            Err(error) => {
                let is_address = matches!(error, hob_web::Error::AdminTokenRequired(_));
                server.add(if is_address { "listen" } else { "admin_token" }, error);
                return (server, redis);
            }
        };
        let is_embedded = matches!(self.redis.address(), Ok(hob_store::Address::Embedded));
        let listen = self.redis.embedded_listen;
        if is_embedded && admin.is_none() && !listen.ip().is_loopback() {
            let message = format!(
                "cannot listen on {listen} for Redis clients without an admin token; set HOB_ADMIN_TOKEN or [server] \
                 admin_token, or use a loopback address"
            );
            redis.add("embedded_listen", message);
        }
        (server, redis)
    }

    /// Names of services that do not exist.
    fn unknown_names(&self, layers: &Layers, file: Option<&File>) -> Vec<ConfigError> {
        let with_secrets = services::ALL.iter().filter(|service| service.uses_secrets);
        let known = with_secrets.map(Registration::name).collect::<Vec<_>>();
        let mut errors = layers.locate::<SecretsConfig>(file, self.secrets.unknown_services(&known));
        errors.extend(layers.locate::<SignInConfig>(file, self.sign_in.unknown_services(&SCOPE_NAMES)));
        errors
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
        SectionType::of::<TracingConfig>(),
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

    /// Checks the files that the program and the services in `only` use, or all services if it is empty. A node need not
    /// have the files of a service that it does not run.
    pub(crate) fn check_files(&self, only: &[String]) -> Result<(), ConfigError> {
        ConfigError::combine(self.file_mistakes(only))
    }

    /// Everything that `hob serve` would refuse without flags: files, and access without a token.
    pub(crate) fn check_all(&self) -> Result<(), ConfigError> {
        let mut mistakes = self.file_mistakes(&[]);
        mistakes.extend(self.locate_access_mistakes(&self.config));
        ConfigError::combine(mistakes)
    }

    /// Checks the access to a node with this configuration, which flags may have changed.
    pub(crate) fn check_access(&self, config: &Config) -> Result<(), ConfigError> {
        ConfigError::combine(self.locate_access_mistakes(config))
    }

    fn locate_access_mistakes(&self, config: &Config) -> Vec<ConfigError> {
        let (server, redis) = config.access_mistakes();
        let file = self.file.as_ref();
        let mut errors = self.layers.locate::<hob_web::Config>(file, server);
        errors.extend(self.layers.locate::<RedisConfig>(file, redis));
        errors.into_iter().map(|error| self.environment.explain(error)).collect()
    }

    fn file_mistakes(&self, only: &[String]) -> Vec<ConfigError> {
        let is_service = |kind: &SectionType| services::ALL.iter().any(|service| service.name() == kind.name);
        let runs = |kind: &SectionType| only.is_empty() || only.iter().any(|name| name == kind.name);
        let used = kinds().into_iter().filter(|kind| !is_service(kind) || runs(kind));
        let mistakes = used.flat_map(|kind| kind.file_mistakes(&self.layers, self.file.as_ref()));
        mistakes.map(|error| self.environment.explain(error)).collect()
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

/// Loads the given file, or `hob.toml` if it exists, and the environment. The error lists all mistakes.
pub(crate) fn load(named: Option<&Path>) -> Result<Loaded, ConfigError> {
    let default = Path::new(DEFAULT_FILE);
    let path = named.or_else(|| default.exists().then_some(default));
    let mut file = path.map(File::read).transpose()?;
    let variables = environment::of_process();
    let mut errors = file.as_mut().map(|file| file.check(&kinds(), &REPLACED)).unwrap_or_default();
    errors.extend(replaced_variables(&variables));
    let (environment, unusable) = Environment::new(variables, file.as_ref(), &kinds())?;
    let mut layers = Layers::new(file.as_ref(), environment.layer());
    let mut settings = Vec::new();
    for kind in kinds() {
        let mut found = kind.remove_bad_variables(&mut layers);
        found.extend(kind.mistakes(&layers, file.as_ref()));
        errors.extend(found.into_iter().map(|error| environment.explain(error)));
        settings.extend(kind.settings(&layers)?);
    }
    let config = Config::from_layers(&layers)?;
    errors.extend(config.unknown_names(&layers, file.as_ref()));
    // A variable of a key schema may also be an alias of a setting.
    let reported: BTreeSet<String> =
        errors.iter().filter_map(ConfigError::setting).map(str::to_owned).collect();
    let is_new = |error: &ConfigError| error.setting().is_none_or(|name| !reported.contains(name));
    errors.extend(unusable.into_iter().filter(is_new));
    ConfigError::combine(errors)?;
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

fn replaced_variables(variables: &BTreeMap<String, String>) -> Vec<ConfigError> {
    let variable = |Replaced { section, key, by }: &Replaced| {
        let name = format!("HOB_{section}_{key}").to_ascii_uppercase();
        let by = format!("HOB_{}", by.replace(['[', ']'], "").replace(' ', "_")).to_ascii_uppercase();
        let message = format!("has been replaced by {by}");
        variables.contains_key(&name).then_some(ConfigError::InSetting { name, message })
    };
    REPLACED.iter().filter_map(variable).collect()
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
