//! Sequential calls to the engine in process, and to redis-server over loopback, with the same client.

use std::time::Instant;

use anyhow::Result;
use hob_engine::Engine;
use hob_store::limit::{Algorithm, Rule};
use hob_store::{Address, Store, cmd};
use hob_testkit::RedisServer;
use redis::aio::ConnectionLike;

use crate::median;

pub(crate) fn compare(calls: usize) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let server = RedisServer::start();
        let engine = Engine::default();
        let client = redis::Client::open(server.url())?;
        let mut over_tcp = client.get_multiplexed_async_connection().await?;
        let mut in_process = engine.connection();
        let store_tcp = Store::connect(&server.url().parse::<Address>()?).await?;
        let store_embedded = Store::embedded(&engine);
        println!("| sequential calls | redis-server over loopback/s | in process/s | ratio |");
        println!("|---|---:|---:|---:|");
        let slow = calls / 10;

        let mut rounds = [(0.0, 0.0); 3];
        for round in &mut rounds {
            *round = (incr(&mut over_tcp, slow).await?, incr(&mut in_process, calls).await?);
        }
        row("INCR through redis-rs", rounds);
        for round in &mut rounds {
            *round = (store_incr(&store_tcp, slow).await?, store_incr(&store_embedded, calls).await?);
        }
        row("INCR through `hob-store`", rounds);
        for round in &mut rounds {
            *round = (gcra(&store_tcp, slow).await?, gcra(&store_embedded, calls).await?);
        }
        row("the GCRA script through `hob-store`", rounds);
        Ok(())
    })
}

/// Only one kind of call, on one thread: `valgrind --tool=callgrind` counts their instructions, which do not depend on how
/// busy the machine is.
pub(crate) fn profile(kind: &str, calls: usize) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = Store::embedded(&Engine::default());
        let per_second = match kind {
            "incr" => store_incr(&store, calls).await?,
            "gcra" => gcra(&store, calls).await?,
            other => anyhow::bail!("cannot profile {other:?}; use incr or gcra"),
        };
        println!("{:.2} µs for each call", 1e6 / per_second);
        Ok(())
    })
}

fn row(name: &str, rounds: [(f64, f64); 3]) {
    let (tcp, in_process) = (median(rounds.map(|round| round.0)), median(rounds.map(|round| round.1)));
    println!("| {name} | {tcp:.0} | {in_process:.0} | {:.1}× |", in_process / tcp);
}

async fn incr(connection: &mut impl ConnectionLike, calls: usize) -> Result<f64> {
    let started = Instant::now();
    for _ in 0..calls {
        cmd("INCR").arg("counter").query_async::<i64>(connection).await?;
    }
    Ok(per_second(calls, started))
}

async fn store_incr(store: &Store, calls: usize) -> Result<f64> {
    let started = Instant::now();
    for _ in 0..calls {
        store.run::<i64>(cmd("INCR").arg("counter")).await?;
    }
    Ok(per_second(calls, started))
}

async fn gcra(store: &Store, calls: usize) -> Result<f64> {
    let rule = Rule::new(Algorithm::Gcra, vec!["1000000/1s".parse()?])?;
    let started = Instant::now();
    for _ in 0..calls {
        rule.take(store, &["limit:caller"], 1).await?;
    }
    Ok(per_second(calls, started))
}

fn per_second(calls: usize, started: Instant) -> f64 {
    calls as f64 / started.elapsed().as_secs_f64()
}
