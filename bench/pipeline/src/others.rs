//! The same work in BullMQ and RQ.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

const BULLMQ: &str = r"
const { Queue, Worker } = require('bullmq');
const connection = { host: '127.0.0.1', port: Number(process.argv[2]) };
const items = Number(process.argv[3]);
(async () => {
  const queue = new Queue('bench', { connection });
  const begun = process.hrtime.bigint();
  for (let from = 0; from < items; from += 5000) {
    const count = Math.min(5000, items - from);
    await queue.addBulk(Array.from({ length: count }, (_, n) => ({ name: 'x', data: { n: from + n }, opts: { removeOnComplete: true } })));
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

pub(crate) fn bullmq(folder: &Path, port: u16, items: u64) -> Result<Duration> {
    run(Command::new("npm")
        .args(["install", "--silent", "--no-audit", "--no-fund", "bullmq", "ioredis"])
        .current_dir(folder))?;
    std::fs::write(folder.join("bench.js"), BULLMQ)?;
    let mut node = Command::new("node");
    seconds(node.arg("bench.js").arg(port.to_string()).arg(items.to_string()).current_dir(folder))
}

pub(crate) fn rq(folder: &Path, port: u16, items: u64) -> Result<Duration> {
    run(Command::new("python3").args(["-m", "venv", "venv"]).current_dir(folder))?;
    run(Command::new(folder.join("venv/bin/pip")).args(["install", "--quiet", "rq"]))?;
    std::fs::write(folder.join("bench.py"), RQ)?;
    let mut python = Command::new(folder.join("venv/bin/python"));
    seconds(python.arg("bench.py").arg(port.to_string()).arg(items.to_string()).current_dir(folder))
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", error.lines().last().unwrap_or_default());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The last line that a program writes: how long it took.
fn seconds(command: &mut Command) -> Result<Duration> {
    let output = run(command)?;
    let last = output.lines().last().unwrap_or_default();
    Ok(Duration::from_secs_f64(last.trim().parse().with_context(|| format!("{last:?} is no time"))?))
}
