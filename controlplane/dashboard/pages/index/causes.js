"use strict";
// Why the queries of a task miss their SLO: what of the fleet stands out, of what the page knows.
// Pure functions: from answers of the API to sentences and rows.

const FULL = 0.9; // of a worker's time: beyond it queries wait
const SLOWER = 2; // times what a profile says is worth a look, from so many ms on:
const SLOWER_MS = 5;

// When it began: the first step of the newest run of steps in which more than 1 % were missed.
// Up to two steps without queries or misses do not end a run.
function beganAt(history, task) {
  const row = history?.tasks.find(one => one.task === task);
  if (!row) return null;
  let began = null,
    calm = 0;
  for (let i = row.met.length - 1; i >= 0 && calm < 3; i--) {
    const missed = (row.late[i] || 0) + (row.refused[i] || 0),
      all = missed + (row.met[i] || 0);
    if (all && missed > 0.01 * all) [began, calm] = [i, 0];
    else calm += 1;
  }
  return began === null ? null : history.begins_s + began * history.step_s;
}

// Each variant of the task on each worker: what runs, and what the plan wants and is not there.
function servers(task, workers, placements, variants) {
  const planned = new Map(
    placements.filter(one => one.task === task).map(one => [one.worker + " " + one.variant, one]),
  );
  const found = [];
  for (const worker of workers)
    for (const replica of worker.replicas) {
      if (replica.task !== task) continue;
      const key = worker.worker + " " + replica.variant,
        place = planned.get(key);
      planned.delete(key);
      const profile = variants
        .find(one => one.name === replica.variant)
        ?.devices.find(one => one.device_kind === worker.device_kind);
      const single = replica.latency.find(([size]) => size === 1);
      found.push({
        variant: replica.variant,
        worker: worker.worker,
        state: replica.state,
        message: replica.message,
        share: place ? place.share : null,
        queued: replica.queued,
        busy: worker.busy_ratio,
        p95: single ? single[2] : null,
        profiled: profile ? profile.p95_ms : null,
      });
    }
  for (const one of planned.values())
    found.push({
      variant: one.variant,
      worker: one.worker,
      state: one.state,
      message: "",
      share: one.share,
      queued: 0,
      busy: null,
      p95: null,
      profiled: null,
    });
  return found.sort(
    (a, b) =>
      (a.state === "ready") - (b.state === "ready") ||
      (b.share ?? 0) - (a.share ?? 0) ||
      b.queued - a.queued ||
      (a.variant < b.variant ? -1 : 1),
  );
}

const someOf = (names, most = 3) =>
  names.slice(0, most).join(", ") +
  (names.length > most ? " and " + (names.length - most) + " more" : "");

// A sentence of the plan, or of the newest of its events, that says how little of the demand can be
// served.
const SERVED = /([\d.]+) % of it can be served/;
function tooLittle(explanation, events) {
  const planned = events.find(one => one.kind === "planned" && SERVED.test(one.message));
  const text = explanation.find(line => SERVED.test(line)) || planned?.message || "",
    share = Number(SERVED.exec(text)?.[1] ?? 100);
  return share < 99.5
    ? "The plan serves " +
        share +
        " % of the demand: there is no room for more. More workers (`modelless workers scale`), or variants that take less time, would help."
    : "";
}

// What stands out, the gravest first; each is a sentence. `events` are those since it began;
// `frozen`: that the plan is, in words; `cores`: that those of a machine are short.
function findings({ lately, rows, workers, kinds, frozen, cores, events, explanation }) {
  const found = [],
    say = text => found.push(text);
  const missing = kinds.reduce((sum, kind) => sum + kind.missing, 0),
    wanted = kinds.reduce((sum, kind) => sum + kind.wanted, 0);
  if (!workers.length) say("No worker is running.");
  else if (missing)
    say(
      missing +
        " of " +
        wanted +
        (wanted === 1 ? " worker " : " workers ") +
        (missing === 1 ? "is" : "are") +
        " missing: the others get their queries.",
    );
  if (workers.length && !rows.length)
    say(
      "No worker has a variant of it, and the plan wants none: a query has one loaded, or is refused until it is (COLD).",
    );
  const lost = [
    ...new Set(events.filter(one => one.kind === "worker_lost").map(one => one.subject)),
  ];
  if (lost.length)
    say(
      (lost.length === 1 ? "A worker was" : lost.length + " workers were") +
        " lost since then: " +
        someOf(lost) +
        ".",
    );
  const gone = rows.filter(row => row.state === "missing" || row.state === "worker_gone"),
    loading = rows.filter(row => row.state === "loading");
  const broken = rows.filter(row => ["quarantined", "failed", "damaged"].includes(row.state));
  const place = row => row.variant + " on " + row.worker;
  if (broken.length)
    say(
      "Out of service: " +
        someOf(
          broken.map(
            row => place(row) + " (" + row.state + (row.message ? ": " + row.message : "") + ")",
          ),
        ) +
        ".",
    );
  if (gone.length) say("Planned, and not there: " + someOf(gone.map(place)) + ".");
  if (loading.length) say("Being loaded: " + someOf(loading.map(place)) + ".");
  if (cores) say(cores);
  const serving = new Set(rows.map(row => row.worker)),
    own = workers.filter(worker => serving.has(worker.worker));
  const full = own.filter(worker => worker.busy_ratio >= FULL);
  if (full.length)
    say(
      (full.length === own.length
        ? full.length === 1
          ? "The worker that serves it is"
          : (own.length === 2 ? "Both" : "All " + own.length) + " workers that serve it are"
        : full.length +
          " of " +
          own.length +
          " workers that serve it " +
          (full.length === 1 ? "is" : "are")) +
        " busy for at least 90 % of the time: more is asked than " +
        (full.length === 1 ? "it" : "they") +
        " can do. More workers (`modelless workers scale`), or variants that take less time, would help.",
    );
  const little = full.length ? "" : tooLittle(explanation, events);
  if (little) say(little);
  const slow = rows.filter(
    row =>
      row.state === "ready" &&
      row.p95 >= SLOWER_MS &&
      row.profiled &&
      row.p95 >= SLOWER * row.profiled,
  );
  if (slow.length)
    say(
      "Slower than measured: " +
        someOf(
          slow.map(
            row =>
              place(row) +
              " takes " +
              ms(row.p95) +
              " ms where its profile says " +
              ms(row.profiled) +
              " ms",
          ),
        ) +
        ".",
    );
  const draining = own.filter(worker => worker.draining);
  if (draining.length) say("Draining: " + someOf(draining.map(worker => worker.worker)) + ".");
  for (const worker of own)
    for (const text of worker.warnings || []) say(worker.worker + ": " + text);
  if (frozen) say(frozen);
  if (!found.length && lately.late + lately.refused - (lately.infeasible || 0) > 0)
    say(
      "Nothing of the fleet stands out: what is planned is loaded, and no worker that serves it is busy for 90 % of the time. Short bursts look like this, deadlines that are shorter than what runs takes, and other work on the machines.",
    );
  return found;
}

// Events that may have to do with it: of its workers and variants, and of the whole fleet, from
// five minutes before on.
const OF_ALL =
  /^(worker|node|gateway|plan|inventory|frozen|thawed|peak|scale|catalog|cores|disk|live_state|control|leader|layout)/;
function relatedEvents(events, task, rows, sinceMs) {
  const names = [task + "/", ...new Set(rows.map(row => row.worker))];
  return events.filter(
    one =>
      new Date(one.at).getTime() >= sinceMs - 300000 &&
      (one.subject === task ||
        OF_ALL.test(one.kind) ||
        names.some(name => (one.subject + " ").includes(name))),
  );
}
