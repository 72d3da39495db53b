// A proxy in Express 5 with express-rate-limit in Redis: node proxy.js PORT UPSTREAM_PORT REDIS_PORT
const http = require('http');
const express = require('express');
const { rateLimit } = require('express-rate-limit');
const { RedisStore } = require('rate-limit-redis');
const { createClient } = require('redis');

const [port, upstream, redis] = process.argv.slice(2).map(Number);

(async () => {
  const client = createClient({ url: `redis://127.0.0.1:${redis}` });
  await client.connect();
  const app = express();
  app.disable('x-powered-by');
  app.use(rateLimit({
    windowMs: 1000,
    limit: 1000000,
    standardHeaders: 'draft-8',
    legacyHeaders: false,
    store: new RedisStore({ sendCommand: (...words) => client.sendCommand(words) }),
  }));
  const agent = new http.Agent({ keepAlive: true, maxSockets: 256 });
  app.use((request, response) => {
    const { method, url: path, headers } = request;
    const passed = http.request({ agent, port: upstream, method, path, headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    passed.on('error', () => response.status(502).end());
    request.pipe(passed);
  });
  app.listen(port, '127.0.0.1');
})();
