//! The gateway in a process of its own, with its metrics on, hot state in Redis and records in SQLite.

use anyhow::{Context, Result};
use hob_gateway::{Config, Gateway, MIGRATIONS};
use hob_hot::{Address, Hot};
use hob_house::config::Secrets;
use hob_house::{House, Live, NodeName, Tasks};
use hob_records::Records;
use hob_schema::Layout;
use hob_web::Service as _;
use metrics_exporter_prometheus::PrometheusBuilder;

/// Serves until it is killed. `store` is the address of a Redis.
#[tokio::main]
pub(crate) async fn run(toml: &str, store: &str) -> Result<()> {
    let _metrics = PrometheusBuilder::new().install_recorder().context("no recorder")?;
    let folder = tempfile::tempdir()?;
    let records = folder.path().join("hob.db").display().to_string();
    let house = House {
        hot: Hot::connect(&store.parse::<Address>()?).await?,
        layout: Layout::Plain,
        records: Records::open(&records.parse()?, &[MIGRATIONS]).await?,
        node: NodeName::random(),
        secrets: Secrets::none(),
        tasks: Tasks::new(),
    };
    let gateway = Gateway::open(&house, Live::fixed(toml::from_str::<Config>(toml)?)).await?;
    gateway.start(&hob_web::Changes::detached(&house));
    println!("{}", gateway.address().context("no upstream")?);
    std::future::pending().await
}
