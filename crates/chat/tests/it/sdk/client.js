// The JavaScript SDK against the chat. Prints each event as a line of JSON, and exits when its input ends.
const { Centrifuge } = require("centrifuge");
const WebSocket = require("ws");
const readline = require("readline");

const [url, token] = process.argv.slice(2);
const printLine = (what) => console.log(JSON.stringify(what));

// One message per turn of the event loop, as in a browser. Otherwise the SDK (5.7.4) delivers the publications of two
// frames that arrive together in turns: the first of each, then the second of each.
class OrderedWebSocket extends WebSocket {
  constructor(url, protocols) {
    super(url, protocols, { allowSynchronousEvents: false });
  }
}

const client = new Centrifuge(url, {
  token, websocket: OrderedWebSocket, timeout: 30_000, minReconnectDelay: 50, maxReconnectDelay: 200,
});
client.on("error", (ctx) => printLine({ error: ctx.error.message }));

const subscription = client.newSubscription("conv:r", { joinLeave: true });
subscription.on("subscribed", (ctx) => printLine({ subscribed: { wasRecovering: ctx.wasRecovering, recovered: ctx.recovered } }));
subscription.on("publication", (ctx) => {
  if (ctx.data.type === "message") printLine({ message: ctx.data.message.content, offset: ctx.offset });
});
subscription.on("join", (ctx) => printLine({ join: ctx.info.user }));
subscription.on("unsubscribed", (ctx) => printLine({ unsubscribed: ctx.code }));

async function main() {
  subscription.subscribe();
  client.connect();
  await subscription.ready();
  await subscription.publish({ content: "published", clientId: "p1" });
  const sent = await client.rpc("send", { conversationId: "r", content: "called", clientId: "c1" });
  const presence = await subscription.presence();
  const stats = await subscription.presenceStats();
  const history = await subscription.history({ limit: 2, reverse: true });
  printLine({
    sent: sent.data.content,
    present: Object.values(presence.clients).map((info) => info.user).sort(),
    stats: [stats.numClients, stats.numUsers],
    history: history.publications.map((publication) => publication.data.message.content),
  });
  const refused = await client.newSubscription("conv:other");
  refused.on("unsubscribed", (ctx) => printLine({ refused: ctx.code }));
  refused.subscribe();
}

readline.createInterface({ input: process.stdin }).on("close", () => process.exit(0));
main().catch((error) => {
  printLine({ failed: String(error.message ?? error) });
  process.exit(1);
});
