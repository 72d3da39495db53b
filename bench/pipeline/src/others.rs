//! The same work in BullMQ and RQ: empty jobs, added in bulk, then processed by one process.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use bench_kit::{Usage, cpu_of_ended_children, node_modules, output, python};

use crate::Cost;

const BULLMQ: &str = r"
const { Queue, Worker } = require('bullmq');
const connection = { host: '127.0.0.1', port: Number(process.argv[1]) };
const items = Number(process.argv[2]);
(async () => {
  const queue = new Queue('bench', { connection });
  const begun = process.hrtime.bigint();
  for (let from = 0; from < items; from += 5000) {
    const count = Math.min(5000, items - from);
    const job = (n) => ({ name: 'x', data: { n }, opts: { removeOnComplete: true } });
    await queue.addBulk(Array.from({ length: count }, (_, n) => job(from + n)));
  }
  let done = 0;
  const worker = new Worker('bench', async () => {}, { connection, concurrency: 200 });
  await new Promise((resolve) => worker.on('completed', () => { if (++done === items) resolve(); }));
  console.log(Number(process.hrtime.bigint() - begun) / 1e9);
  process.exit(0);
})();
";

const RQ: &str = r"
import sys, time
from redis import Redis
from rq import Queue, SimpleWorker
connection = Redis(port=int(sys.argv[1]))
items = int(sys.argv[2])
queue = Queue('bench', connection=connection)
begun = time.monotonic()
for start in range(0, items, 1000):
    queue.enqueue_many([Queue.prepare_data('time.monotonic', result_ttl=0) for _ in range(min(1000, items - start))])
SimpleWorker([queue], connection=connection).work(burst=True, logging_level='ERROR')
print(time.monotonic() - begun)
";

pub(crate) fn bullmq(redis: SocketAddr, redis_process: u32, items: u64) -> Result<Cost> {
    let modules = node_modules("bullmq", &["bullmq@6.7.0", "ioredis@6.0.0"])?;
    let mut node = Command::new("node");
    node.env("NODE_PATH", modules).args(["-e", BULLMQ]);
    measure(&mut node, redis, redis_process, items)
}

pub(crate) fn rq(redis: SocketAddr, redis_process: u32, items: u64) -> Result<Cost> {
    let mut python = Command::new(python("rq", &["rq==2.12.0"])?);
    python.args(["-c", RQ]);
    measure(&mut python, redis, redis_process, items)
}

/// Runs a program whose last line of output is its duration in seconds.
fn measure(program: &mut Command, redis: SocketAddr, redis_process: u32, items: u64) -> Result<Cost> {
    let (usage, children) = (Usage::start(vec![redis_process])?, cpu_of_ended_children()?);
    let printed = output(program.arg(redis.port().to_string()).arg(items.to_string()))?;
    let cpu = usage.so_far()? + cpu_of_ended_children()? - children;
    let last = printed.lines().last().unwrap_or_default();
    let elapsed =
        Duration::from_secs_f64(last.trim().parse().with_context(|| format!("{last:?} is not a time"))?);
    Ok(Cost { items, elapsed, cpu })
}
