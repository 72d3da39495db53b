//! What the systems stand on, opened as it is configured: hot state, records, the house around them.

use std::io::ErrorKind;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use hob_engine::{Engine, Listener};
use hob_hot::{Address, Hot};
use hob_house::config::Secrets;
use hob_house::keys::Keys;
use hob_house::nodes::{self, Claim};
use hob_house::{House, Live, NodeName};
use hob_records::Records;
use hob_schema::Layout;
use hob_web::Stage;

use crate::config::{Config, HotConfig, NodeConfig, SecretsConfig};
use crate::records;

/// The house, and the store that is embedded in it, if one is.
pub(crate) struct Foundation {
    pub(crate) house: House,
    pub(crate) keys: Keys,
    pub(crate) store: Option<Store>,
}

/// The embedded store, and where other Redis clients reach it.
pub(crate) struct Store {
    pub(crate) engine: Engine,
    pub(crate) listener: Listener,
}

impl Foundation {
    pub(crate) async fn open(
        config: &Config,
        secrets: Live<SecretsConfig>,
        stage: Stage,
    ) -> Result<Foundation> {
        // Before anything is made: a server that nobody may reach does not leave records behind.
        config.server.admin()?;
        let address = config.hot.address()?;
        let node = config.node.name()?;
        let store = match address {
            Address::Embedded => Some(Store::open(config, stage).await?),
            _ => None,
        };
        let records = records::open(&config.records).await?;
        let hot = match &store {
            Some(store) => Hot::embedded(&store.engine),
            None => Hot::open(&address).with_context(|| format!("could not open {address}"))?,
        };
        let layout = if address.is_cluster() { Layout::Tagged } else { Layout::Plain };
        let keys = Keys::from_env(layout, &|name| std::env::var(name).ok()).context("HOB_KEY_PREFIX")?;
        refuse_foreign(&hot, &keys, &records).await?;
        let mut house = House::new(hot, layout, records, node);
        house.secrets = Secrets::new(secrets);
        Ok(Foundation { house, keys, store })
    }
}

/// Two sets of records over one hot state would rebuild it from different truths. A store that does not answer now is
/// claimed later, with the node's beat.
async fn refuse_foreign(hot: &Hot, keys: &Keys, records: &Records) -> Result<()> {
    match nodes::claim(hot, keys, records.id()).await {
        Ok(Claim::Taken(other)) => bail!(
            "this hot state belongs to other records ({other}): use those, or another hot state, or another \
             HOB_KEY_PREFIX"
        ),
        Ok(Claim::Ours) => Ok(()),
        Err(error) => {
            tracing::warn!(%error, "hot state does not answer yet");
            Ok(())
        }
    }
}

impl Store {
    async fn open(config: &Config, stage: Stage) -> Result<Store> {
        const MIB: usize = 1024 * 1024;
        // Whoever may not use the API may not go round it either.
        let password = config.server.admin()?;
        let config = &config.hot;
        let engine = Engine::new(hob_engine::Config {
            max_memory_bytes: config.store_memory_mib as usize * MIB,
            password: password.map(|password| password.reveal().to_owned()),
            ..hob_engine::Config::default()
        });
        let listener = match Listener::bind(engine.clone(), config.store_listen).await {
            Err(error) if error.kind() == ErrorKind::AddrInUse && stage == Stage::Demo => {
                Listener::bind(engine.clone(), SocketAddr::new(config.store_listen.ip(), 0)).await
            }
            bound => bound,
        };
        let listener =
            listener.with_context(|| format!("the store could not listen on {}", config.store_listen))?;
        Ok(Store { engine, listener })
    }
}

impl HotConfig {
    pub(crate) fn address(&self) -> Result<Address> {
        let address = match &self.url {
            Some(url) => url.reveal().parse(),
            None => Address::from_env(),
        };
        address.context("the address of hot state")
    }
}

impl NodeConfig {
    fn name(&self) -> Result<NodeName> {
        match &self.name {
            Some(name) => name.parse().context("node.name"),
            None => Ok(NodeName::random()),
        }
    }
}
