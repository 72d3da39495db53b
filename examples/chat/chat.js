// The page of the example. It joins through the back end, then talks to Hob over the WebSocket.
const element = (id) => document.getElementById(id);
const TYPING_INTERVAL_MS = 2_500;
const THUMB = "👍";

async function join(user) {
  const response = await fetch("/join", { method: "POST", body: JSON.stringify({ user }) });
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

async function start(user) {
  const { token, channel, conversationId, url } = await join(user);
  // A new token when this one expires.
  const client = new Centrifuge(url, { token, getToken: async () => (await join(user)).token });
  const conversation = client.newSubscription(channel, { joinLeave: true });
  const online = new Set();
  const typists = new Set();
  // The loaded messages include all events up to this one.
  let loaded = 0;
  // The events that arrive while messages are loaded; they are shown afterwards.
  let waiting = null;

  client.on("connecting", () => (element("state").textContent = "Connecting…"));
  client.on("connected", () => (element("state").textContent = ""));
  client.on("disconnected", ({ reason }) => (element("state").textContent = `Disconnected: ${reason}`));

  conversation.on("subscribed", async ({ wasRecovering, recovered }) => {
    // After a reconnect, the missed events follow as publications. Otherwise the messages are loaded.
    if (!wasRecovering || !recovered) await loadMessages();
    const { clients } = await conversation.presence();
    online.clear();
    for (const { user } of Object.values(clients)) online.add(user);
    showOnline();
  });
  conversation.on("join", ({ info }) => showOnline(online.add(info.user)));
  conversation.on("leave", ({ info }) => showOnline(online.delete(info.user)));
  conversation.on("publication", (event) => (waiting ? waiting.push(event) : showEvent(event)));

  function showEvent({ data, offset }) {
    if (offset <= loaded) return;
    if (data.type === "typing") {
      if (data.typing) typists.add(data.userId);
      else typists.delete(data.userId);
      element("typing").textContent = typists.size ? `${[...typists].join(", ")} typing…` : "";
    } else if (data.message) {
      showMessage(data.message);
    } else if (data.emoji === THUMB) {
      countThumb(data.messageId, data.type === "reacted" ? 1 : -1, data.userId === user);
    }
  }

  async function loadMessages() {
    waiting ??= [];
    try {
      const { data } = await client.rpc("messages", { conversationId, limit: 100 });
      loaded = data.offset;
      element("messages").replaceChildren();
      for (const message of data.messages) showMessage(message);
    } finally {
      const events = waiting ?? [];
      waiting = null;
      events.forEach(showEvent);
    }
  }

  function showOnline() {
    element("online").textContent = [...online].sort().join(", ");
  }

  function findMessage(id) {
    return document.querySelector(`[data-id="${CSS.escape(id)}"]`);
  }

  // A message is shown in one place: an edit replaces its text, and a deletion removes it.
  function showMessage({ id, senderId, content, deleted, reactions = [] }) {
    const found = findMessage(id);
    if (deleted) return found?.remove();
    const item = found ?? newMessage(id);
    item.firstElementChild.textContent = `${senderId}: ${content}`;
    if (found) return;
    element("messages").append(item);
    const thumbs = reactions.find(({ emoji }) => emoji === THUMB);
    if (thumbs) countThumb(id, thumbs.count, thumbs.own);
  }

  function newMessage(id) {
    const item = document.createElement("li");
    item.dataset.id = id;
    const button = document.createElement("button");
    button.textContent = THUMB;
    button.dataset.count = 0;
    button.ariaPressed = "false";
    button.addEventListener("click", () => {
      const method = button.ariaPressed === "true" ? "unreact" : "react";
      client.rpc(method, { conversationId, messageId: id, emoji: THUMB }).catch((error) => {
        element("state").textContent = `Not saved: ${error.message}`;
      });
    });
    item.append(document.createElement("span"), " ", button);
    return item;
  }

  function countThumb(id, change, own) {
    const button = findMessage(id)?.querySelector("button");
    if (!button) return;
    const count = Number(button.dataset.count) + change;
    button.dataset.count = count;
    button.textContent = count > 0 ? `${THUMB} ${count}` : THUMB;
    if (own) button.ariaPressed = String(change > 0);
  }

  let lastTyping = 0;
  const field = element("send").elements.content;
  field.addEventListener("input", () => {
    if (Date.now() - lastTyping < TYPING_INTERVAL_MS) return;
    lastTyping = Date.now();
    client.rpc("typing", { conversationId, typing: true }).catch(() => {});
  });
  element("send").addEventListener("submit", async (event) => {
    event.preventDefault();
    const content = field.value;
    try {
      // With a client id, a repeated send does not send the message twice.
      await client.rpc("send", { conversationId, content, clientId: crypto.randomUUID() });
      field.value = "";
      lastTyping = 0;
    } catch (error) {
      element("state").textContent = `Not sent: ${error.message}`;
    }
  });

  conversation.subscribe();
  client.connect();
}

element("join").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await start(event.target.elements.user.value);
    element("join").hidden = true;
    element("chat").hidden = false;
  } catch (error) {
    alert(error.message);
  }
});
