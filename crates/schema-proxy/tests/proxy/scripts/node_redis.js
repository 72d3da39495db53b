// node-redis over RESP2 and RESP3: values, transactions, scripts, pub/sub, a refusal.

const assert = require('assert');
const { createClient } = require('redis');

(async () => {
  const socket = { port: Number(process.argv[2]) };
  for (const RESP of [2, 3]) {
    const store = await createClient({ socket, RESP, name: 'node' }).connect();
    await store.set('session:1', 'v', { EX: 100 });
    assert.equal(await store.get('session:1'), 'v');
    await store.hSet('cart:1', { owner: 1, 7: 2 });
    assert.equal((await store.hGetAll('cart:1'))['7'], '2');
    await store.del('count:1');
    assert.deepEqual(await store.multi().incr('count:1').incr('count:1').exec(), [1, 2]);
    const add = 'return redis.call("INCRBY", KEYS[1], ARGV[1])';
    assert.equal(await store.eval(add, { keys: ['count:1'], arguments: ['5'] }), 7);
    await assert.rejects(store.set('other', '1'), /SCHEMA undeclared-key/);
    await assert.rejects(store.multi().incr('count:1').set('other', '1').exec());
    assert.equal(await store.get('count:1'), '7');
    const subscriber = await store.duplicate().connect();
    let deliver;
    const heard = new Promise((resolve) => { deliver = resolve; });
    await subscriber.subscribe('c', deliver);
    await store.publish('c', 'hi');
    assert.equal(await heard, 'hi');
    await subscriber.close();
    await store.close();
  }
  console.log('done');
})().catch((error) => { console.error(error); process.exit(1); });
