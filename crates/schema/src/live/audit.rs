//! Holding a live keyspace to its schemas: read-only, pipelined, paced, in bounded memory.

use std::time::Instant;

use futures_util::{StreamExt, TryStreamExt, pin_mut};
use redis::aio::ConnectionLike;

use super::probe::Prober;
use super::report::AuditReport;
use super::scan::{Pace, Progress, db_size, pages};
use super::tally::Tally;
use super::target::{Node, connect};
use crate::catalog::Catalog;
use crate::error::Error;

/// How to audit.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditOptions {
    pub pace: Pace,
}

/// Audits the server at `url`, or every master of its Cluster.
pub async fn audit(
    url: &str,
    catalog: &Catalog,
    options: AuditOptions,
    progress: &mut (dyn FnMut(&Progress) + Send),
) -> Result<AuditReport, Error> {
    audit_nodes(connect(url).await?, catalog, options, progress).await
}

/// Audits servers that are already connected, one after the other.
pub async fn audit_nodes<C: ConnectionLike + Clone + Send>(
    mut nodes: Vec<Node<C>>,
    catalog: &Catalog,
    options: AuditOptions,
    progress: &mut (dyn FnMut(&Progress) + Send),
) -> Result<AuditReport, Error> {
    let started = Instant::now();
    let mut expected = 0;
    for node in &mut nodes {
        expected += db_size(&mut node.connection).await?;
    }
    let mut tally = Tally::new(catalog);
    let prober = Prober::new(catalog, tally.identified());
    for node in &nodes {
        let name = node.name.clone();
        let mut report_keys = |keys| {
            progress(&Progress { node: name.clone(), keys, expected });
        };
        audit_node(node, catalog, &prober, options, &mut tally, &mut report_keys).await?;
    }
    let mut report = tally.report();
    report.nodes = nodes.len();
    report.elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(report)
}

/// Several pages are under way at once: while one is judged here, the server scans and answers the next.
async fn audit_node<C: ConnectionLike + Clone + Send>(
    node: &Node<C>,
    catalog: &Catalog,
    prober: &Prober,
    options: AuditOptions,
    tally: &mut Tally<'_>,
    progress: &mut (dyn FnMut(u64) + Send),
) -> Result<(), Error> {
    let probed = pages(node.connection.clone(), options.pace, None)
        .map(|page| {
            let mut connection = node.connection.clone();
            async move { prober.probe(&mut connection, catalog, page?).await }
        })
        .buffered(options.pace.depth());
    pin_mut!(probed);
    while let Some(page) = probed.try_next().await? {
        for key in &page {
            tally.add(key);
        }
        progress(tally.keys());
    }
    Ok(())
}
