//! Audit, infer and clean on real servers and on the embedded engine.

mod audit;
mod clean;
mod connect;
mod documents;
mod infer;
mod modules;
mod round_trip;
mod sampling;
mod types;
mod watch;

use std::path::{Path, PathBuf};

use hob_schema::{Catalog, Layout, Schema};
use hob_schema_audit::{AuditOptions, AuditReport, connect};
use hob_store::Store;

const SERVICES: [&str; 5] = ["gateway", "uptime", "chat", "load", "pipeline"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn load_schema(name: &str) -> Schema {
    let path = root().join(format!("schemas/{name}.toml"));
    Schema::load(&path).unwrap_or_else(|errors| panic!("{errors}"))
}

fn services_catalog(layout: Layout) -> Catalog {
    Catalog::new(SERVICES.iter().map(|name| load_schema(name)).collect(), layout).unwrap()
}

fn chat_catalog(layout: Layout) -> Catalog {
    Catalog::new(vec![load_schema("chat")], layout).unwrap()
}

async fn open(url: &str) -> Store {
    connect(&url.parse().unwrap()).await.unwrap()
}

async fn run_audit(store: &Store, catalog: &Catalog) -> AuditReport {
    hob_schema_audit::audit(store, catalog, AuditOptions::default(), &mut |_| {}).await.unwrap()
}
