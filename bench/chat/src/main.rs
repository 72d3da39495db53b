//! The chat beside Socket.IO with its Redis adapter: `cargo run --profile dist -p bench-chat [talk|drop|idle]`.
//!
//! Needs a release build of `hob`, `redis-server`, `taskset`, `node` and `npm`. The server has one core; Redis and the
//! generator, which is the same for both, share the other. Everything is on loopback.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod crowd;
mod dialect;
mod seat;
mod server;
mod tally;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bench_kit::{Usage, median, resident};

use crowd::Crowd;
use server::{Kind, Server};

/// How much is said, and to how many.
#[derive(Clone, Copy, Debug)]
struct Load {
    rooms: usize,
    members: usize,
    /// Messages a second in each room.
    rate: u32,
}

/// Quiet rooms, busy rooms, large rooms, and what a stage has in front of it.
const LOADS: [Load; 4] = [
    Load { rooms: 20, members: 50, rate: 2 },
    Load { rooms: 20, members: 50, rate: 10 },
    Load { rooms: 4, members: 500, rate: 5 },
    Load { rooms: 2, members: 1_000, rate: 30 },
];
const DROPPING: Load = Load { rooms: 20, members: 50, rate: 10 };
/// Of idle rooms.
const MEMBERS: usize = 50;
const ROUNDS: usize = 3;
const WARM_UP: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(6);
/// How many connections are cut during the run.
const CUTS: usize = 300;
const IDLE: usize = 15_000;
/// For so long the commands of idle connections are counted: several rounds of all that is done now and then.
const COUNTED: Duration = Duration::from_secs(18);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    server::OTHERS.keep_this_process()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match words.as_slice() {
            [] => {
                talk(&LOADS).await?;
                drops().await?;
                idle(IDLE).await
            }
            ["talk"] => talk(&LOADS).await,
            ["talk", which] => talk(&LOADS[which.parse()?..][..1]).await,
            ["drop"] => drops().await,
            ["idle"] => idle(IDLE).await,
            _ => bail!("nothing, or one of `talk`, `talk WHICH`, `drop`, `idle`"),
        }
    })
}

/// A round of talking.
struct Talk {
    deliveries_per_s: f64,
    /// Of the server, for each delivery.
    cpu_us: f64,
    /// p50, p99, p99.9.
    ms: [f64; 3],
}

async fn talk(loads: &[Load]) -> Result<()> {
    println!(
        "| rooms | messages/s in each | server | deliveries/s | CPU s per million | p50 | p99 | p99.9 |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for load in loads {
        let mut rounds = Kind::BOTH.map(|_| Vec::new());
        for _ in 0..ROUNDS {
            for (kind, rounds) in Kind::BOTH.into_iter().zip(&mut rounds) {
                rounds.push(talk_once(kind, *load).await?);
            }
        }
        let Load { rooms, members, rate } = load;
        for (kind, rounds) in Kind::BOTH.into_iter().zip(rounds) {
            let Talk { deliveries_per_s, cpu_us, ms: [p50, p99, p999] } =
                median(rounds, |round| round.cpu_us);
            println!(
                "| {rooms} of {members} | {rate} | {} | {deliveries_per_s:.0} | {cpu_us:.2} | {p50:.1} ms | {p99:.1} ms \
                 | {p999:.1} ms |",
                kind.name()
            );
        }
    }
    Ok(())
}

async fn talk_once(kind: Kind, load: Load) -> Result<Talk> {
    let (server, crowd) = filled(kind, load).await?;
    crowd.talk(Some(Duration::from_secs(1) / load.rate));
    tokio::time::sleep(WARM_UP).await;
    crowd.tally.lock().reset();
    let (usage, begun) = (Usage::start(server.process.family())?, Instant::now());
    tokio::time::sleep(MEASURED).await;
    let tally = crowd.tally.lock();
    let ms = |quantile| tally.latencies.value_at_quantile(quantile) as f64 / 1e3;
    Ok(Talk {
        deliveries_per_s: tally.deliveries as f64 / begun.elapsed().as_secs_f64(),
        cpu_us: usage.us_each(tally.deliveries)?,
        ms: [0.5, 0.99, 0.999].map(ms),
    })
}

async fn filled(kind: Kind, load: Load) -> Result<(Server, Crowd)> {
    let server = Server::start(kind)?;
    server.open_rooms(load.rooms, load.members)?;
    let crowd = Crowd::gather(server.dialect, server.address, load.rooms, load.members).await?;
    Ok((server, crowd))
}

async fn drops() -> Result<()> {
    println!("| {CUTS} connections cut | delivered | twice |\n|---|---|---|");
    for kind in Kind::BOTH {
        let (_server, crowd) = filled(kind, DROPPING).await?;
        crowd.talk(Some(Duration::from_secs(1) / DROPPING.rate));
        for which in 0..CUTS {
            // Another room each time.
            crowd.cut(which * 37);
            tokio::time::sleep(MEASURED / CUTS as u32).await;
        }
        crowd.talk(None);
        crowd.settle().await;
        let tally = crowd.tally.lock();
        let (came, due) = tally.delivered();
        let share = came as f64 * 100.0 / due as f64;
        println!("| {} | {came} of {due}: {share:.2} % | {} |", kind.name(), tally.doubles);
    }
    Ok(())
}

async fn idle(connections: usize) -> Result<()> {
    println!(
        "| {connections} idle connections | resident bytes each | commands/s sent to the store |\n|---|---|---|"
    );
    for kind in Kind::BOTH {
        let server = Server::start(kind)?;
        let rooms = connections / MEMBERS;
        server.open_rooms(rooms, MEMBERS)?;
        let before = resident(server.process.id())?;
        let _crowd = Crowd::gather(server.dialect, server.address, rooms, MEMBERS).await?;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let each = (resident(server.process.id())? - before) / connections as u64;
        let redis = server.redis.address;
        // In a separate task, since the connections must keep answering pings.
        let sent = tokio::task::spawn_blocking(move || server::commands_sent(redis, COUNTED)).await??;
        let per_second = sent as f64 / COUNTED.as_secs_f64();
        println!("| {} | {each} | {per_second:.1} |", kind.name());
    }
    Ok(())
}
