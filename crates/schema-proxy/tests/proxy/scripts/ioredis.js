// ioredis: values, pipelines, transactions, scripts, pub/sub, a refusal.

const assert = require('assert');
const Redis = require('ioredis');

(async () => {
  const port = Number(process.argv[2]);
  const store = new Redis(port, { connectionName: 'io' });
  const subscriber = new Redis(port);
  assert.equal(await store.set('session:1', 'v', 'EX', 100), 'OK');
  assert.equal(await store.get('session:1'), 'v');
  await store.hset('cart:1', { owner: 1, 7: 2 });
  assert.deepEqual(await store.hgetall('cart:1'), { owner: '1', 7: '2' });
  assert.deepEqual(await store.multi().incr('count:1').incr('count:1').exec(), [[null, 1], [null, 2]]);
  store.defineCommand('add', { numberOfKeys: 1, lua: 'return redis.call("INCRBY", KEYS[1], ARGV[1])' });
  assert.equal(await store.add('count:1', 5), 7);
  const all = await Promise.allSettled([store.get('count:1'), store.set('other', 1), store.get('count:1')]);
  assert.deepEqual(all.map((one) => one.status), ['fulfilled', 'rejected', 'fulfilled']);
  assert.match(all[1].reason.message, /^SCHEMA undeclared-key/);
  const heard = new Promise((resolve) => subscriber.on('message', (channel, text) => resolve(`${channel} ${text}`)));
  await subscriber.subscribe('c');
  await store.publish('c', 'hi');
  assert.equal(await heard, 'c hi');
  store.disconnect();
  subscriber.disconnect();
  console.log('done');
})().catch((error) => { console.error(error); process.exit(1); });
