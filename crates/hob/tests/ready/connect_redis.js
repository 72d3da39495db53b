// connect-redis with express-session: sessions with data, with a short and with a long cookie.

const express = require('express');
const session = require('express-session');
const { RedisStore } = require('connect-redis');
const { createClient } = require('redis');

(async () => {
  const client = createClient({ url: `redis://127.0.0.1:${process.argv[2]}` });
  await client.connect();
  const app = express();
  app.use(session({
    store: new RedisStore({ client }),
    secret: 'test',
    resave: false,
    saveUninitialized: false,
    rolling: true,
  }));
  app.get('/login/:user', (request, response) => {
    request.session.user = { id: request.params.user };
    if (request.params.user === 'short') request.session.cookie.maxAge = 60_000;
    request.session.save(() => response.send(request.session.id));
  });
  app.get('/view', (request, response) => {
    request.session.views = (request.session.views || 0) + 1;
    response.send(String(request.session.views));
  });
  const server = app.listen(0, '127.0.0.1', async () => {
    const base = `http://127.0.0.1:${server.address().port}`;
    for (const user of ['short', 'long', 'other']) {
      const login = await fetch(`${base}/login/${user}`);
      const cookie = login.headers.get('set-cookie').split(';')[0];
      await fetch(`${base}/view`, { headers: { cookie } });
    }
    console.log('done');
    process.exit(0);
  });
})().catch((error) => { console.error(error); process.exit(1); });
