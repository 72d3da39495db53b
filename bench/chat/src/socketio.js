// A room server as the manuals of Socket.IO and of its Redis adapter describe it: who connects says which room, and
// what is sent there goes to all its clients, on all nodes.
const http = require("http");
const { Server } = require("socket.io");
const { createAdapter } = require("@socket.io/redis-adapter");
const { createClient } = require("redis");

async function main() {
  const publisher = createClient({ url: process.argv[2] });
  const subscriber = publisher.duplicate();
  await Promise.all([publisher.connect(), subscriber.connect()]);
  const server = http.createServer();
  const io = new Server(server, {
    transports: ["websocket"],
    perMessageDeflate: false,
    adapter: createAdapter(publisher, subscriber),
  });
  io.on("connection", (socket) => {
    const { room } = socket.handshake.auth;
    socket.join(room);
    socket.on("send", (content, acknowledge) => {
      io.to(room).emit("message", content);
      acknowledge();
    });
    socket.emit("joined");
  });
  server.listen(0, "127.0.0.1", () => console.log(`127.0.0.1:${server.address().port}`));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
