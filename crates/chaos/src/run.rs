//! A run: start the deployment and the traffic, then round after round inject faults, stop the traffic, and check.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_util::future::{LocalBoxFuture, join_all};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::Options;
use crate::fault::inject::{NotInjected, inject};
use crate::fault::{Kind, seconds};
use crate::report::{Missing, Report};
use crate::schedule::{Event, Round, rounds};
use crate::soak::Soak;
use crate::system::System;
use crate::systems::chat::{self, Chat};
use crate::systems::gateway::{self, Gateway};
use crate::systems::load::Load;
use crate::systems::pipeline::{self, Pipeline};
use crate::systems::uptime::{self, Uptime};
use crate::world::{Setup, World};

/// Traffic continues for this long after the last fault of a round has ended.
const AFTERWARDS: Duration = Duration::from_secs(3);

/// How long the traffic of a round lasts that has no faults.
const CALM_ROUND: Duration = Duration::from_secs(50);

/// Runs everything and prints the report. Returns the number of violations.
pub(crate) async fn run(options: &Options) -> Result<usize> {
    let seed = options.seed.unwrap_or_else(seed_from_clock);
    let setup = options.setup.unwrap_or_else(|| Setup::of_seed(seed));
    let title = format!("Seed {seed}, {setup:?}");
    println!("{title}, {} minutes; logs of the nodes are in {}", options.minutes, options.folder.display());
    let _ = std::fs::remove_dir_all(&options.folder);
    std::fs::create_dir_all(&options.folder)
        .with_context(|| format!("cannot create {}", options.folder.display()))?;
    let folder = options.folder.canonicalize()?;
    let hob =
        options.hob.canonicalize().with_context(|| format!("no binary at {}", options.hob.display()))?;
    let config =
        [chat::config(&folder)?, gateway::config().await?, uptime::config(), pipeline::config(&folder)]
            .join("\n");
    let world = World::start(setup, &hob, &folder, &config, options.traffic).await?;
    let systems: Vec<Box<dyn System>> = vec![
        Box::new(Gateway::new(&world, seed)),
        Box::new(Uptime::start(&world, seed).await?),
        Box::new(Chat::start(&world, seed).await?),
        Box::new(Load::start(&world, seed).await?),
        Box::new(Pipeline::start(&world, &folder, seed).await?),
    ];
    let mut missing = Missing::default();
    let soak = options.soak.then(|| Soak::start(&world, &folder));
    let kinds: &[Kind] = if options.soak { &[] } else { &Kind::ALL };
    let (limit, mut done) = (Duration::from_secs(60 * u64::from(options.minutes)), 0);
    for round in rounds(seed, kinds) {
        if world.begun.elapsed() >= limit {
            break;
        }
        one_round(&world, &systems, &round, &mut missing).await?;
        done += 1;
        let counted: Vec<String> = systems.iter().map(|system| headline(system.as_ref())).collect();
        let violations = world.violations.all().len();
        let since = seconds(world.begun.elapsed());
        println!("{since:>9}  round {done} checked: {}, {violations} violations", counted.join(", "));
    }
    let report = Report {
        title: format!("{title}, {done} rounds"),
        begun: world.begun,
        faults: &world.faults,
        missing: &missing,
        counts: systems.iter().map(|system| (system.name(), system.counts())).collect(),
        violations: world.violations.all(),
    };
    println!("{}", report.text());
    if let Some(soak) = soak {
        println!("{}", soak.finish(&folder).await?);
    }
    Ok(report.violations.len())
}

async fn one_round(
    world: &Arc<World>,
    systems: &[Box<dyn System>],
    round: &Round,
    missing: &mut Missing,
) -> Result<()> {
    let stop = CancellationToken::new();
    let traffic = join_all(systems.iter().map(|system| system.drive(stop.clone())));
    let faults = async {
        let done = inject_all(world, round).await;
        tokio::time::sleep(if round.is_empty() { CALM_ROUND } else { AFTERWARDS }).await;
        stop.cancel();
        done
    };
    let (_, done) = tokio::join!(traffic, faults);
    for (event, result) in done? {
        match result {
            Ok(()) => {}
            Err(NotInjected::Impossible(reason)) => {
                missing.impossible.insert(event.fault.kind(), reason);
            }
            Err(NotInjected::NotNow(_)) => *missing.not_now.entry(event.fault.kind()).or_default() += 1,
        }
    }
    world.wait_until_whole().await?;
    let checks: Vec<LocalBoxFuture<'_, ()>> = systems.iter().map(|system| system.settle()).collect();
    join_all(checks).await;
    Ok(())
}

/// Injects each fault at its time, and waits until all are over.
async fn inject_all(world: &Arc<World>, round: &Round) -> Result<Vec<(Event, Result<(), NotInjected>)>> {
    let mut running = JoinSet::new();
    for event in round.iter().copied() {
        let world = Arc::clone(world);
        running.spawn(async move {
            tokio::time::sleep(event.at).await;
            let since = seconds(world.begun.elapsed());
            println!("{since:>9}  {} for {}", event.fault, seconds(event.lasts));
            let result = inject(&world, event.fault, event.lasts).await;
            if let Err(reason) = &result {
                println!(
                    "{:>9}  {} was not injected: {reason:?}",
                    seconds(world.begun.elapsed()),
                    event.fault
                );
            }
            (event, result)
        });
    }
    let mut done = Vec::new();
    while let Some(result) = running.join_next().await {
        done.push(result.context("a fault could not be injected")?);
    }
    Ok(done)
}

/// The first count of a system, for the line of a round.
fn headline(system: &dyn System) -> String {
    system.counts().first().map(|(what, count)| format!("{count} {what}")).unwrap_or_default()
}

fn seed_from_clock() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    now.as_secs()
}
