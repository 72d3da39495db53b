//! Opens the store and the database, and creates the context of the services.

use std::io::ErrorKind;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use hob_database::Database;
use hob_engine::{Engine, Listener};
use hob_schema::Layout;
use hob_service::config::Secrets;
use hob_service::keys::Keys;
use hob_service::nodes::{self, StoreClaim};
use hob_service::{NodeName, ServiceContext};
use hob_store::{Address, Store};
use hob_web::DataKind;

use crate::config::{Config, Live, NodeConfig, RedisConfig};
use crate::database;

/// The context of the services, and the embedded engine if it is used.
pub(crate) struct Backends {
    pub(crate) context: ServiceContext,
    pub(crate) keys: Keys,
    pub(crate) embedded: Option<EmbeddedStore>,
}

/// The embedded engine and its listener for Redis clients.
pub(crate) struct EmbeddedStore {
    pub(crate) engine: Engine,
    pub(crate) listener: Listener,
}

impl Backends {
    pub(crate) async fn open(config: &Config, live: &Live, data: DataKind) -> Result<Backends> {
        // The store is opened first, so that a server that fails to start does not create a database.
        config.server.admin()?;
        let address = config.redis.address()?;
        let node = config.node.name()?;
        let embedded = match address {
            Address::Embedded => Some(EmbeddedStore::open(config, data).await?),
            _ => None,
        };
        let database = database::open(&config.database).await?;
        let store = match &embedded {
            Some(embedded) => Store::embedded(&embedded.engine),
            None => Store::open(&address).with_context(|| format!("cannot open {address}"))?,
        };
        let layout = if address.is_cluster() { Layout::Tagged } else { Layout::Plain };
        let keys = Keys::from_env(layout, &|name| std::env::var(name).ok()).context("HOB_KEY_PREFIX")?;
        check_store_owner(&store, &keys, &database).await?;
        let mut context = ServiceContext::new(store, layout, database, node);
        context.secrets = Secrets::new(live.secrets.clone());
        context.outbound = live.outbound.clone();
        context.tracer = config.tracing.tracer(&context.node)?;
        Ok(Backends { context, keys, embedded })
    }
}

/// Fails if the store belongs to another database, because both deployments would overwrite each other's keys. A store
/// that is unavailable now is claimed later, by the heartbeat of the node.
async fn check_store_owner(store: &Store, keys: &Keys, database: &Database) -> Result<()> {
    match nodes::claim(store, keys, database.id()).await {
        Ok(StoreClaim::Taken(other)) => {
            bail!(
                "this Redis belongs to another database ({other}); use that database or another Redis, or delete Hob's keys \
                 after a restore"
            )
        }
        Ok(StoreClaim::Ours) => Ok(()),
        Err(error) => {
            tracing::warn!(%error, "store is not available yet");
            Ok(())
        }
    }
}

impl EmbeddedStore {
    async fn open(config: &Config, data: DataKind) -> Result<EmbeddedStore> {
        const MIB: usize = 1024 * 1024;
        // The port of the store needs the same protection as the API.
        let password = config.server.admin()?;
        let config = &config.redis;
        let engine = Engine::new(hob_engine::Config {
            max_memory_bytes: config.embedded_memory_mib as usize * MIB,
            password: password.map(|password| password.reveal().to_owned()),
            ..hob_engine::Config::default()
        });
        let listener = match Listener::bind(engine.clone(), config.embedded_listen).await {
            Err(error) if error.kind() == ErrorKind::AddrInUse && data == DataKind::Demo => {
                Listener::bind(engine.clone(), SocketAddr::new(config.embedded_listen.ip(), 0)).await
            }
            bound => bound,
        };
        let listener = listener
            .with_context(|| format!("cannot listen on {} for Redis clients", config.embedded_listen))?;
        Ok(EmbeddedStore { engine, listener })
    }
}

impl RedisConfig {
    pub(crate) fn address(&self) -> Result<Address> {
        match &self.url {
            Some(url) => url.reveal().parse().context("[redis] url"),
            None => Ok(Address::Embedded),
        }
    }
}

impl NodeConfig {
    fn name(&self) -> Result<NodeName> {
        match &self.name {
            Some(name) => name.parse().context("[node] name"),
            None => Ok(NodeName::random()),
        }
    }
}
