"use strict";
// Why the chosen task misses its SLO, who serves it and what happened meanwhile.

// Where the chosen task misses its SLO: what stands out, who serves it, and what happened
// meanwhile.
let causeGrid = null;
const causeBoxes = {
  said: el("ul"),
  serves: el("div"),
  happened: el("div"),
  next: el("p", { class: "note" }),
};
function showCause(row, seconds, workers, plan, variants, events) {
  const lately = seconds > 0 ? row?.lately : null;
  $("cause-part").hidden = !missing(lately);
  if (!missing(lately)) return;
  const rows = servers(chosen, workers, plan.placements, variants),
    began = beganAt(historyFound, chosen);
  const frozen = plan.rules.find(text => text.startsWith(FROZEN));
  const since = began === null ? Date.now() - 1000 * seconds : 1000 * began;
  const happening = events.filter(one => new Date(one.at).getTime() >= since);
  const found = findings({
    lately,
    rows,
    workers,
    kinds: plan.standing.kinds,
    frozen,
    cores: plan.cores?.sentence,
    events: happening,
    explanation: plan.explanation,
  });
  const related = eventGroups(relatedEvents(events, chosen, rows, since)).slice(0, 6);
  $("cause-task").textContent = chosen;
  $("cause-since").textContent = began === null ? "" : "since " + clock(since);
  const { said, serves, happened, next } = causeBoxes;
  if (!said.isConnected)
    put(
      "cause",
      said,
      el("h3", {}, "Who serves it"),
      serves,
      el("h3", {}, "What happened"),
      happened,
      next,
    );
  said.replaceChildren(...found.map(text => el("li", {}, ...spoken(text))));
  const state = one =>
    el(
      "span",
      { class: "tag " + one.state, title: one.message || null },
      one.state.replaceAll("_", " "),
    );
  const columns = [
    { name: "Variant", value: one => one.variant },
    { name: "Worker", value: one => one.worker },
    { name: "State", value: one => one.state },
    {
      name: "Planned",
      number: true,
      meaning: "share of a full worker’s time that the plan gives it",
      value: one => one.share,
    },
    {
      name: "Waiting",
      number: true,
      meaning: "rows that wait for it now",
      value: one => one.queued,
    },
    {
      name: "Live p95 ms",
      number: true,
      meaning: "what 95 of 100 batches of one row take at most, on this worker, lately",
      value: one => one.p95,
    },
    {
      name: "Profile p95 ms",
      number: true,
      meaning: "what was measured before",
      value: one => one.profiled,
    },
    {
      name: "Worker busy",
      number: true,
      meaning: "share of the worker’s last seconds spent running batches, of all tasks",
      value: one => one.busy,
    },
  ];
  const line = one =>
    el(
      "tr",
      { class: one.share || one.state !== "ready" ? "" : "dim" },
      el("td", {}, el("code", {}, one.variant)),
      el("td", {}, el("code", {}, one.worker)),
      el("td", {}, state(one)),
      ...[
        one.share == null ? "–" : fixed(100 * one.share, 1) + " %",
        count(one.queued),
        ms(one.p95),
        ms(one.profiled),
      ].map(text => el("td", { class: "n" }, text)),
      el(
        "td",
        { class: one.busy >= FULL ? "n short" : "n" },
        one.busy == null ? "–" : fixed(100 * one.busy, 0) + " %",
      ),
    );
  causeGrid = causeGrid || new Grid(serves, { size: 8, noun: ["replica", "replicas"] });
  Object.assign(causeGrid, { columns: () => columns, row: line });
  if (rows.length)
    causeGrid.show(
      rows.map(one => ({ ...one, text: one.variant + " " + one.worker + " " + one.state })),
    );
  else serves.replaceChildren(empty("No worker has a variant of it, and the plan wants none."));
  happened.replaceChildren(
    related.length ? eventRows(related) : empty("No event has to do with it."),
  );
  const ask = jump("why-part", "What would answer a query now, and why", explain);
  putKeeping(next, [
    ask,
    " · ",
    jump("plan-part", "The plan and its reasons"),
    " · ",
    jump("events-part", "All events"),
  ]);
}
