// BullMQ: results, a retry, a delayed job, priorities, a failure and a flow with children.

const assert = require('assert');
const { FlowProducer, Queue, QueueEvents, Worker } = require('bullmq');

const connection = { host: '127.0.0.1', port: Number(process.argv[2]) };

(async () => {
  const queue = new Queue('q', { connection });
  const events = new QueueEvents('q', { connection });
  const flows = new FlowProducer({ connection });
  await events.waitUntilReady();
  const order = [];
  const worker = new Worker('q', async (job) => {
    const { kind, n } = job.data;
    if (kind === 'fails') throw new Error('expected');
    if (kind === 'retried' && job.attemptsMade < 2) throw new Error(`attempt ${job.attemptsMade} fails`);
    if (kind === 'parent') return Object.values(await job.getChildrenValues()).reduce((a, b) => a + b, 0);
    order.push(n);
    return kind === 'retried' ? job.attemptsMade : n * 2;
  }, { connection });
  const LIMIT = 120_000;
  const finish = async (data, options) => (await queue.add('job', data, options)).waitUntilFinished(events, LIMIT);
  const sums = await Promise.all([...Array(20).keys()].map((n) => finish({ n })));
  assert.deepEqual(sums, [...Array(20).keys()].map((n) => n * 2));
  assert.equal(await finish({ kind: 'retried' }, { attempts: 3, backoff: 10 }), 2);
  const begun = Date.now();
  assert.equal(await finish({ n: 4 }, { delay: 1000 }), 8);
  assert(Date.now() >= begun + 1000);
  await assert.rejects(finish({ kind: 'fails' }), /expected/);
  await queue.pause();
  order.length = 0;
  const jobs = await queue.addBulk([[1, 3], [2, 1], [3, 2]].map(([n, priority]) => ({ name: 'job', data: { n }, opts: { priority } })));
  await queue.resume();
  await Promise.all(jobs.map((job) => job.waitUntilFinished(events, LIMIT)));
  assert.deepEqual(order, [2, 3, 1]);
  const child = (n) => ({ name: 'child', queueName: 'q', data: { n } });
  const flow = await flows.add({ name: 'parent', queueName: 'q', data: { kind: 'parent' }, children: [child(1), child(2)] });
  assert.equal(await flow.job.waitUntilFinished(events, LIMIT), 6);
  const counts = await queue.getJobCounts();
  assert.equal(counts.failed, 1);
  assert.equal(counts.waiting + counts.active + counts.delayed, 0);
  await worker.close();
  await Promise.all([events.close(), flows.close(), queue.close()]);
  console.log('done');
})().catch((error) => { console.error(error); process.exit(1); });
