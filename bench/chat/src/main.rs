//! The chat compared with Socket.IO and with socketioxide, each with its Redis adapter:
//! `cargo run --release -p bench-chat [talk|send|drop|idle]`.
//!
//! Needs a release build of `hob`, `redis-server`, `taskset`, `node` and `npm`. The server has one core; Redis and the
//! generator, which is the same for all, share the other. Everything is on loopback.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod clients;
mod member;
mod protocol;
mod senders;
mod server;
mod stats;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bench_kit::{Usage, median, resident};

use clients::Clients;
use member::MemberId;
use server::{Kind, Server};

/// The number of rooms, their members, and the message rate.
#[derive(Clone, Copy, Debug)]
struct Load {
    rooms: usize,
    members: usize,
    /// Messages per second in each room.
    rate: u32,
}

/// Quiet rooms, busy rooms, large rooms, and the audience of a live event.
const LOADS: [Load; 4] = [
    Load { rooms: 20, members: 50, rate: 2 },
    Load { rooms: 20, members: 50, rate: 10 },
    Load { rooms: 4, members: 500, rate: 5 },
    Load { rooms: 2, members: 1_000, rate: 30 },
];
/// Senders that wait for acknowledgements, and the rooms that they share.
const SENDERS: usize = 40;
const SENDERS_ROOMS: usize = 4;
const DROPPING: Load = Load { rooms: 20, members: 50, rate: 10 };
/// Members of each idle room.
const MEMBERS: usize = 50;
const ROUNDS: usize = 3;
const WARM_UP: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(6);
/// The number of connections that are closed during the run.
const DISCONNECTS: usize = 300;
const IDLE: usize = 15_000;
/// How long the commands of idle connections are counted: several periods of every periodic task.
const COUNT_TIME: Duration = Duration::from_secs(18);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    server::OTHERS.pin_this_process()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match words.as_slice() {
            [] => {
                talk(&LOADS).await?;
                send(None).await?;
                drops().await?;
                idle(IDLE).await
            }
            ["talk"] => talk(&LOADS).await,
            ["talk", which] => talk(&LOADS[which.parse()?..][..1]).await,
            ["send"] => send(None).await,
            ["send", database] => send(Some(*database)).await,
            ["drop"] => drops().await,
            ["idle"] => idle(IDLE).await,
            _ => bail!("usage: bench-chat [talk [WHICH] | send [DATABASE_URL] | drop | idle]"),
        }
    })
}

/// The results of one round.
struct Round {
    deliveries_per_s: f64,
    /// CPU time of the server per delivery, and of Redis.
    cpu_us: f64,
    redis_us: f64,
    /// p50, p99, p99.9.
    ms: [f64; 3],
}

async fn talk(loads: &[Load]) -> Result<()> {
    println!(
        "| rooms | messages/s in each | server | deliveries/s | CPU s per million: server | Redis | p50 | p99 | p99.9 |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for load in loads {
        let mut rounds = Kind::ALL.map(|_| Vec::new());
        for _ in 0..ROUNDS {
            for (kind, rounds) in Kind::ALL.into_iter().zip(&mut rounds) {
                rounds.push(talk_once(kind, *load).await?);
            }
        }
        let Load { rooms, members, rate } = load;
        for (kind, rounds) in Kind::ALL.into_iter().zip(rounds) {
            let Round { deliveries_per_s, cpu_us, redis_us, ms: [p50, p99, p999] } = medians(&rounds);
            println!(
                "| {rooms} of {members} | {rate} | {} | {deliveries_per_s:.0} | {cpu_us:.2} | {redis_us:.2} | {p50:.1} ms | {p99:.1} ms \
                 | {p999:.1} ms |",
                kind.name()
            );
        }
    }
    Ok(())
}

/// The median of each column.
fn medians(rounds: &[Round]) -> Round {
    let of = |column: fn(&Round) -> f64| median(rounds.iter().map(column).collect(), |value| *value);
    Round {
        deliveries_per_s: of(|round| round.deliveries_per_s),
        cpu_us: of(|round| round.cpu_us),
        redis_us: of(|round| round.redis_us),
        ms: [of(|round| round.ms[0]), of(|round| round.ms[1]), of(|round| round.ms[2])],
    }
}

async fn talk_once(kind: Kind, load: Load) -> Result<Round> {
    let (server, clients) = start(kind, load).await?;
    clients.set_interval(Some(Duration::from_secs(1) / load.rate));
    tokio::time::sleep(WARM_UP).await;
    clients.stats.lock().reset();
    let redis_usage = Usage::start(server.redis.process.family())?;
    let (usage, started) = (Usage::start(server.process.family())?, Instant::now());
    tokio::time::sleep(MEASURED).await;
    let stats = clients.stats.lock();
    let ms = |quantile| stats.latencies.value_at_quantile(quantile) as f64 / 1e3;
    Ok(Round {
        deliveries_per_s: stats.deliveries as f64 / started.elapsed().as_secs_f64(),
        cpu_us: usage.us_each(stats.deliveries)?,
        redis_us: redis_usage.us_each(stats.deliveries)?,
        ms: [0.5, 0.99, 0.999].map(ms),
    })
}

async fn start(kind: Kind, load: Load) -> Result<(Server, Clients)> {
    let server = Server::start(kind)?;
    server.open_rooms(load.rooms, load.members)?;
    let clients = Clients::connect(server.protocol, server.address, load.rooms, load.members).await?;
    Ok((server, clients))
}

async fn send(database: Option<&str>) -> Result<()> {
    println!(
        "| {SENDERS} senders in {SENDERS_ROOMS} rooms | acknowledged/s | CPU s per million: server | Redis |"
    );
    println!("|---|---|---|---|");
    for kind in Kind::ALL {
        let server = Server::start_with(kind, database)?;
        server.open_rooms(SENDERS_ROOMS, SENDERS / SENDERS_ROOMS)?;
        let id = |n| MemberId { room: n % SENDERS_ROOMS, number: n / SENDERS_ROOMS };
        let members: Vec<MemberId> = (0..SENDERS).map(id).collect();
        let redis_usage = Usage::start(server.redis.process.family())?;
        let (usage, started) = (Usage::start(server.process.family())?, Instant::now());
        let sent = senders::send_until(started + MEASURED, server.protocol, server.address, &members).await?;
        let per_second = sent as f64 / started.elapsed().as_secs_f64();
        let (cpu, redis) = (usage.us_each(sent)?, redis_usage.us_each(sent)?);
        println!("| {} | {per_second:.0} | {cpu:.2} | {redis:.2} |", kind.name());
    }
    Ok(())
}

async fn drops() -> Result<()> {
    println!("| {DISCONNECTS} connections cut | delivered | twice |\n|---|---|---|");
    for kind in Kind::ALL {
        let (_server, clients) = start(kind, DROPPING).await?;
        clients.set_interval(Some(Duration::from_secs(1) / DROPPING.rate));
        for which in 0..DISCONNECTS {
            // A different room each time.
            clients.disconnect(which * 37);
            tokio::time::sleep(MEASURED / DISCONNECTS as u32).await;
        }
        clients.set_interval(None);
        clients.wait_for_deliveries().await;
        let stats = clients.stats.lock();
        let (delivered, expected) = stats.delivered();
        let share = delivered as f64 * 100.0 / expected as f64;
        println!("| {} | {delivered} of {expected}: {share:.2} % | {} |", kind.name(), stats.duplicates);
    }
    Ok(())
}

async fn idle(connections: usize) -> Result<()> {
    println!(
        "| {connections} idle connections | resident bytes each | commands/s sent to the store |\n|---|---|---|"
    );
    for kind in Kind::ALL {
        let server = Server::start(kind)?;
        let rooms = connections / MEMBERS;
        server.open_rooms(rooms, MEMBERS)?;
        let before = resident(server.process.id())?;
        let _clients = Clients::connect(server.protocol, server.address, rooms, MEMBERS).await?;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let each = (resident(server.process.id())? - before) / connections as u64;
        let redis = server.redis.address;
        // In a separate task, since the connections must keep answering pings.
        let sent = tokio::task::spawn_blocking(move || server::commands_sent(redis, COUNT_TIME)).await??;
        let per_second = sent as f64 / COUNT_TIME.as_secs_f64();
        println!("| {} | {each} | {per_second:.1} |", kind.name());
    }
    Ok(())
}
