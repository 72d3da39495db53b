// Makes the chat page live: new messages, typing, presence and unread counts over the WebSocket. Without JavaScript the
// page shows the same content, and its forms send messages and mark them as read.
//
// It implements the client protocol: one connection, the user's feed, and the channel of the open conversation. After a
// disconnect it reconnects and recovers from the last offset.

const page = document.getElementById("chat");
const me = page.dataset.user;
const conversation = page.dataset.conversation;
const list = document.getElementById("messages");
const typingLine = document.getElementById("typing");
const form = document.getElementById("say");
const readForm = document.getElementById("mark-read");
const banner = document.getElementById("banner");

const MAX_RECONNECT_MS = 10_000;
const TYPING_INTERVAL_MS = 2_500;

let socket = null;
let attempts = 0;
let nextId = 1;
let pending = new Map();
let offset = Number(page.dataset.offset);
let epoch = "";
const typists = new Set();

function showBanner(text) {
  if (!banner) return;
  banner.hidden = !text;
  banner.textContent = text;
}

function call(command) {
  return new Promise((resolve, reject) => {
    if (!socket || socket.readyState !== WebSocket.OPEN) return reject(new Error("not connected"));
    const id = nextId++;
    pending.set(id, { resolve, reject });
    socket.send(JSON.stringify({ id, ...command }));
  });
}

function rpc(method, data) {
  return call({ rpc: { method, data } }).then((reply) => reply.rpc.data);
}

function connect() {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  socket = new WebSocket(`${scheme}://${location.host}/connection/websocket`);
  socket.onopen = onOpen;
  socket.onmessage = (event) => event.data.split("\n").forEach((line) => receive(JSON.parse(line)));
  socket.onclose = (event) => {
    for (const { reject } of pending.values()) reject(new Error("disconnected"));
    pending = new Map();
    page.removeAttribute("data-live");
    if (event.code === 3005) return showBanner("The session has ended. Reload the page.");
    if (event.code >= 3500 && event.code < 4000) return showBanner("The server closed the connection. Reload the page.");
    attempts += 1;
    showBanner("Connection lost. Reconnecting…");
    setTimeout(connect, Math.min(MAX_RECONNECT_MS, 200 * 2 ** attempts) * (0.5 + Math.random() / 2));
  };
}

async function onOpen() {
  try {
    await call({ connect: { token: page.dataset.token, name: "hob" } });
    const feed = await call({ subscribe: { channel: `user:${me}` } });
    showSnapshot(feed.subscribe.data);
    if (conversation) await subscribeToConversation();
    attempts = 0;
    showBanner("");
    page.setAttribute("data-live", "");
  } catch (error) {
    socket.close();
  }
}

async function subscribeToConversation() {
  const request = { channel: `conv:${conversation}`, join_leave: true, recover: true, offset, epoch };
  const { subscribe } = await call({ subscribe: request });
  epoch = subscribe.epoch;
  if (!subscribe.recovered) return location.reload();
  for (const publication of subscribe.publications ?? []) handlePublication(publication);
  offset = subscribe.offset;
  markRead();
}

function receive(frame) {
  if (frame.id) {
    const { resolve, reject } = pending.get(frame.id) ?? {};
    pending.delete(frame.id);
    if (frame.error) reject?.(new Error(frame.error.message));
    else resolve?.(frame);
  } else if (frame.push) {
    handlePush(frame.push);
  } else {
    socket.send("{}");
  }
}

function handlePush({ channel, pub, join, leave, unsubscribe }) {
  if (unsubscribe) {
    if (unsubscribe.code >= 2500) socket.close();
    else if (channel === `conv:${conversation}`) showBanner("You are no longer a member of this conversation.");
  } else if (join || leave) {
    showPerson((join ?? leave).info.user, Boolean(join));
  } else if (channel.startsWith("user:")) {
    handleFeedUpdate(pub.data);
  } else {
    handlePublication(pub);
  }
}

function handlePublication({ data, offset: position }) {
  if (position) offset = Math.max(offset, position);
  switch (data.type) {
    case "message":
      showMessage(data.message);
      markRead();
      break;
    case "edited":
      updateMessage(data.message, (item) => (item.querySelector("p").textContent = data.message.content));
      break;
    case "deleted":
      updateMessage(data.message, (item) => item.remove());
      break;
    case "typing":
      if (data.userId !== me) showTyping(data.userId, data.typing);
      break;
    case "joined":
      showMember(data.userId);
      break;
    case "left":
      findPerson(data.userId)?.remove();
  }
}

function updateMessage(message, update) {
  const item = list.querySelector(`[data-id="${CSS.escape(message.id)}"]`);
  if (item) update(item);
}

function showMessage(message) {
  if (message.deleted || list.querySelector(`[data-id="${CSS.escape(message.id)}"]`)) return;
  const item = document.createElement("li");
  item.dataset.id = message.id;
  item.dataset.sequence = message.sequence;
  if (message.senderId === me) item.className = "own";
  const [sender, time, text] = ["b", "time", "p"].map((name) => document.createElement(name));
  sender.textContent = message.senderId;
  time.dateTime = message.timestamp;
  time.textContent = message.timestamp.slice(11, 16);
  text.textContent = message.content;
  item.append(sender, time, text);
  const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 80;
  list.append(item);
  if (atEnd || message.senderId === me) list.scrollTop = list.scrollHeight;
}

function showTyping(user, typing) {
  if (typing) typists.add(user);
  else typists.delete(user);
  const names = [...typists].slice(0, 3).join(", ");
  typingLine.textContent = names ? `${names} ${typists.size > 1 ? "are" : "is"} typing…` : "";
}

function findPerson(user) {
  return document.querySelector(`[data-person="${CSS.escape(user)}"]`);
}

function showPerson(user, online) {
  findPerson(user)?.toggleAttribute("data-online", online);
}

function showMember(user) {
  if (findPerson(user)) return;
  const person = document.createElement("span");
  person.className = "chat-person";
  person.dataset.person = person.textContent = user;
  document.getElementById("people").append(person);
}

function showUnread(room, unread) {
  if (readForm && room === conversation) readForm.hidden = unread === 0;
  const badge = document.querySelector(`[data-room="${CSS.escape(room)}"] [data-unread]`);
  if (!badge) return;
  badge.textContent = unread;
  badge.hidden = unread === 0;
}

function showSnapshot(snapshot) {
  for (const { conversationId, unread } of snapshot.unread) showUnread(conversationId, unread);
  for (const person of document.querySelectorAll("[data-person]")) {
    const online = person.dataset.person === me || snapshot.online.includes(person.dataset.person);
    person.toggleAttribute("data-online", online);
  }
}

function handleFeedUpdate(data) {
  if (data.type === "unread") showUnread(data.conversationId, data.unread);
  else if (data.type === "presence") showPerson(data.userId, data.online);
  else if (data.type === "membership" && data.conversationId !== conversation) location.reload();
}

let reading = 0;
function markRead() {
  if (document.hidden || !conversation) return;
  clearTimeout(reading);
  reading = setTimeout(() => rpc("read", { conversationId: conversation, sequence: offset }).catch(() => {}), 200);
}
document.addEventListener("visibilitychange", markRead);

function attachForm() {
  const field = form.elements.content;
  let lastTyping = 0;
  field.addEventListener("input", () => {
    if (!field.value || Date.now() - lastTyping < TYPING_INTERVAL_MS) return;
    lastTyping = Date.now();
    rpc("typing", { conversationId: conversation, typing: true }).catch(() => {});
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const content = field.value.trim();
    if (!content) return;
    // A retry uses the same id, so that the message is sent once.
    const clientId = form.dataset.pending === content ? form.dataset.clientId : crypto.randomUUID();
    form.dataset.pending = content;
    form.dataset.clientId = clientId;
    try {
      showMessage(await rpc("send", { conversationId: conversation, content, clientId }));
      if (field.value.trim() === content) field.value = "";
      delete form.dataset.pending;
      lastTyping = 0;
    } catch (error) {
      showBanner(`Not sent: ${error.message}. Try again.`);
    }
  });
}

if (page.dataset.token) {
  if (list) list.scrollTop = list.scrollHeight;
  if (form) attachForm();
  connect();
}
