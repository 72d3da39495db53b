// redlock: a lock that is held, one that is extended and one that is released.

const Redlock = require('redlock');
const Redis = require('ioredis');

(async () => {
  const redlock = new Redlock([new Redis(Number(process.argv[2]))]);
  await redlock.lock('locks:account:7', 60_000);
  const lock = await redlock.lock('locks:report', 30_000);
  await lock.extend(60_000);
  await (await redlock.lock('locks:short', 30_000)).unlock();
  console.log('done');
  process.exit(0);
})().catch((error) => { console.error(error); process.exit(1); });
