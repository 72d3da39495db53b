// bee-queue: results, a retry, a delayed job and a failure.

const assert = require('assert');
const Queue = require('bee-queue');

const redis = { port: Number(process.argv[2]) };

function finished(job) {
  return new Promise((resolve, reject) => job.on('succeeded', resolve).on('failed', reject));
}

(async () => {
  const queue = new Queue('q', { redis, activateDelayedJobs: true });
  let runs = 0;
  queue.process(4, async ({ data }) => {
    if (data.kind === 'fails') throw new Error('expected');
    if (data.kind === 'retried' && ++runs < 3) throw new Error(`run ${runs} fails`);
    return data.kind === 'retried' ? runs : data.n * 2;
  });
  const start = async (job) => {
    const done = finished(job);
    await job.save();
    return done;
  };
  const sums = await Promise.all([...Array(20).keys()].map((n) => start(queue.createJob({ n }))));
  assert.deepEqual(sums, [...Array(20).keys()].map((n) => n * 2));
  assert.equal(await start(queue.createJob({ kind: 'retried' }).retries(3)), 3);
  const begun = Date.now();
  assert.equal(await start(queue.createJob({ n: 4 }).delayUntil(begun + 1000)), 8);
  assert(Date.now() >= begun + 1000);
  await assert.rejects(start(queue.createJob({ kind: 'fails' })), /expected/);
  const health = await queue.checkHealth();
  assert.equal(health.failed, 1);
  assert.equal(health.waiting, 0);
  await queue.close();
  console.log('done');
})().catch((error) => { console.error(error); process.exit(1); });
