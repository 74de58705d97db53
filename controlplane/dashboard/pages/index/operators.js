"use strict";
// What operators have said: rules, peaks, shares of canaries; and the clients that have keys.

function showRules(rules) {
  $("rules-part").hidden = !rules.length;
  if (!rules.length) return put("rules");
  const what = r =>
    r.rule === "freeze"
      ? "the plan"
      : [
          el("code", {}, r.task + "/" + r.variant),
          (r.device_kind ? " on " + r.device_kind : "") +
            (r.replicas > 1 ? ", " + plural(r.replicas, "replica") : ""),
        ];
  const head = [
    ["Id"],
    [
      "Rule",
      "pin: stays loaded; forbid: answers nothing and is loaded nowhere; freeze: the plan stays as it is",
    ],
    ["Of"],
    ["Since"],
    ["Until"],
    ["By"],
    ["Why"],
    ["Now"],
  ];
  put(
    "rules",
    stacked(
      "Rules",
      head,
      head.length,
      rules.map(r =>
        el(
          "tr",
          {},
          el("td", {}, String(r.id)),
          el("td", {}, el("span", { class: "tag " + r.rule }, r.rule)),
          el("td", {}, ...[what(r)].flat()),
          ...[clock(r.since), r.until ? clock(r.until) : "–", r.by || "–", r.why || "–"].map(text =>
            el("td", {}, text),
          ),
          el("td", { class: r.kept ? "words" : "words short" }, r.standing),
        ),
      ),
      [3, 4, 5, 6],
    ),
  );
}

// What the control loop has found of each new version that has a share, and of one that lost it.
function showCanaries(canaries) {
  $("canaries-part").hidden = !canaries.length;
  const cell = text => el("td", { class: "n" }, text);
  const arm = one =>
    one
      ? [
          count(one.queries),
          count(one.late),
          count(one.failed),
          ms(one.mean_ms),
          one.right + one.wrong
            ? percent(one.right / (one.right + one.wrong)) + " of " + count(one.right + one.wrong)
            : "–",
        ]
      : ["–", "–", "–", "–", "–"];
  const head = [
    ["Task"],
    ["Version"],
    ["Share"],
    ["Queries"],
    ["Late"],
    ["Failed"],
    ["Mean ms"],
    ["Right", "of the rows that clients have judged"],
  ];
  const rows = canaries.flatMap(c => [
    el(
      "tr",
      {},
      el("td", {}, c.task),
      el("td", {}, el("code", {}, c.model_version)),
      cell(c.share ? percent(c.share) : "rolled back"),
      ...arm(c.canary).map(cell),
    ),
    el(
      "tr",
      { class: "dim" },
      el("td", {}),
      el("td", {}, "live versions"),
      cell(""),
      ...arm(c.live).map(cell),
    ),
    el(
      "tr",
      {},
      el("td", {}),
      el(
        "td",
        { class: "words", colspan: "7" },
        el(
          "b",
          { class: c.verdict === "worse" ? "none" : "" },
          (c.verdict || "not judged yet").replace("_", " "),
        ),
        " ",
        c.ended || c.why,
      ),
    ),
  ]);
  put("canaries", stacked("Canaries", head, 2, rows));
}

function showClients(clients) {
  $("clients-part").hidden = !clients.length;
  const numbers = row =>
    [String(row.weight), ...[row.asked, row.answered, row.refused].map(count)].map(text =>
      el("td", { class: "n" }, text),
    );
  put(
    "clients",
    stacked(
      "Clients",
      [["Client"], ["Weight"], ["Asked"], ["Answered"], ["Refused"]],
      1,
      clients.map(row => el("tr", {}, el("td", {}, row.name || "without a key"), ...numbers(row))),
    ),
  );
}

// What operators declared and is not over.
function peakLines(peaks) {
  const demand = p =>
    p.factor === null ? count(p.qps) + " queries/s" : p.factor + " times the demand";
  return peaks
    .filter(p => p.state !== "over")
    .slice(0, 5)
    .map(p =>
      el(
        "p",
        { class: "then" },
        (p.state === "now"
          ? "Declared peak, until " + clock(p.ends)
          : "Declared peak, from " + clock(p.begins) + " until " + clock(p.ends)) +
          ": " +
          demand(p) +
          " of " +
          (p.task === null ? "all tasks" : p.task) +
          (p.repeat ? ", " + p.repeat : "") +
          (p.note ? " (" + p.note + ")" : ""),
      ),
    );
}
