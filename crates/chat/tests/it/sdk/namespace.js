// The JavaScript SDK on channels of a namespace.
const { decode, encode, newClient, printLine, run } = require("./connect.js");

const client = newClient();
const subscription = client.newSubscription("news:a", { joinLeave: true });
subscription.on("subscribed", (ctx) => printLine({ subscribed: { wasRecovering: ctx.wasRecovering, recovered: ctx.recovered } }));
subscription.on("publication", (ctx) => printLine({ publication: decode(ctx.data), offset: ctx.offset }));
subscription.on("join", (ctx) => printLine({ join: ctx.info.user }));
subscription.on("leave", (ctx) => printLine({ leave: ctx.info.user }));
subscription.on("unsubscribed", (ctx) => printLine({ unsubscribed: ctx.code }));

async function main() {
  subscription.subscribe();
  client.connect();
  await subscription.ready();
  await subscription.publish(encode({ n: 1 }));
  const presence = await subscription.presence();
  const stats = await subscription.presenceStats();
  const history = await subscription.history({ limit: 10 });
  printLine({
    present: Object.values(presence.clients).map((info) => info.user).sort(),
    stats: [stats.numClients, stats.numUsers],
    history: history.publications.map((publication) => decode(publication.data)),
  });
  const secret = client.newSubscription("$news:secret", { getToken: async () => process.env.SUBSCRIPTION_TOKEN });
  secret.on("subscribed", () => printLine({ secret: "subscribed" }));
  secret.subscribe();
}

run(main);
