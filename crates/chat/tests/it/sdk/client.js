// The JavaScript SDK against the chat.
const { decode, encode, isProtobuf, newClient, printLine, run } = require("./connect.js");

const client = newClient();
const subscription = client.newSubscription("conv:r", { joinLeave: true });
subscription.on("subscribed", (ctx) => printLine({ subscribed: { wasRecovering: ctx.wasRecovering, recovered: ctx.recovered } }));
subscription.on("publication", (ctx) => {
  const data = decode(ctx.data);
  if (data.type === "message") printLine({ message: data.message.content, offset: ctx.offset });
});
subscription.on("join", (ctx) => printLine({ join: ctx.info.user }));
subscription.on("unsubscribed", (ctx) => printLine({ unsubscribed: ctx.code }));

async function main() {
  subscription.subscribe();
  client.connect();
  await subscription.ready();
  await subscription.publish(encode({ content: "published", clientId: "p1" }));
  const sent = await client.rpc("send", encode({ conversationId: "r", content: "called", clientId: "c1" }));
  const presence = await subscription.presence();
  const stats = await subscription.presenceStats();
  const history = await subscription.history({ limit: 2, reverse: true });
  printLine({
    sent: decode(sent.data).content,
    present: Object.values(presence.clients).map((info) => info.user).sort(),
    stats: [stats.numClients, stats.numUsers],
    history: history.publications.map((publication) => decode(publication.data).message.content),
  });
  const errors = [
    client.rpc("unknown", encode({})),
    client.rpc("send", encode({ conversationId: "r" })),
    client.rpc("send", isProtobuf ? Uint8Array.of(0xff) : null),
  ];
  const codes = await Promise.all(errors.map((call) => call.then(() => 0, (error) => error.code)));
  printLine({ errors: codes });
  const feed = client.newSubscription("user:anna");
  feed.on("subscribed", (ctx) => printLine({ feed: decode(ctx.data).total }));
  feed.on("publication", (ctx) => printLine({ update: decode(ctx.data).type }));
  feed.subscribe();
  await feed.ready();
  const refused = client.newSubscription("conv:other");
  refused.on("unsubscribed", (ctx) => printLine({ refused: ctx.code }));
  refused.subscribe();
}

run(main);
