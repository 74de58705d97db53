"use strict";
// The plan with its reasons, and the events.

// The variants to which the plan gives most of a full worker's time; those with hardly any are left
// out.
function shareTable(placements) {
  placements = placements.filter(one => one.task === chosen);
  const all = [...placements].sort((a, b) => b.share - a.share),
    most = all.filter(one => one.share >= 0.01).slice(0, 8),
    rest = all.slice(most.length);
  if (!most.length) return [];
  const share = one => fixed(100 * one.share, 1) + " %";
  if (rest.length && all.every(one => share(one) === share(all[0])))
    return [
      el(
        "p",
        { class: "note" },
        "Each of the " +
          all.length +
          " placements of " +
          chosen +
          " has the same share of a full worker, " +
          share(all[0]) +
          ".",
      ),
    ];
  const more = rest.length
    ? [
        el(
          "p",
          { class: "note" },
          plural(rest.length, "more placement") +
            " with " +
            (rest.length > 1 ? "at most " : "") +
            share(rest[0]),
        ),
      ]
    : [];
  const workers = new Set(placements.map(one => one.worker)).size;
  const row = one =>
    el(
      "tr",
      {},
      el("td", {}, el("code", {}, one.variant)),
      workers > 1 ? el("td", {}, el("code", {}, one.worker)) : null,
      el("td", { class: "n" }, share(one)),
    );
  const head = [
    ["Variant"],
    ...(workers > 1 ? [["Worker"]] : []),
    [
      "Share of a full worker",
      "of its time, as the plan divides it where more is asked for than it can do",
    ],
  ];
  return [
    names.size > 1 ? el("p", { class: "then" }, "Of " + chosen + ":") : null,
    el(
      "div",
      { class: "scroll" },
      el(
        "table",
        { class: "shares", "aria-label": "Shares of the plan" },
        headRow(head, head.length - 1),
        el("tbody", {}, ...most.map(row)),
      ),
    ),
    meanings("shares", head),
    ...more,
  ].filter(Boolean);
}

function showPlan(plan, peaks, standing) {
  const good = COLOUR[standing.level] === "good";
  $("plan-version").textContent = plan.version ? "version " + plan.version : "";
  $("plan-at").textContent = plan.version ? "made " + clock(plan.created_at) : "";
  const now = sentence(standing),
    ruled = plan.rules.map(text => el("p", { class: "then" }, ...spoken(text)));
  if (plan.headroom && standing !== NEW)
    ruled.unshift(el("p", { class: "then" }, ...spoken(plan.headroom.sentence)));
  if (!plan.version || standing === NEW) return put("plan", now, ...ruled, ...peakLines(peaks));
  const why = plan.explanation.length
    ? plan.explanation
    : [plural(plan.placements.length, "placement")];
  put(
    "plan",
    now,
    ...ruled,
    ...peakLines(peaks),
    el(
      "p",
      { class: "then" },
      (good ? "As of version " : "Not as things are now, but as of version ") +
        plan.version +
        ", " +
        clock(plan.created_at) +
        ":",
    ),
    el(
      "ol",
      { class: good ? "" : "past" },
      ...why.slice(0, 10).map(text => el("li", {}, el("span", {}, ...spoken(text)))),
    ),
    why.length > 10
      ? el(
          "p",
          { class: "note" },
          "and " + plural(why.length - 10, "more reason") + ": modelless plan get",
        )
      : "",
    ...shareTable(plan.placements),
  );
}

// A worker that starts loads many variants: what follows one another and is of a kind is one line.
function eventGroups(events) {
  const groups = [];
  for (const e of events) {
    const group = groups[groups.length - 1];
    if (group && group.last.kind === e.kind) {
      group.count += 1;
      group.text += " " + e.subject;
    } else
      groups.push({
        last: e,
        count: 1,
        text: e.kind.replaceAll("_", " ") + " " + e.subject + " " + e.message,
      });
  }
  return groups;
}
// Those that want a hand, as the control loop's log has them.
const TROUBLES = new Set(
  `accuracy_differs artifact_invalid canary_rolled_back catalog_lost catalog_slow
    catalog_unwritable clock_set_back control_store_lost cores_short disk_nearly_full forecast_forgotten gateway_lost
    layout_given_up live_state_lost live_state_slow load_failed measuring_failed
    other_installation profile_check_failed quarantined rebuild_failed scale_failed slo_missed
    start_failed tell_failed unload_failed worker_lost worker_warning`.split(/\s+/),
);
const eventRows = groups =>
  el(
    "ol",
    {},
    ...groups.map(({ last: e, count }) =>
      el(
        "li",
        {},
        el("time", { datetime: e.at }, clock(e.at)),
        el(
          "span",
          {},
          el("b", { class: TROUBLES.has(e.kind) ? "short" : "" }, e.kind.replaceAll("_", " ")),
          count > 1 ? ` ${count} times, last ` : " ",
          el("code", {}, e.subject),
          ...(e.message ? [": ", ...spoken(e.message)] : []),
        ),
      ),
    ),
  );
let eventsList = null;
function showEvents(events) {
  if (!events.length) return put("events", empty("Nothing has happened yet."));
  eventsList =
    eventsList ||
    new Listing($("events"), {
      size: 8,
      noun: ["event", "events"],
      draw: groups => [eventRows(groups)],
    });
  eventsList.show(eventGroups(events));
}
