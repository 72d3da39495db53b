//! Opens the Redis that a command line names.

use std::time::Duration;

use hob_store::{Address, Store, cmd};

use crate::error::Error;
use crate::scan::db_size;

/// Longer than one attempt of the store to connect, so that an error contains the reason why the attempt failed.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// A busy server may need a long time for a batch.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// Connects to a server, a Sentinel set or a Cluster, and waits until every master answers. If a server belongs to a
/// Cluster, the whole Cluster is opened.
pub async fn connect(address: &Address) -> Result<Store, Error> {
    Ok(connect_resolved(address).await?.0)
}

/// The same, with the address that was opened: that of the Cluster if a server belongs to one.
pub(crate) async fn connect_resolved(address: &Address) -> Result<(Store, Address), Error> {
    if *address == Address::Embedded {
        return Err(Error::Embedded);
    }
    let open = |address| Store::open(address).map_err(Error::Connect);
    let mut store = open(address)?.with_deadline(CONNECT_LIMIT);
    let mut opened = address.clone();
    if let Address::Server { host, access, .. } = address
        && belongs_to_cluster(&store).await?
    {
        let cluster = Address::Cluster { seeds: vec![host.clone()], access: access.clone() };
        store = open(&cluster)?.with_deadline(CONNECT_LIMIT);
        opened = cluster;
    }
    for master in store.masters().await.map_err(Error::Connect)? {
        db_size(&master).await?;
    }
    Ok((store.with_deadline(COMMAND_LIMIT), opened))
}

async fn belongs_to_cluster(store: &Store) -> Result<bool, Error> {
    let info: String = store.run(cmd("INFO").arg("cluster")).await.map_err(|error| match error {
        hob_store::Error::Refused { .. } => Error::Command { command: "INFO cluster", source: error },
        error => Error::Connect(error),
    })?;
    Ok(info.contains("cluster_enabled:1"))
}
