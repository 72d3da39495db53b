// Forms and their results. Pages work without it.
//
// After a form was sent, the server names the action in the cookie hob_toast, and the next page shows it as a toast. A form
// with data-guard asks before entered data is lost. A button with data-append adds its code to a field.

// Toasts.

const VERBS = {
  add: "added", put: "saved", edit: "saved", save: "saved", delete: "deleted", remove: "deleted", pause: "paused",
  resume: "resumed", start: "started", stop: "stopped", check: "checked", test: "tested", acknowledge: "acknowledged",
  note: "note added", update: "update published", create: "created", revoke: "revoked", cancel: "cancelled", change: "changed",
};
// Actions that the opposite action undoes, if the page has its button.
const OPPOSITE = { pause: "resume", resume: "pause" };
const SHOWN_MS = 6_000;

function toast(action) {
  const [noun, verb] = action.split(".").slice(-2);
  const box = document.createElement("div");
  box.className = "toast";
  box.setAttribute("role", "status");
  const name = noun.replaceAll("_", " ");
  box.append(`${name.charAt(0).toUpperCase()}${name.slice(1)} ${VERBS[verb] ?? verb}`);
  const undo = OPPOSITE[verb] && document.querySelector(`main form[action$="/${OPPOSITE[verb]}"]`);
  if (undo) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "link";
    button.textContent = "Undo";
    button.addEventListener("click", () => undo.requestSubmit());
    box.append(button);
  }
  document.body.append(box);
  setTimeout(() => box.remove(), SHOWN_MS);
}

const done = document.cookie.split("; ").find((pair) => pair.startsWith("hob_toast="));
if (done) {
  document.cookie = "hob_toast=; path=/; max-age=0; samesite=lax";
  const action = done.slice("hob_toast=".length);
  if (/^[a-z_.]{3,64}$/.test(action)) toast(action);
}

// Unsaved changes.

// A form of data-guard="unsaved" came from the server with entered data, for example after a dry run.
const changed = new WeakSet(document.querySelectorAll('form[data-guard="unsaved"]'));
let leaving = false;

document.addEventListener("input", (event) => {
  const form = event.target.closest?.("form[data-guard]");
  if (form) changed.add(form);
});
document.addEventListener("submit", (event) => {
  if (!event.defaultPrevented && event.target.matches("form[data-guard]")) leaving = true;
});
addEventListener("pageshow", () => { leaving = false; });
addEventListener("beforeunload", (event) => {
  const unsaved = [...document.querySelectorAll("form[data-guard]")].some((form) => changed.has(form));
  if (unsaved && !leaving) event.preventDefault();
});

// Examples.

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("button[data-append]");
  const field = button && document.getElementById(button.dataset.append);
  if (!field) return;
  event.preventDefault();
  field.value = `${field.value.trimEnd()}\n${button.textContent.trim()}`.trimStart();
  field.dispatchEvent(new Event("input", { bubbles: true }));
});

// The editor of plans: line numbers, and the first mistake at its line while the user types. A form with data-check names the
// address that checks the plan; it answers with {"line": number or null, "message": text}.

const TYPING_MS = 400;

function edit(form) {
  const field = form.querySelector("textarea[name=source]");
  if (!field) return;
  const [frame, numbers, verdict] = ["div", "pre", "p"].map((name) => document.createElement(name));
  frame.className = "numbered";
  numbers.setAttribute("aria-hidden", "true");
  verdict.className = "verdict";
  verdict.setAttribute("role", "status");
  field.wrap = "off";
  field.before(frame);
  frame.append(numbers, field);
  frame.after(verdict);
  let wrong = null;
  let timer = 0;
  let asked = null;

  const number = () => {
    const lines = field.value.split("\n").length;
    numbers.replaceChildren(...Array.from({ length: lines }, (_, at) => {
      const line = document.createElement("span");
      line.textContent = at + 1;
      if (at + 1 === wrong) line.className = "wrong";
      return line;
    }));
    numbers.scrollTop = field.scrollTop;
  };
  const check = async () => {
    asked?.abort();
    asked = new AbortController();
    try {
      const body = new URLSearchParams(new FormData(form));
      const answer = await fetch(form.dataset.check, { method: "POST", body, signal: asked.signal });
      if (!answer.ok) return;
      const { line, message } = await answer.json();
      wrong = line;
      verdict.textContent = message;
      verdict.classList.toggle("bad", line !== null);
      field.setAttribute("aria-invalid", line !== null);
      number();
    } catch {
      // Another check has begun, or the server is away: the plan is checked when it is saved.
    }
  };
  field.addEventListener("input", number);
  // Also the files of a plan.
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(check, TYPING_MS);
  });
  field.addEventListener("scroll", () => { numbers.scrollTop = field.scrollTop; });
  number();
}

document.querySelectorAll("form[data-check]").forEach(edit);
