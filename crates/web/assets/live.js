// Updates open pages. Pages work without it.
//
// An element with an id and data-live="topic …" is updated when an event of one of its topics arrives: the page is
// fetched again, and differences in such elements are applied in place, so that focus, scroll, selection, open details
// and edited fields are kept. A form with data-filter="id …" updates the named elements while the user types.

const INTERVAL_MS = 200;
const TYPING_MS = 200;
const BANNER_AFTER_MS = 2_000;
const MAX_PAUSE_MS = 30_000;

const banner = document.getElementById("banner");

function showBanner(text) {
  if (!banner) return;
  banner.hidden = !text;
  if (banner.textContent !== text) banner.textContent = text;
}

// Update in place.

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

// Keep the changes of the user in an element.
function keeps(element, attribute) {
  if (attribute === "open") return element.localName === "details";
  if (attribute === "tabindex") return element.matches(SCROLLED);
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

// The current node for a new one: by id, otherwise by position.
function counterpart(place, fresh) {
  if (fresh.id) {
    for (let node = place; node; node = node.nextSibling) if (node.id === fresh.id) return node;
    return null;
  }
  return place && !place.id && place.nodeName === fresh.nodeName ? place : null;
}

// Fetch the page again.

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
      showBanner("You are signed out. Reload the page to sign in.");
    } else if (answer.ok) {
      swap(new DOMParser().parseFromString(await answer.text(), "text/html"));
    } else {
      showBanner("The server reported an error. This page may be out of date.");
    }
  } catch (error) {
    if (error.name !== "AbortError") showBanner("The server is unreachable. This page may be out of date.");
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
  letScroll();
  // The text of the column may be another one now.
  if (selected) select(selected.plot, selected.at);
  if (connected) showBanner("");
}

// Listen for changes.

let source = null;
let connected = true;
let stopped = false;
let pause = 1_000;
let lateTimer = 0;

function topics() {
  // The address of the answer to a form may show another page, or none.
  if (document.body.hasAttribute("data-answer")) return [];
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

// The browser reconnects automatically unless the server rejected the request.
function lost() {
  lateTimer ||= setTimeout(() => showBanner("Live updates are interrupted. Reconnecting…"), BANNER_AFTER_MS);
  connected = false;
  if (source?.readyState === EventSource.CLOSED) {
    source = null;
    setTimeout(listen, pause * (0.5 + Math.random() / 2));
    pause = Math.min(pause * 2, MAX_PAUSE_MS);
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

// Relative times, by the clock of the server.

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

// Chart tooltips. They replace the <title> of the browser, which is slower.

const told = new WeakMap();
const tip = document.createElement("div");
tip.className = "tip";
tip.setAttribute("aria-hidden", "true");

const said = document.createElement("p");
said.className = "unseen";
said.setAttribute("role", "status");

function textOf(mark) {
  const title = mark.querySelector("title");
  if (title) {
    told.set(mark, title.textContent);
    title.remove();
  }
  return told.get(mark) ?? "";
}

function showTip(mark, x, y) {
  tip.textContent = textOf(mark);
  if (!tip.isConnected) document.body.append(tip);
  const [width, height] = [tip.offsetWidth, tip.offsetHeight];
  const right = x + 14 + width > document.documentElement.clientWidth;
  const left = right ? x - 14 - width : x + 14;
  tip.style.left = `${Math.max(4, left) + scrollX}px`;
  tip.style.top = `${Math.max(4, y - height - 10) + scrollY}px`;
}

function point(event) {
  const mark = event.target.closest?.(".chart .hit, .chart .hit-part rect, .chart .band, .chart .limit, .heartbeat .beat");
  if (mark) showTip(mark, event.clientX, event.clientY);
  else if (!selected) tip.remove();
}

// The column that the arrow keys have selected in the focused chart.

let selected = null;

function select(plot, index) {
  unselect();
  const all = plot.querySelectorAll(".hit");
  if (!all.length) return;
  const at = Math.max(0, Math.min(index, all.length - 1));
  const mark = all[at];
  mark.classList.add("here");
  selected = { plot, at };
  const box = mark.getBoundingClientRect();
  showTip(mark, box.left + box.width / 2, box.top + 24);
  if (!said.isConnected) document.body.append(said);
  if (said.textContent !== tip.textContent) said.textContent = tip.textContent;
}

function unselect() {
  selected?.plot.querySelector(".hit.here")?.classList.remove("here");
  selected = null;
  tip.remove();
}

document.addEventListener("focusin", (event) => {
  if (event.target.matches?.(".chart-plot:focus-visible")) select(event.target, Infinity);
});
document.addEventListener("focusout", (event) => {
  if (event.target === selected?.plot) unselect();
});
document.addEventListener("keydown", (event) => {
  const plot = event.target.closest?.(".chart-plot");
  if (!plot || event.altKey || event.ctrlKey || event.metaKey) return;
  const at = selected?.at ?? Infinity;
  if (event.key === "ArrowLeft") select(plot, at - 1);
  else if (event.key === "ArrowRight") select(plot, at + 1);
  else if (event.key === "Home") select(plot, 0);
  else if (event.key === "End") select(plot, Infinity);
  else if (event.key === "Escape") return unselect();
  else return;
  event.preventDefault();
});

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
  // After the form was read: the value of a disabled button is not sent.
  setTimeout(() => form.querySelectorAll("button:enabled").forEach((button) => sending(button, true)));
});

function sending(button, yes) {
  button.disabled = yes;
  button.toggleAttribute("data-sending", yes);
}

// Return to a page after a form was sent.
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
  // Discard responses to older queries.
  if (running) asked?.abort();
  refreshSoon(0);
}

// Copy.

document.documentElement.classList.add("scripts");

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("button[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not copied";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1_500);
});

// Keyboard: / searches, ? shows the list, g and a letter open a page, Escape closes what is open.

let going = 0;
let cameFrom = null;

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.defaultPrevented) return;
  const picker = event.target.closest?.(".ranges details[open]");
  if (picker) {
    picker.open = false;
    picker.querySelector("summary").focus();
  } else if (event.target.matches?.("input[type=search]") && !event.target.value) {
    // The first Escape empties the field.
    if (cameFrom?.isConnected && cameFrom !== document.body) cameFrom.focus();
    else event.target.blur();
  }
});

document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.defaultPrevented) return;
  if (event.target.closest?.("input, textarea, select, [contenteditable]")) return;
  const shortcuts = document.getElementById("shortcuts");
  if (event.key === "/") {
    const field = document.querySelector("input[data-search]") ?? document.querySelector("main input[type=search]");
    if (!field) return;
    event.preventDefault();
    cameFrom = document.activeElement;
    field.focus();
    field.select();
  } else if (event.key === "?") {
    shortcuts?.showModal();
  } else if (going && performance.now() - going < 1_500) {
    going = 0;
    const link = [...(shortcuts?.querySelectorAll("a[data-key]") ?? [])].find((one) => one.dataset.key === event.key);
    if (link) location.href = link.href;
  } else if (event.key === "g") {
    going = performance.now();
  }
});

// A wide table or text takes the focus, so that the arrow keys scroll it.

const SCROLLED = ".table, main pre:not([aria-hidden])";

function letScroll() {
  for (const box of document.querySelectorAll(SCROLLED)) {
    if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}

addEventListener("resize", letScroll);
document.addEventListener("toggle", letScroll, true);

// A link to a folded part of the page unfolds it.

function unfold() {
  const part = document.getElementById(location.hash.slice(1));
  if (part?.localName === "details") part.open = true;
}

addEventListener("hashchange", unfold);

// On a phone the navigation scrolls sideways: show the active item, and the one with the focus. Browsers do not scroll to an item
// of which they show a part.
document.querySelector(".side")?.addEventListener("focusin", (event) => {
  event.target.scrollIntoView({ block: "nearest", inline: "nearest" });
});
const here = document.querySelector(".nav [aria-current]");
if (here && here.getBoundingClientRect().right > innerWidth) here.scrollIntoView({ block: "nearest", inline: "center" });

clock(document.body);
letScroll();
unfold();
setInterval(tellTimes, 1_000);
listen();
