// Socket.IO on two nodes with the adapter of argv[3]: broadcasts, rooms and requests between the nodes.

const { Server } = require('socket.io');
const Redis = require('ioredis');

(async () => {
  const port = Number(process.argv[2]);
  const streams = process.argv[3] === 'streams';
  // A connection must be ready before it subscribes: ioredis asks for INFO first.
  const client = async () => {
    const redis = new Redis(port);
    await redis.ping();
    return redis;
  };
  const adapter = async () => streams
    ? require('@socket.io/redis-streams-adapter').createAdapter(await client())
    : require('@socket.io/redis-adapter').createAdapter(await client(), await client());
  const nodes = [new Server({ adapter: await adapter() }), new Server({ adapter: await adapter() })];
  const received = new Promise((resolve) => nodes[1].on('hello', resolve));
  const again = setInterval(() => {
    nodes[0].serverSideEmit('hello');
    nodes[0].emit('news', { n: 1 });
    nodes[0].to('room1').emit('news', 'for a room');
    nodes[0].of('/admin').emit('news', 'of a namespace');
    nodes[0].socketsJoin('room2');
  }, 100);
  await received;
  clearInterval(again);
  console.log('done');
  process.exit(0);
})().catch((error) => { console.error(error); process.exit(1); });
