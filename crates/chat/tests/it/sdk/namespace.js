// The JavaScript SDK on channels of a namespace. Prints each event as a line of JSON, and exits when its input ends.
const { Centrifuge } = require("centrifuge");
const WebSocket = require("ws");
const readline = require("readline");

const [url, token] = process.argv.slice(2);
const printLine = (what) => console.log(JSON.stringify(what));

// One message per turn of the event loop, as in a browser: see client.js.
class OrderedWebSocket extends WebSocket {
  constructor(url, protocols) {
    super(url, protocols, { allowSynchronousEvents: false });
  }
}

const client = new Centrifuge(url, {
  token, websocket: OrderedWebSocket, timeout: 30_000, minReconnectDelay: 50, maxReconnectDelay: 200,
});
client.on("error", (ctx) => printLine({ error: ctx.error.message }));

const subscription = client.newSubscription("news:a", { joinLeave: true });
subscription.on("subscribed", (ctx) => printLine({ subscribed: { wasRecovering: ctx.wasRecovering, recovered: ctx.recovered } }));
subscription.on("publication", (ctx) => printLine({ publication: ctx.data, offset: ctx.offset }));
subscription.on("join", (ctx) => printLine({ join: ctx.info.user }));
subscription.on("leave", (ctx) => printLine({ leave: ctx.info.user }));
subscription.on("unsubscribed", (ctx) => printLine({ unsubscribed: ctx.code }));

async function main() {
  subscription.subscribe();
  client.connect();
  await subscription.ready();
  await subscription.publish({ n: 1 });
  const presence = await subscription.presence();
  const stats = await subscription.presenceStats();
  const history = await subscription.history({ limit: 10 });
  printLine({
    present: Object.values(presence.clients).map((info) => info.user).sort(),
    stats: [stats.numClients, stats.numUsers],
    history: history.publications.map((publication) => publication.data),
  });
  const secret = client.newSubscription("$news:secret", { getToken: async () => process.env.SUBSCRIPTION_TOKEN });
  secret.on("subscribed", () => printLine({ secret: "subscribed" }));
  secret.subscribe();
}

readline.createInterface({ input: process.stdin }).on("close", () => process.exit(0));
main().catch((error) => {
  printLine({ failed: String(error.message ?? error) });
  process.exit(1);
});
