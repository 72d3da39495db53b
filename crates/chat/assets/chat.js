// Makes the chat page live: new messages, reactions, typing, presence and unread counts over the WebSocket. Without JavaScript the
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
const MAX_QUOTE = 80;

let socket = null;
let attempts = 0;
let nextId = 1;
let pending = new Map();
let offset = Number(page.dataset.offset);
let epoch = "";
// The server has counted the reactions and replies up to this event.
const counted = Number(page.dataset.counted);
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
      if (position > counted) countReply(data.message, 1);
      markRead();
      break;
    case "edited":
      updateMessage(data.message.id, (item) => (item.querySelector("p").textContent = data.message.content));
      break;
    case "deleted":
      updateMessage(data.message.id, (item) => item.remove());
      if (position > counted) countReply(data.message, -1);
      break;
    case "reacted":
    case "unreacted":
      if (position > counted) updateMessage(data.messageId, (item) => showReaction(item, data));
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

function findMessage(id) {
  return list.querySelector(`[data-id="${CSS.escape(id)}"]`);
}

function updateMessage(id, update) {
  const item = findMessage(id);
  if (item) update(item);
}

// An element with a class and a text.
function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

const DAY = new Intl.DateTimeFormat("en-US", { month: "short", day: "numeric", timeZone: "UTC" });

function showMessage(message) {
  if (message.deleted || findMessage(message.id)) return;
  const item = element("li");
  item.id = `m-${message.id}`;
  item.dataset.id = message.id;
  item.dataset.sequence = message.sequence;
  if (message.senderId === me) item.className = "own";
  else if (message.mentions?.includes(me)) item.className = "mentioned";
  const [date, clock] = message.timestamp.split("T");
  const today = new Date().toISOString().startsWith(date);
  const time = element("time", "", `${today ? "" : `${DAY.format(new Date(message.timestamp))}, `}${clock.slice(0, 5)}`);
  time.dateTime = message.timestamp;
  time.title = `${date} ${clock.slice(0, 8)} UTC`;
  item.append(element("b", "", message.senderId), time);
  const replied = message.replyTo && findMessage(message.replyTo);
  if (replied) item.append(quote(replied));
  item.append(element("p", "", message.content), ...(message.attachments ?? []).map(fileLink), reactionsOf(message));
  const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 80;
  list.append(item);
  if (atEnd || message.senderId === me) list.scrollTop = list.scrollHeight;
}

function excerpt(item) {
  const text = item.querySelector("p").textContent || item.querySelector(".chat-file")?.firstChild.textContent || "";
  return text.length > MAX_QUOTE ? `${text.slice(0, MAX_QUOTE)}…` : text;
}

function quote(item) {
  const link = element("a", "chat-quote");
  link.href = `#${item.id}`;
  link.append(element("b", "", item.querySelector("b").textContent), ` ${excerpt(item)}`);
  return link;
}

function fileLink({ url, name, mediaType, size }) {
  const link = element("a", "chat-file", `${name} `);
  // The server accepts no other schemes. This is a second check, because a link can run a script.
  if (/^https?:/.test(url)) link.href = url;
  link.target = "_blank";
  link.rel = "noopener noreferrer nofollow";
  link.append(element("small", "", size === undefined ? mediaType : `${mediaType}, ${bytes(size)}`));
  return link;
}

function bytes(size) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const step = Math.min(Math.max(0, Math.floor(Math.log2(size || 1) / 10)), units.length - 1);
  return `${Number((size / 1024 ** step).toFixed(1))} ${units[step]}`;
}

// The form with the reactions of a message, and the buttons to react and reply.
function reactionsOf(message) {
  const reactions = element("form", "chat-reactions");
  const add = element("button", "chat-add", "👍");
  add.name = "add";
  add.value = "👍";
  add.setAttribute("aria-label", "React with thumbs up");
  const reply = element("a", "chat-reply", "Reply");
  reply.href = `?as=${encodeURIComponent(me)}&conversation=${encodeURIComponent(conversation)}&reply=${message.id}`;
  reactions.append(add, reply, element("span", "chat-replies"));
  return reactions;
}

function showReaction(item, { type, userId, emoji }) {
  const reactions = item.querySelector(".chat-reactions");
  let button = [...reactions.querySelectorAll(".chat-reaction")].find((one) => one.value === emoji);
  if (!button) {
    if (type === "unreacted") return;
    button = element("button", "chat-reaction", `${emoji} `);
    button.value = emoji;
    button.append(element("span", "", "0"));
    button.name = "add";
    button.setAttribute("aria-pressed", "false");
    reactions.querySelector(".chat-add").before(button);
  }
  const count = Number(button.lastElementChild.textContent) + (type === "reacted" ? 1 : -1);
  if (count < 1) return button.remove();
  button.lastElementChild.textContent = count;
  if (userId === me) {
    button.name = type === "reacted" ? "remove" : "add";
    button.setAttribute("aria-pressed", String(type === "reacted"));
  }
}

function countReply({ threadId }, change) {
  const item = threadId && findMessage(threadId);
  if (!item) return;
  const line = item.querySelector(".chat-replies");
  const count = Math.max(0, (Number.parseInt(line.textContent, 10) || 0) + change);
  line.textContent = count === 0 ? "" : count === 1 ? "1 reply" : `${count} replies`;
}

function replyTo(item) {
  const line = document.getElementById("replying");
  form.elements.reply_to.value = item?.dataset.id ?? "";
  line.hidden = !item;
  line.querySelector("span").textContent = item ? `${item.querySelector("b").textContent}: ${excerpt(item)}` : "";
  form.elements.content.focus();
}

// Reactions and replies without loading the page again.
function attachMessages() {
  list.addEventListener("submit", (event) => {
    event.preventDefault();
    const { name, value } = event.submitter;
    const messageId = event.target.closest("[data-id]").dataset.id;
    const method = name === "add" ? "react" : "unreact";
    rpc(method, { conversationId: conversation, messageId, emoji: value }).catch((error) => showBanner(`Not saved: ${error.message}.`));
  });
  list.addEventListener("click", (event) => {
    const reply = event.target.closest(".chat-reply");
    if (!reply) return;
    event.preventDefault();
    replyTo(reply.closest("[data-id]"));
  });
  document.getElementById("no-reply").addEventListener("click", (event) => {
    event.preventDefault();
    replyTo(null);
  });
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

function showUnread(room, unread, mentions) {
  const mentioned = document.querySelector(`[data-room="${CSS.escape(room)}"] [data-mentions]`);
  if (mentioned) {
    mentioned.textContent = `@${mentions}`;
    mentioned.hidden = !mentions;
  }
  if (readForm && room === conversation) readForm.hidden = unread === 0;
  const badge = document.querySelector(`[data-room="${CSS.escape(room)}"] [data-unread]`);
  if (!badge) return;
  badge.textContent = unread;
  badge.hidden = unread === 0;
}

function showSnapshot(snapshot) {
  for (const { conversationId, unread, mentions } of snapshot.unread) showUnread(conversationId, unread, mentions);
  for (const person of document.querySelectorAll("[data-person]")) {
    const online = person.dataset.person === me || snapshot.online.includes(person.dataset.person);
    person.toggleAttribute("data-online", online);
  }
}

function handleFeedUpdate(data) {
  if (data.type === "unread") showUnread(data.conversationId, data.unread, data.mentions);
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
      const replied = form.elements.reply_to.value || undefined;
      showMessage(await rpc("send", { conversationId: conversation, content, clientId, replyTo: replied }));
      if (field.value.trim() === content) field.value = "";
      if (replied) replyTo(null);
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
  if (form && list) attachMessages();
  connect();
}
