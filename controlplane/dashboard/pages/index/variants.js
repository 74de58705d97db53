"use strict";
// All variants of the chosen task.

// Of a variant: what operators said of it.
const RULE_WORDS = { pin: "pinned", forbid: "forbidden" };
function ruleTags(v, rules) {
  return rules
    .filter(r => r.task === chosen && r.variant === v.name)
    .flatMap(r => [
      " ",
      el(
        "span",
        { class: "tag " + r.rule, title: "rule " + r.id + ": " + r.standing },
        RULE_WORDS[r.rule] + (r.device_kind ? " on " + r.device_kind : ""),
      ),
    ]);
}

// Of a variant: what clients say of its answers, where that is something else than was measured.
function feedbackTags(v) {
  if (v.said_accuracy == null) return [];
  const counts = v.counted_accuracy != null;
  const title =
    "clients say that " +
    percent(v.said_accuracy) +
    " of its answers are right, which is no chance; " +
    percent(v.accuracy) +
    " were when it was measured; queries and plans go by what " +
    (counts ? "clients say" : "was measured");
  return [
    " ",
    el(
      "span",
      { class: "tag " + (v.said_accuracy < v.accuracy ? "canary" : "live"), title },
      percent(v.said_accuracy) + (counts ? " counts" : " by feedback"),
    ),
  ];
}

// Of a variant: whether its answers are divided among the classes otherwise than at first.
function answerTags(v) {
  if (!v.answers || !v.answers.changed) return [];
  const shifts = v.answers.shifts.map(
    s => s.classes + ": " + percent(s.before) + " before, " + percent(s.now) + " now",
  );
  const title =
    percent(v.answers.moved) +
    " of its answers lately fall into other classes than its first ones did" +
    (shifts.length ? " (" + shifts.join("; ") + ")" : "") +
    "; that is no error, but what is asked or who asks may have changed";
  return [" ", el("span", { class: "tag canary", title }, "other answers")];
}

let variantsGrid = null;
function showVariants(variants, kind, workers, means, rules) {
  const inService = variants.filter(serving).length;
  const rows = [...new Set(variants.map(v => v.accuracy_rows))].sort((a, b) => a - b);
  $("variant-rows").textContent = rows.some(Boolean)
    ? "judged by " +
      (rows.length > 1 ? count(rows[0]) + " to " : "") +
      plural(count(rows.at(-1)), "row")
    : "";
  $("variant-count").textContent =
    inService === variants.length
      ? inService
      : inService + " of " + variants.length + " in service";
  if (!variants.length)
    return put(
      "variants",
      empty("No model is registered for this task; modelless register brings one in."),
    );
  const ready = new Map();
  for (const w of workers)
    if (w.device_kind === kind)
      for (const r of w.replicas)
        if (r.task === chosen && r.state === "ready")
          ready.set(r.variant, (ready.get(r.variant) || 0) + 1);
  const head = [
    ["Variant", "faint: another one is as accurate, as fast and as small"],
    [
      "Stage",
      "live: may answer any query; canary: answers only who names it; retired: answers nothing",
    ],
    ["Accuracy", means],
    ["±", "half of its 95 % confidence interval, in points, by the rows that judged it"],
    [
      "p50 ms",
      "by the profile, half of the batches of one row take at most this long; ~: predicted; ?: measured before this machine changed",
    ],
    ["p95 ms", "by the profile, 95 of 100 batches of one row take at most this long"],
    [
      "Live ms",
      "what one row takes on the workers now, in the mean, after a pause where little is asked; unconfirmed: none has run yet",
    ],
    ["Live p95", "what 95 of 100 of them take at most"],
    ["Rows/s", "of one worker, with its best batch size"],
    ["USD per million", "of queries of one row, each alone in its batch, by the profile"],
    ["MiB", "memory while it is loaded, beside what all share for the batch that runs"],
    ["Load s", "how long loading takes"],
    ["Loaded on"],
  ];
  const on = v => v.devices.find(d => d.device_kind === kind) || {};
  const ordered = [...variants].sort(
    (a, b) =>
      serving(b) - serving(a) ||
      (on(a).p95_ms ?? Infinity) - (on(b).p95_ms ?? Infinity) ||
      (a.name < b.name ? -1 : 1),
  );
  const row = ({ v }) => {
    const d = on(v);
    const numbers = [
      percent(v.accuracy),
      half(v),
      guess(d) + ms(d.p50_ms),
      guess(d) + ms(d.p95_ms),
      d.unconfirmed ? "unconfirmed" : ms(d.live_ms),
      ms(d.live_p95_ms),
      rate(d.best_rows_per_s),
      usd(d.price_usd_per_1k == null ? null : 1000 * d.price_usd_per_1k),
      fixed(d.memory_mib, 1),
      ms(d.load_s),
    ];
    const row = el(
      "tr",
      { class: (d.dominated ?? v.dominated) ? "dim" : "" },
      nameCell(v.name),
      el(
        "td",
        {},
        el("span", { class: "tag " + v.stage }, v.stage),
        ...ruleTags(v, rules),
        ...feedbackTags(v),
        ...answerTags(v),
      ),
      ...numbers.map(text => el("td", { class: "n" }, text)),
      el("td", { class: "n" }, ready.has(v.name) ? plural(ready.get(v.name), "worker") : "–"),
    );
    return namedRow(row, v.name);
  };
  const values = [
    v => v.name,
    v => v.stage,
    v => v.accuracy,
    v => (v.accuracy_low == null ? null : v.accuracy_high - v.accuracy_low),
    v => on(v).p50_ms,
    v => on(v).p95_ms,
    v => on(v).live_ms,
    v => on(v).live_p95_ms,
    v => on(v).best_rows_per_s,
    v => on(v).price_usd_per_1k,
    v => on(v).memory_mib,
    v => on(v).load_s,
    v => ready.get(v.name) || 0,
  ];
  const columns = head.map(([name, meaning], i) => ({
    name,
    meaning,
    number: i > 1,
    value: item => values[i](item.v),
  }));
  variantsGrid =
    variantsGrid ||
    new Grid($("variants"), { size: 25, noun: ["variant", "variants"], stack: false });
  Object.assign(variantsGrid, { columns: () => columns, row });
  variantsGrid.show(ordered.map(v => ({ text: v.name + " " + v.stage, v })));
  $("variants-note").hidden = !variants.some(v => on(v).p50_ms != null);
}
