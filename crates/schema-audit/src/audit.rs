//! Compares the keys of a Redis with its schemas: read-only, pipelined, paced, in bounded memory.

pub(crate) mod baseline;
pub(crate) mod details;
pub(crate) mod estimate;
pub(crate) mod findings;
pub(crate) mod probe;
pub(crate) mod report;
pub(crate) mod sampling;
mod sums;

use std::time::Instant;

use futures_util::{StreamExt, TryStreamExt, pin_mut};
use hob_schema::Catalog;
use hob_store::Store;

use crate::error::Error;
use crate::master::{IdleTimes, Master};
use crate::scan::{Pace, Progress, db_size, other_databases, pages};
use findings::Findings;
use probe::{MemoryUse, Prober};
use report::AuditReport;
use sampling::{Sampling, Selection};

/// How to audit.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditOptions {
    pub pace: Pace,
    /// Check only a part of the keys.
    pub sampling: Option<Sampling>,
}

/// Audits a store, one master after the other.
pub async fn audit(
    store: &Store,
    catalog: &Catalog,
    options: AuditOptions,
    progress: &mut (dyn FnMut(&Progress) + Send),
) -> Result<AuditReport, Error> {
    let started = Instant::now();
    let masters = store.masters().await.map_err(Error::Connect)?;
    let mut expected = 0;
    for master in &masters {
        expected += db_size(master).await?;
    }
    let selection = Selection::new(options.sampling, expected);
    let mut findings = Findings::new(catalog, selection);
    let prober = Prober::new(catalog, findings.identified(), MemoryUse::Sampled, selection);
    let (mut idle_times, mut field_ttls) = (IdleTimes::Kept, true);
    for store in &masters {
        let mut report_keys = |keys| {
            progress(&Progress { node: store.name().to_owned(), keys, expected });
        };
        let master = Master::new(store.clone()).await;
        if master.idle_times() == IdleTimes::Reset {
            idle_times = IdleTimes::Reset;
        }
        field_ttls &= master.has_field_ttls();
        audit_master(&master, catalog, &prober, options, &mut findings, &mut report_keys).await?;
    }
    let mut report = findings.report();
    report.nodes = masters.len();
    if !field_ttls && catalog.families().any(|(_, family)| family.field_ttl.is_some()) {
        report
            .notes
            .push("TTLs of fields (`field_ttl`) were not checked: the server has no HPTTL".to_owned());
    }
    report.idle_times_reset = idle_times == IdleTimes::Reset && report.keys > 0;
    if report.keys == 0 {
        report.notes.extend(other_databases(store).await);
    }
    report.elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(report)
}

/// Reads several pages at once: the server scans the next page while this process checks the last one.
async fn audit_master(
    master: &Master,
    catalog: &Catalog,
    prober: &Prober,
    options: AuditOptions,
    findings: &mut Findings<'_>,
    progress: &mut (dyn FnMut(u64) + Send),
) -> Result<(), Error> {
    let probed = pages(master.store(), options.pace, None)
        .await
        .map(|page| async move { prober.probe(master, catalog, page?).await })
        .buffered(options.pace.concurrent_pages());
    pin_mut!(probed);
    while let Some(page) = probed.try_next().await? {
        for key in &page {
            findings.add(key);
        }
        progress(findings.keys());
    }
    Ok(())
}
