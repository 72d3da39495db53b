// Keeps pages current. They are complete without it: it only saves people from reloading.
//
// An element with an id and data-live="topic …" is brought up to date whenever an event of one of its topics
// arrives: the page is fetched again, and what differs in such elements is changed in place, so that focus, scroll,
// selection, open details and half-filled fields stay as they are. A form with data-filter="id …" does the same with
// the named elements while somebody types into it.

const INTERVAL_MS = 200;
const TYPING_MS = 200;
const BANNER_AFTER_MS = 2_000;
const LONGEST_PAUSE_MS = 30_000;

const banner = document.getElementById("banner");

function say(text) {
  if (!banner) return;
  banner.hidden = !text;
  if (banner.textContent !== text) banner.textContent = text;
}

// Changing in place.

function morph(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeType !== Node.ELEMENT_NODE) {
    old.nodeValue = fresh.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !keeps(old, name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && !keeps(old, name)) old.setAttribute(name, value);
  }
  morphChildren(old, fresh);
}

// What people did to an element is theirs.
function keeps(element, attribute) {
  if (attribute === "open") return element.localName === "details";
  return "sending" in element.dataset && (attribute === "disabled" || attribute === "data-sending");
}

function morphChildren(old, fresh) {
  let place = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const same = counterpart(place, child);
    if (same) {
      if (same !== place) old.insertBefore(same, place);
      else place = place.nextSibling;
      morph(same, child);
    } else {
      old.insertBefore(document.importNode(child, true), place);
    }
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

// The node that a fresh one stands for: by its id wherever it is now, otherwise what is at its place.
function counterpart(place, fresh) {
  if (fresh.id) {
    for (let node = place; node; node = node.nextSibling) if (node.id === fresh.id) return node;
    return null;
  }
  return place && !place.id && place.nodeName === fresh.nodeName ? place : null;
}

// Fetching again.

let running = false;
let again = false;
let timer = 0;
let lastTook = 0;
let asked = null;

function refreshSoon(wait = Math.max(INTERVAL_MS, lastTook)) {
  if (running) again = true;
  else if (!timer) timer = setTimeout(refresh, wait);
}

async function refresh() {
  timer = 0;
  running = true;
  const began = performance.now();
  asked = new AbortController();
  try {
    const answer = await fetch(location.href, { headers: { "Hob-Live": "1" }, signal: asked.signal });
    if (answer.status === 401 || answer.redirected) {
      stop();
      say("You are signed out. Reload the page to sign in.");
    } else if (answer.ok) {
      swap(new DOMParser().parseFromString(await answer.text(), "text/html"));
    } else {
      say("The server could not answer. This page shows what was known before.");
    }
  } catch (error) {
    if (error.name !== "AbortError") say("The server cannot be reached. This page shows what was known before.");
  }
  lastTook = performance.now() - began;
  running = false;
  if (again) {
    again = false;
    refreshSoon();
  }
}

function swap(fresh) {
  const filtered = [...document.querySelectorAll("form[data-filter]")].flatMap((form) => form.dataset.filter.split(" "));
  const live = [...document.querySelectorAll("[data-live][id]")].map((element) => element.id);
  for (const id of new Set([...live, ...filtered])) {
    const [old, now] = [document.getElementById(id), fresh.getElementById(id)];
    if (old && now) morph(old, now);
  }
  clock(fresh.body);
  tellTimes();
  if (connected) say("");
}

// Hearing of changes.

let source = null;
let connected = true;
let stopped = false;
let pause = 1_000;
let lateTimer = 0;

function topics() {
  const all = [...document.querySelectorAll("[data-live][id]")].flatMap((element) => element.dataset.live.split(" "));
  return [...new Set(all)].filter(Boolean).sort();
}

function listen() {
  const wanted = topics();
  if (source || stopped || document.hidden || !wanted.length) return;
  source = new EventSource(`/live?topics=${wanted.map(encodeURIComponent).join(",")}`);
  source.addEventListener("open", () => {
    clearTimeout(lateTimer);
    lateTimer = 0;
    pause = 1_000;
    if (!connected) {
      connected = true;
      refreshSoon(0);
    }
  });
  source.addEventListener("changed", () => refreshSoon());
  source.addEventListener("reset", () => refreshSoon());
  source.addEventListener("error", lost);
}

// A browser tries again by itself unless the server refused; then it is up to us.
function lost() {
  lateTimer ||= setTimeout(() => say("Live updates are interrupted. Trying again…"), BANNER_AFTER_MS);
  connected = false;
  if (source?.readyState === EventSource.CLOSED) {
    source = null;
    setTimeout(listen, pause * (0.5 + Math.random() / 2));
    pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
  }
}

function hush() {
  source?.close();
  source = null;
  clearTimeout(lateTimer);
  lateTimer = 0;
}

function stop() {
  stopped = true;
  hush();
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) return hush();
  listen();
  if (topics().length) refreshSoon(0);
});

// Times that go on, by the server's clock.

let serverAhead = 0;

function clock(body) {
  const now = Number(body.dataset.now);
  if (now) serverAhead = now - Date.now();
}

function distance(milliseconds) {
  const seconds = Math.floor(Math.abs(milliseconds) / 1000);
  if (seconds < 2) return "just now";
  const length =
    seconds < 90 ? `${seconds}\u00a0s`
    : seconds < 5_400 ? `${Math.floor((seconds + 30) / 60)}\u00a0min`
    : seconds < 129_600 ? `${Math.floor((seconds + 1_800) / 3_600)}\u00a0h`
    : `${Math.floor((seconds + 43_200) / 86_400)}\u00a0d`;
  return milliseconds < 0 ? `in ${length}` : `${length} ago`;
}

function tellTimes() {
  const now = Date.now() + serverAhead;
  for (const time of document.querySelectorAll("time[data-ago]")) {
    const said = distance(now - Date.parse(time.dateTime));
    if (time.textContent !== said) time.textContent = said;
  }
}

// Reading numbers off charts. The browser's own way, a <title>, is slower and would cover ours.

const told = new WeakMap();
const tip = document.createElement("div");
tip.className = "tip";
tip.setAttribute("aria-hidden", "true");

function point(event) {
  const mark = event.target.closest?.(".chart .hit, .chart .band, .chart .limit, .heartbeat .beat");
  if (!mark) return tip.remove();
  const title = mark.querySelector("title");
  if (title) {
    told.set(mark, title.textContent);
    title.remove();
  }
  tip.textContent = told.get(mark) ?? "";
  if (!tip.isConnected) document.body.append(tip);
  const [width, height] = [tip.offsetWidth, tip.offsetHeight];
  const right = event.clientX + 14 + width > document.documentElement.clientWidth;
  const left = right ? event.clientX - 14 - width : event.clientX + 14;
  tip.style.left = `${Math.max(4, left) + scrollX}px`;
  tip.style.top = `${Math.max(4, event.clientY - height - 10) + scrollY}px`;
}

document.addEventListener("pointermove", point, { passive: true });
document.addEventListener("pointerdown", point, { passive: true });
document.addEventListener("pointerleave", () => tip.remove());

// Forms.

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.dataset.confirm && !confirm(form.dataset.confirm)) return event.preventDefault();
  if (form.dataset.filter !== undefined) {
    event.preventDefault();
    return filter(form);
  }
  // Only after the form was read: a disabled button's value would not be sent.
  setTimeout(() => form.querySelectorAll("button:enabled").forEach((button) => sending(button, true)));
});

function sending(button, yes) {
  button.disabled = yes;
  button.toggleAttribute("data-sending", yes);
}

// Coming back to a page that was left by sending a form.
addEventListener("pageshow", (event) => {
  if (event.persisted) document.querySelectorAll("button[data-sending]").forEach((button) => sending(button, false));
});

let typing = 0;

document.addEventListener("input", (event) => {
  const form = event.target.closest?.("form[data-filter]");
  if (!form) return;
  clearTimeout(typing);
  typing = setTimeout(filter, TYPING_MS, form);
});

function filter(form) {
  const fields = [...new FormData(form)].filter(([, value]) => value !== "");
  const url = new URL(form.action);
  url.search = new URLSearchParams(fields).toString();
  history.replaceState(null, "", url);
  // An answer to an older question would be wrong now.
  if (running) asked?.abort();
  refreshSoon(0);
}

// On a phone the navigation scrolls sideways: where one is should be in sight.
const here = document.querySelector(".nav [aria-current]");
if (here && here.getBoundingClientRect().right > innerWidth) here.scrollIntoView({ block: "nearest", inline: "center" });

clock(document.body);
setInterval(tellTimes, 1_000);
listen();
