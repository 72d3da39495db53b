//! The gateway in its own process, with metrics, Redis as its store and SQLite as its database.

use anyhow::{Context, Result};
use hob_database::Database;
use hob_gateway::{Config, Gateway, MIGRATIONS};
use hob_schema::Layout;
use hob_service::{Live, NodeName, ServiceContext};
use hob_store::{Address, Store};
use hob_web::Service as _;
use metrics_exporter_prometheus::PrometheusBuilder;

/// Serves until it is killed. `store` is the address of a Redis server.
#[tokio::main]
pub(crate) async fn run(toml: &str, store: &str) -> Result<()> {
    let _metrics = PrometheusBuilder::new().install_recorder().context("no recorder")?;
    let folder = tempfile::tempdir()?;
    let database = folder.path().join("hob.db").display().to_string();
    let store = Store::connect(&store.parse::<Address>()?).await?;
    let database = Database::open(&database.parse()?, &[MIGRATIONS]).await?;
    let context = ServiceContext::new(store, Layout::Plain, database, NodeName::random());
    let gateway = Gateway::open(&context, Live::fixed(toml::from_str::<Config>(toml)?)).await?;
    gateway.start(&hob_web::Changes::detached(&context));
    println!("{}", gateway.address().context("no upstream")?);
    std::future::pending().await
}
