//! Memory of many small keys.

use std::process::Command;

use anyhow::{Context, Result};
use bench_kit::{output, resident};
use hob_engine::Engine;
use hob_testkit::RedisServer;

const MIB: f64 = 1024.0 * 1024.0;

fn key(number: usize) -> String {
    format!("user:{number:07}:online")
}

pub(crate) fn compare(keys: usize) -> Result<()> {
    let redis = RedisServer::start();
    let before = resident(redis.pid())?;
    let mut connection = redis.connect();
    for start in (0..keys).step_by(1000) {
        let mut pipeline = redis::pipe();
        (start..(start + 1000).min(keys)).for_each(|number| {
            pipeline.set(key(number), "true").ignore();
        });
        pipeline.exec(&mut connection)?;
    }
    let redis_rss = (resident(redis.pid())? - before) as f64;
    let used: f64 = redis.info("memory").get("used_memory").context("no used_memory")?;
    let text = output(Command::new(std::env::current_exe()?).args(["fill", &keys.to_string()]))?;
    let mut numbers = text.split_whitespace().map(str::parse::<f64>);
    let mut next = || numbers.next().context("the child printed too few numbers")?.context("invalid number");
    let (account, engine_rss) = (next()?, next()?);
    println!("| {keys} keys `{}` = `true` | account, MiB | resident, MiB | bytes per key |", key(0));
    println!("|---|---:|---:|---:|");
    for (name, account, rss) in [("redis-server", used, redis_rss), ("engine", account, engine_rss)] {
        println!("| {name} | {:.0} | {:.0} | {:.0} |", account / MIB, rss / MIB, rss / keys as f64);
    }
    println!("\nEngine to redis-server, resident: {:.2}×", engine_rss / redis_rss);
    Ok(())
}

/// The child process: fills an engine and prints its own memory count and the increase of its resident memory.
pub(crate) fn fill(keys: usize) -> Result<()> {
    let pid = std::process::id();
    let engine = Engine::default();
    engine.execute(&[b"PING"]);
    let before = resident(pid)?;
    for number in 0..keys {
        engine.execute(&[b"SET", key(number).as_bytes(), b"true"]);
    }
    println!("{} {}", engine.memory(), resident(pid)? - before);
    Ok(())
}
