// The back end of the example: serves the page, and lets visitors join the conversation through the HTTP API of Hob.
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const hob = process.env.HOB_URL ?? "http://127.0.0.1:7070";
const port = Number(process.env.PORT ?? 8080);
const CONVERSATION = "lobby";
const MAX_BODY_BYTES = 1_000;

const here = dirname(fileURLToPath(import.meta.url));
const sdk = join(dirname(createRequire(import.meta.url).resolve("centrifuge")), "../dist/centrifuge.js");
const FILES = {
  "/": [join(here, "index.html"), "text/html; charset=utf-8"],
  "/chat.js": [join(here, "chat.js"), "text/javascript"],
  "/centrifuge.js": [sdk, "text/javascript"],
};

/** Calls the HTTP API of Hob. `accepted` are the statuses that are not an error. */
async function call(path, body, accepted) {
  const headers = { "content-type": "application/json" };
  if (process.env.HOB_API_TOKEN) headers.authorization = `Bearer ${process.env.HOB_API_TOKEN}`;
  const response = await fetch(`${hob}/api/v1/chat${path}`, { method: "POST", headers, body: JSON.stringify(body) });
  const text = await response.text();
  if (!accepted.includes(response.status)) throw new Error(`${path} failed with ${response.status}: ${text}`);
  return text && JSON.parse(text);
}

/** Creates the conversation, adds the user and issues a token. A user who is a member already gets only the token. */
async function joinConversation(user) {
  await call("/conversations", { id: CONVERSATION, title: "Lobby", created_by: "host" }, [201, 409]);
  await call(`/conversations/${CONVERSATION}/members`, { user_id: user }, [204, 409]);
  const { token } = await call(`/users/${encodeURIComponent(user)}/token`, { ttl: 3600 }, [200]);
  return { token, channel: `conv:${CONVERSATION}`, conversationId: CONVERSATION, url: `${hob.replace(/^http/, "ws")}/connection/websocket` };
}

async function readBody(request) {
  let text = "";
  for await (const chunk of request) {
    text += chunk;
    if (text.length > MAX_BODY_BYTES) throw new Error("the request is too large");
  }
  return JSON.parse(text);
}

async function answer(request, response) {
  if (request.method === "POST" && request.url === "/join") {
    const { user } = await readBody(request);
    const joined = await joinConversation(String(user));
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(joined));
    return;
  }
  const file = request.method === "GET" && FILES[request.url];
  if (!file) return response.writeHead(404).end();
  response.writeHead(200, { "content-type": file[1] }).end(await readFile(file[0]));
}

createServer((request, response) => {
  answer(request, response).catch((error) => {
    console.error(error.message);
    response.writeHead(502, { "content-type": "text/plain" }).end("Hob did not answer as expected. See the log.");
  });
}).listen(port, "127.0.0.1", () => console.log(`open http://127.0.0.1:${port}`));
