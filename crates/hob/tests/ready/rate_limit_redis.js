// rate-limit-redis with express-rate-limit: two clients, one of them above its limit.

const assert = require('assert');
const express = require('express');
const { rateLimit } = require('express-rate-limit');
const { RedisStore } = require('rate-limit-redis');
const Redis = require('ioredis');

(async () => {
  const client = new Redis(Number(process.argv[2]));
  const app = express();
  app.use(rateLimit({
    windowMs: 60_000,
    limit: 3,
    keyGenerator: (request) => request.headers['x-client'],
    store: new RedisStore({ sendCommand: (command, ...args) => client.call(command, ...args) }),
  }));
  app.get('/', (_, response) => response.send('ok'));
  const server = app.listen(0, '127.0.0.1', async () => {
    const call = async (name) =>
      (await fetch(`http://127.0.0.1:${server.address().port}/`, { headers: { 'x-client': name } })).status;
    for (let n = 0; n < 3; n++) assert.equal(await call('203.0.113.7'), 200);
    assert.equal(await call('203.0.113.7'), 429);
    assert.equal(await call('2001:db8::1'), 200);
    console.log('done');
    process.exit(0);
  });
})().catch((error) => { console.error(error); process.exit(1); });
