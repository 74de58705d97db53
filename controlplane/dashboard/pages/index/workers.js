"use strict";
// The workers: how busy they are, and what they have loaded.

function kindRow(k) {
  const more = [
    k.missing ? el("b", { class: k.running ? "short" : "none" }, k.missing + " missing") : null,
    k.silent ? el("b", { class: k.running ? "short" : "none" }, k.silent + " not answering") : null,
    k.draining ? el("span", { class: "short" }, k.draining + " draining") : null,
    k.running > k.wanted
      ? el("span", { class: "short" }, k.running - k.wanted + " more than wanted")
      : null,
  ]
    .filter(Boolean)
    .flatMap(node => [" · ", node]);
  const from = {
    stored: "stored by modelless workers scale",
    settings: "from the settings",
    plan: "the plan decides, up to " + k.asked,
  }[k.source];
  return el(
    "div",
    { class: "row", title: from },
    el("code", {}, k.device_kind),
    el("span", {}, k.wanted + " wanted · " + k.running + " running", ...more),
  );
}

// Chips of what a worker has; of many that are ready their number, which opens to all of them.
const MOST_CHIPS = 8,
  unfolded = new Set();
function replicaChips(worker, ofTasks, told) {
  const chip = r =>
    el(
      "span",
      { class: "tag " + r.state, title: r.message || r.state },
      (ofTasks ? r.task + "/" : "") + r.variant + (r.state === "ready" ? "" : " · " + r.state),
    );
  const chips = some => el("span", { class: "chips" }, ...some.map(chip));
  const replicas = worker.replicas.filter(r => !told.includes(r));
  const ready = replicas.filter(r => r.state === "ready"),
    others = replicas.filter(r => r.state !== "ready");
  if (!replicas.length) return [];
  if (replicas.length <= MOST_CHIPS) return [chips(replicas)];
  const byTask = new Map();
  for (const r of ready) byTask.set(r.task, (byTask.get(r.task) || 0) + 1);
  const words = someOf(
    [...byTask]
      .sort(
        (a, b) => (b[0] === chosen) - (a[0] === chosen) || b[1] - a[1] || (a[0] < b[0] ? -1 : 1),
      )
      .map(([task, n]) => n + " of " + task),
  );
  const fold = el(
    "details",
    { class: "fold", open: unfolded.has(worker.worker) ? "" : null },
    el("summary", {}, plural(ready.length, "variant") + " ready" + (ofTasks ? ": " + words : "")),
    chips(ready),
  );
  fold.ontoggle = () => {
    if (fold.open) unfolded.add(worker.worker);
    else unfolded.delete(worker.worker);
  };
  return others.length ? [fold, chips(others)] : [fold];
}

let workersList = null;
const kindsBox = el("div");
// The first of a worker's warnings say that it is silent, or slow, where it is.
function warningTags(w) {
  const named = [
    w.silent_s != null ? ["failed", "silent for " + fixed(w.silent_s, 0) + " s"] : null,
    w.slowness != null ? ["canary", "slow"] : null,
  ].filter(Boolean);
  return (w.warnings || []).map((text, i) => {
    const [kind, word] = named[i] || ["canary", "warning"];
    return el("span", { class: "tag " + kind, title: text }, word);
  });
}
// Why variants are not ready: each has its state, and stands here in place of among the others.
const unready = w => w.replicas.filter(r => r.message && r.state !== "ready").slice(0, MOST_CHIPS);
function unreadyNote(r) {
  const lift = "; `modelless quarantine lift " + r.task + " " + r.variant + "`";
  const since = r.quarantined_s ? "; since " + clock(new Date(1000 * r.quarantined_s)) + lift : "";
  return el(
    "p",
    { class: "note" },
    el("span", { class: "tag " + r.state }, r.state),
    " ",
    el("code", {}, r.task + "/" + r.variant),
    ": ",
    ...spoken(r.message + since),
  );
}
// What tags say under a pointer stands beneath them for everybody else.
const workerNotes = w => [
  ...(w.warnings || []).map(text => el("p", { class: "note" }, ...spoken(text))),
  ...unready(w).map(unreadyNote),
];

function meter(name, share, text, meaning, full = false) {
  const bar = el("i", { class: full ? "full" : "" });
  bar.style.width = 100 * Math.min(1, Math.max(0, share)) + "%";
  return el(
    "div",
    { title: meaning },
    el("div", { class: "row" }, el("span", {}, name), el("span", {}, text)),
    el("div", { class: "bar" }, bar),
  );
}

function showWorkers(workers, standing) {
  const kinds = standing.kinds,
    sum = name => kinds.reduce((n, k) => n + k[name], 0);
  $("worker-count").textContent = kinds.length
    ? sum("running") + " of " + sum("wanted") + " running"
    : "";
  const head = kinds.length ? [el("div", { class: "kind" }, ...kinds.map(kindRow))] : [];
  if (!workers.length) return put("workers", ...head, empty("No worker is running."));
  const tasks = new Set(workers.flatMap(w => w.replicas.map(r => r.task))).size;
  const card = w => {
    return el(
      "div",
      { class: "worker" },
      el(
        "div",
        { class: "row" },
        el("code", {}, w.worker),
        w.draining ? el("span", { class: "tag canary" }, "draining") : null,
        ...warningTags(w),
        w.zone || w.round_trip_ms
          ? el(
              "span",
              {},
              (w.zone ? "zone " + w.zone : "") +
                (w.round_trip_ms ? " " + fixed(w.round_trip_ms, 0) + " ms away" : ""),
            )
          : null,
      ),
      el(
        "div",
        { class: "meters" },
        meter(
          "busy",
          w.busy_ratio,
          fixed(100 * w.busy_ratio, 0) + " %",
          "share of its last seconds spent running batches",
          w.busy_ratio >= FULL,
        ),
        meter(
          "memory",
          w.memory_mib > 0 ? w.reserved_mib / w.memory_mib : 0,
          count(w.reserved_mib) + " of " + count(w.memory_mib) + " MiB",
          "reserved memory" +
            (w.eviction ? "; where it is short, variants leave by the rule " + w.eviction : ""),
        ),
      ),
      ...replicaChips(w, tasks > 1, unready(w)),
      ...workerNotes(w),
    );
  };
  workersList =
    workersList || new Listing(el("div"), { size: 6, noun: ["worker", "workers"], draw: null });
  if (workersList.box.isConnected) kindsBox.replaceChildren(...head);
  else {
    kindsBox.replaceChildren(...head);
    put("workers", kindsBox, workersList.box);
  }
  workersList.make = items => items.map(item => card(item.w));
  // Of more than fit the busiest come first, and what is not well.
  const unwell = w =>
    w.draining ||
    (w.warnings || []).length > 0 ||
    w.replicas.some(r => ["quarantined", "failed", "damaged"].includes(r.state));
  const ordered =
    workers.length > 6
      ? [...workers].sort(
          (a, b) =>
            unwell(b) - unwell(a) || Math.round(10 * b.busy_ratio) - Math.round(10 * a.busy_ratio),
        )
      : workers;
  workersList.show(
    ordered.map(w => ({
      w,
      text: [
        w.worker,
        w.zone,
        w.draining ? "draining" : "",
        ...w.replicas.map(r => r.task + "/" + r.variant + " " + r.state),
      ].join(" "),
    })),
  );
}
