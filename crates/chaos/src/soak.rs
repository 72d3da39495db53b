//! What a deployment uses while traffic goes on for a long time: memory, open files, keys and rows, and whether they grow.

mod plot;
mod sample;
mod trend;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::task::{JoinHandle, block_in_place};
use tokio_util::sync::CancellationToken;

use self::sample::{Sample, Sampler};
use self::trend::Trend;
use crate::world::World;

/// How often a sample is taken.
const INTERVAL: Duration = Duration::from_secs(10);

/// The share of a run in which caches fill, connections open and history is written for the first time. Trends are computed
/// from the rest.
const WARM_UP: f64 = 1.0 / 3.0;

/// Takes samples in the background.
#[derive(Debug)]
pub(crate) struct Soak {
    stop: CancellationToken,
    samples: JoinHandle<Vec<Sample>>,
}

impl Soak {
    /// Writes the samples to `soak.csv` whenever one is taken, because a run may be stopped at any time.
    pub(crate) fn start(world: &Arc<World>, folder: &Path) -> Self {
        let (world, stop) = (Arc::clone(world), CancellationToken::new());
        let file = folder.join("soak.csv");
        let stopped = stop.clone();
        let samples = tokio::spawn(async move {
            let (mut sampler, mut samples) = (Sampler::new(), Vec::new());
            let mut ticks = tokio::time::interval(INTERVAL);
            while stopped.run_until_cancelled(ticks.tick()).await.is_some() {
                // A server may not answer for a moment, and a sample more or less changes nothing.
                samples.extend(block_in_place(|| sampler.sample(&world)));
                if let Err(error) = fs::write(&file, csv(&samples)) {
                    eprintln!("chaos: cannot write {}: {error}", file.display());
                }
            }
            samples
        });
        Self { stop, samples }
    }

    /// Writes a plot of the samples to `soak.svg`, and returns a table of the trends.
    pub(crate) async fn finish(self, folder: &Path) -> Result<String> {
        self.stop.cancel();
        let samples = self.samples.await.context("no samples")?;
        fs::write(folder.join("soak.svg"), plot::svg(&samples)).context("cannot write soak.svg")?;
        Ok(table(&samples))
    }
}

fn csv(samples: &[Sample]) -> String {
    let names: Vec<&str> = sample::SERIES.iter().map(|series| series.name).collect();
    let mut text = format!("seconds,{}\n", names.join(","));
    for sample in samples {
        let values: Vec<String> =
            sample::SERIES.iter().map(|series| (series.value)(sample).to_string()).collect();
        let _ = writeln!(text, "{:.0},{}", sample.at.as_secs_f64(), values.join(","));
    }
    text
}

/// What each series was after the warm-up and at the end, its trend, and the rows of each table that has some.
fn table(samples: &[Sample]) -> String {
    let mut text = format!(
        "Use of resources, {} samples; trends without the first third\n  {:<34} {:>12} {:>12} {:>14}\n",
        samples.len(),
        "",
        "after it",
        "at the end",
        "per hour"
    );
    let mut row = |name: &str, unit: &str, value: &dyn Fn(&Sample) -> f64| {
        let points: Vec<(f64, f64)> =
            samples.iter().map(|sample| (sample.at.as_secs_f64(), value(sample))).collect();
        let Some(trend) = Trend::of(&points, WARM_UP) else { return };
        let Trend { from, to, per_hour } = trend;
        let _ = writeln!(text, "  {:<34} {from:>12.0} {to:>12.0} {per_hour:>+14.1}", format!("{name}{unit}"));
    };
    for series in sample::SERIES {
        let unit = if series.unit.is_empty() { String::new() } else { format!(", {}", series.unit) };
        row(series.name, &unit, &|sample| (series.value)(sample));
    }
    let tables: Vec<&String> = samples.last().into_iter().flat_map(|last| last.rows.keys()).collect();
    for name in tables {
        row(&format!("rows of {name}"), "", &|sample| sample.rows.get(name).copied().unwrap_or(0) as f64);
    }
    text
}
