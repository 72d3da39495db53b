//! redis-benchmark against both listeners.

use std::process::Command;

use anyhow::{Context, Result};
use bench_kit::{Usage, output};
use hob_testkit::RedisServer;

use crate::median;
use crate::process::EngineProcess;

const TESTS: [&str; 6] = ["set", "get", "incr", "hset", "zadd", "lpush"];
const SCRIPT: &str = "local n = redis.call('INCR', KEYS[1]) redis.call('PEXPIRE', KEYS[1], ARGV[1]) return n";

struct Server {
    port: u16,
    pid: u32,
}

pub(crate) fn compare(requests: usize) -> Result<()> {
    let (redis, engine) = (RedisServer::start(), EngineProcess::start()?);
    let redis = Server { port: redis.port(), pid: redis.pid() };
    let engine = Server { port: engine.port, pid: engine.process.id() };
    println!("| command | pipeline | redis/s | engine/s | ratio | redis CPU µs | engine CPU µs |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for pipeline in [1, 32] {
        let requests = if pipeline == 1 { requests / 5 } else { requests };
        for test in TESTS.into_iter().chain(["evalsha"]) {
            let mut rounds = [[(0.0, 0.0); 2]; 3];
            for round in &mut rounds {
                *round =
                    [measure(&redis, test, pipeline, requests)?, measure(&engine, test, pipeline, requests)?];
            }
            let pick =
                |side: usize, field: fn((f64, f64)) -> f64| median(rounds.map(|round| field(round[side])));
            let (redis_s, engine_s) = (pick(0, |m| m.0), pick(1, |m| m.0));
            let (redis_cpu, engine_cpu) = (pick(0, |m| m.1), pick(1, |m| m.1));
            println!(
                "| {} | {pipeline} | {redis_s:.0} | {engine_s:.0} | {:.2}× | {redis_cpu:.1} | {engine_cpu:.1} |",
                test.to_uppercase(),
                engine_s / redis_s,
            );
        }
    }
    Ok(())
}

/// Requests per second, and CPU microseconds per request.
fn measure(server: &Server, test: &str, pipeline: usize, requests: usize) -> Result<(f64, f64)> {
    let mut command = Command::new("redis-benchmark");
    command.args(["-p", &server.port.to_string(), "-n", &requests.to_string(), "-P", &pipeline.to_string()]);
    command.args(["-c", "50", "-r", "100000", "--csv"]);
    if test == "evalsha" {
        let client = redis::Client::open(("127.0.0.1", server.port))?;
        let sha: String =
            redis::cmd("SCRIPT").arg("LOAD").arg(SCRIPT).query(&mut client.get_connection()?)?;
        command.args(["evalsha", &sha, "1", "script:__rand_int__", "60000"]);
    } else {
        command.args(["-t", test]);
    }
    let usage = Usage::start(vec![server.pid])?;
    let csv = output(&mut command).context("redis-benchmark is part of redis-tools")?;
    let used_us = usage.us_each(requests as u64)?;
    // The name of the script contains commas, so the columns are counted from the end: six follow the rate.
    let line = csv.lines().last().context("no result")?;
    let columns: Vec<&str> = line.trim().rsplit("\",\"").collect();
    let rate: f64 = columns.get(6).context("no rate")?.trim_matches('"').parse()?;
    Ok((rate, used_us))
}
