"use strict";
// What the page asks the gateway for, with the token that its reader has given.

async function get(path, asked) {
  const token = sessionStorage.getItem("token");
  const headers = token ? { Authorization: "Bearer " + token } : {};
  const signal = AbortSignal.timeout(10000); // who does not answer by then is away
  const file = asked instanceof File,
    type = file ? asked.type || "image/png" : "application/json";
  const reply = await fetch(
    path,
    asked
      ? {
          method: "POST",
          signal,
          headers: { ...headers, "Content-Type": type },
          body: file ? asked : JSON.stringify(asked),
        }
      : { headers, signal },
  );
  if (reply.status === 401) {
    $("login").hidden = false;
    $("login-says").textContent = token
      ? "This is not the gateway’s token"
      : "This gateway asks for its token";
    throw Object.assign(new Error("a token is needed"), { code: "UNAUTHENTICATED" });
  }
  const text = await reply.text();
  received += text.length;
  let body = null;
  try {
    body = JSON.parse(text);
  } catch {
    /* told below */
  }
  if (!reply.ok || body === null)
    throw Object.assign(new Error(body?.error || "HTTP " + reply.status), { code: body?.code });
  $("login").hidden = true;
  return body;
}

// A page that is open costs the gateway at most so much: what changes seldom is asked for every ten
// seconds, of events only what is new, and after much was received the next turn is later.
const SELDOM_MS = 10000,
  BYTES_PER_MS = 100;
let received = 0,
  kept = {},
  eventsKnown = [],
  eventsWholeAt = 0;
function anew() {
  kept = {};
  eventsWholeAt = 0;
}
async function seldom(path) {
  if (!(kept[path] && Date.now() - kept[path].at < SELDOM_MS))
    kept[path] = { body: await get(path), at: Date.now() };
  return kept[path].body;
}
// In parts: however many workers there are, no answer is long, and none holds the gateway up.
async function allWorkers() {
  const workers = [];
  for (let after = ""; after !== null;) {
    const part = await get(
      "v1/workers?limit=100" + (after && "&after=" + encodeURIComponent(after)),
    );
    workers.push(...part.workers);
    after = part.next ?? null;
  }
  return { workers };
}
async function newEvents() {
  const whole = Date.now() - eventsWholeAt > 60000 || !eventsKnown.length; // a restored catalog counts anew
  const { events } = await get(
    "v1/events?limit=200" + (whole ? "" : "&after=" + eventsKnown[0].seq),
  );
  if (whole) eventsWholeAt = Date.now();
  return (eventsKnown = whole ? events : [...events, ...eventsKnown].slice(0, 200));
}
