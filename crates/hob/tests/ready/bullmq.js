// BullMQ: jobs in every state, a flow, a scheduler, deduplication, a rate limit, logs and metrics; the keys stay.

const { FlowProducer, Queue, QueueEvents, Worker } = require('bullmq');

// Another prefix may have a hash tag, for a Cluster: {bull}.
const prefix = process.argv[3] ?? 'bull';
const connection = { host: '127.0.0.1', port: Number(process.argv[2]) };
const LIMIT = 120_000;

(async () => {
  const queue = new Queue('mail', { connection, prefix });
  const events = new QueueEvents('mail', { connection, prefix });
  const flows = new FlowProducer({ connection, prefix });
  await events.waitUntilReady();
  const worker = new Worker('mail', async (job) => {
    await job.log('started');
    await job.updateProgress(50);
    if (job.name === 'fails') throw new Error('expected');
    if (job.name === 'endless') await new Promise(() => {});
    return { sent: job.data.n };
  }, { connection, prefix, concurrency: 4, metrics: { maxDataPoints: 60 }, limiter: { max: 1000, duration: 60_000 } });
  const finish = async (name, data, options) => (await queue.add(name, data, options)).waitUntilFinished(events, LIMIT);
  for (let n = 0; n < 5; n++) await finish('send', { n });
  await finish('fails', {}, { attempts: 2, backoff: 1 }).catch(() => {});
  await finish('named', { n: 1 }, { jobId: 'order-17', deduplication: { id: 'order-17', ttl: 60_000 } });
  await queue.add('endless', {});
  while ((await queue.getActiveCount()) === 0) await new Promise((resolve) => setTimeout(resolve, 20));
  await queue.add('later', {}, { delay: 3_600_000 });
  await queue.upsertJobScheduler('nightly', { pattern: '0 3 * * *' }, { name: 'report' });
  await queue.upsertJobScheduler('often', { every: 3_600_000 }, { name: 'ping' });
  const child = { name: 'child', queueName: 'children', data: {} };
  await flows.add({ name: 'parent', queueName: 'mail', data: {}, children: [child, { ...child, opts: { delay: 3_600_000 } }] });
  const children = new Worker('children', async () => 1, { connection, prefix });
  const waiting = new Queue('children', { connection, prefix });
  while ((await waiting.getCompletedCount()) === 0) await new Promise((resolve) => setTimeout(resolve, 20));
  await queue.pause();
  await queue.addBulk([1, 2].map((priority) => ({ name: 'urgent', data: {}, opts: { priority } })));
  await queue.add('paused', {});
  const other = new Queue('idle', { connection, prefix });
  await other.add('waits', { n: 1 });
  console.log('done');
  process.exit(0);
})().catch((error) => { console.error(error); process.exit(1); });
