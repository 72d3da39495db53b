// Bull: results, a retry, a delayed job, priorities and a failure.

const assert = require('assert');
const Queue = require('bull');

(async () => {
  const queue = new Queue('q', { redis: { port: Number(process.argv[2]) } });
  const order = [];
  queue.process(async ({ data, attemptsMade }) => {
    if (data.kind === 'fails') throw new Error('expected');
    if (data.kind === 'retried' && attemptsMade < 2) throw new Error(`attempt ${attemptsMade} fails`);
    order.push(data.n);
    return data.kind === 'retried' ? attemptsMade : data.n * 2;
  });
  const finish = async (...added) => (await queue.add(...added)).finished();
  const sums = await Promise.all([...Array(20).keys()].map((n) => finish({ n })));
  assert.deepEqual(sums, [...Array(20).keys()].map((n) => n * 2));
  assert.equal(await finish({ kind: 'retried' }, { attempts: 3, backoff: 10 }), 2);
  const begun = Date.now();
  assert.equal(await finish({ n: 4 }, { delay: 1000 }), 8);
  assert(Date.now() >= begun + 1000);
  await assert.rejects(finish({ kind: 'fails' }), /expected/);
  await queue.pause();
  order.length = 0;
  const jobs = await Promise.all([[1, 3], [2, 1], [3, 2]].map(([n, priority]) => queue.add({ n }, { priority })));
  assert.equal(await queue.count(), 3);
  await queue.resume();
  await Promise.all(jobs.map((job) => job.finished()));
  assert.deepEqual(order, [2, 3, 1]);
  const counts = await queue.getJobCounts();
  assert.equal(counts.failed, 1);
  assert.equal(counts.waiting + counts.active + counts.delayed, 0);
  assert.equal((await queue.getFailed())[0].failedReason, 'expected');
  await queue.close();
  console.log('done');
})().catch((error) => { console.error(error); process.exit(1); });
