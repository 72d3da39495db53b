// A client of the JavaScript SDK with the format and the transport of the environment, and helpers for its programs.
const readline = require("readline");
const WebSocket = require("ws");

const isProtobuf = process.env.FORMAT === "protobuf";
const { Centrifuge } = require(isProtobuf ? "centrifuge/build/protobuf" : "centrifuge");

// In Protobuf, data is bytes.
const encode = (data) => (isProtobuf ? new TextEncoder().encode(JSON.stringify(data)) : data);
const decode = (data) => (isProtobuf ? JSON.parse(new TextDecoder().decode(data)) : data);

// One message per turn of the event loop, as in a browser. Otherwise the SDK (5.7.4) delivers the publications of two
// frames that arrive together in turns: the first of each, then the second of each.
class OrderedWebSocket extends WebSocket {
  constructor(url, protocols) {
    super(url, protocols, { allowSynchronousEvents: false });
  }
}

const printLine = (what) => console.log(JSON.stringify(what));

// The endpoint of another transport on the same server.
function transports(url) {
  const transport = process.env.TRANSPORT;
  if (!transport) return url;
  return [{ transport, endpoint: `http://${new URL(url).host}/connection/${transport}` }];
}

function newClient() {
  const [url, token] = process.argv.slice(2);
  const client = new Centrifuge(transports(url), {
    token, websocket: OrderedWebSocket, timeout: 30_000, minReconnectDelay: 50, maxReconnectDelay: 200,
    eventsource: require("eventsource"), emulationEndpoint: process.env.EMULATION,
  });
  client.on("error", (ctx) => printLine({ error: ctx.error.message }));
  return client;
}

// Runs a program that prints each event as a line of JSON, and exits when its input ends.
function run(main) {
  readline.createInterface({ input: process.stdin }).on("close", () => process.exit(0));
  main().catch((error) => {
    printLine({ failed: String(error.message ?? error) });
    process.exit(1);
  });
}

module.exports = { decode, encode, isProtobuf, newClient, printLine, run };
