"use strict";
// What would answer a query, and why.

// What is left empty is the task's default, which the fields show in grey.
let explained = "";
function showNeeds(task) {
  $("why-part").hidden = !task;
  if (!task) return;
  const fields = $("needs").elements,
    slo = task.slo;
  fields.latency_ms.placeholder = brief(slo.latency_ms);
  fields.accuracy.placeholder =
    slo.accuracy == null ? "any" : String(Number((100 * slo.accuracy).toFixed(2)));
  fields.cost.placeholder = slo.cost == null ? "any" : usd(1000 * slo.cost);
  fields.prefer.options[0].textContent = slo.prefer + " (default)";
  if (explained !== task.name) put("why");
  if (explained === "" && asked != null) {
    for (const [name, value] of new URLSearchParams(asked))
      if (fields[name]) fields[name].value = value;
    explain();
  }
}

const NEEDS = { latency_ms: 1, accuracy: 100, cost: 1000 }; // a unit of the page in units of the API
const VERDICTS = { chosen: "→", fits: "✓", stopped: "✗" };
async function explain() {
  const fields = $("needs").elements,
    slo = {},
    task = chosen;
  for (const [name, times] of Object.entries(NEEDS)) {
    const text = fields[name].value.trim().replace(",", "."),
      value = Number(text);
    if (text && !Number.isFinite(value))
      return put("why", empty("“" + fields[name].value + "” is no number."));
    if (text) slo[name] = Number((value / times).toPrecision(12));
  }
  if (fields.prefer.value) slo.prefer = fields.prefer.value;
  explained = task;
  byReader = true;
  const link = new URLSearchParams([...new FormData($("needs"))].filter(([, value]) => value));
  history.replaceState(null, "", "#" + encodeURIComponent(task) + "?" + link);
  try {
    const found = await get("v1/explain", { task, slo });
    if (task === chosen) put("why", ...explanation(found));
  } catch (error) {
    put("why", el("p", { class: "standing bad" }, el("span", {}, error.message)));
  }
}

function explanation({ answer, refusal, plan, doubt, cores, variants }) {
  const said = answer
    ? [
        el("code", {}, answer.variant),
        " on ",
        el("code", {}, answer.worker),
        ": ",
        answer.why +
          ". Expected after " +
          ms(answer.predicted_ms) +
          " ms" +
          (answer.loaded ? "" : ", loading included") +
          "; accuracy " +
          percent(answer.accuracy) +
          ", " +
          usd(1000 * answer.price_usd_per_1k) +
          " USD per million.",
      ]
    : [el("b", {}, refusal.code), ": " + refusal.error];
  const columns = [
    { name: "", meaning: "→ chosen; ✓ would meet the SLO as well; ✗ would not" },
    { name: "Variant", value: v => v.variant },
    { name: "On", value: v => v.device_kind || "" },
    { name: "Why", meaning: "what becomes of it on the way to an answer", value: v => v.why },
    { name: "Accuracy", number: true, value: v => v.accuracy },
    {
      name: "±",
      number: true,
      meaning: "half of its 95 % confidence interval, in points",
      value: v => (v.accuracy_low == null ? null : v.accuracy_high - v.accuracy_low),
    },
    {
      name: "Run ms",
      number: true,
      meaning: "what a row takes at most, 95 times of 100, as far as is known now",
      value: v => v.run_ms,
    },
    { name: "USD per million", number: true, value: v => v.price_usd_per_1k },
    { name: "Loaded on", number: true, value: v => v.loaded_on },
  ];
  const row = v =>
    el(
      "tr",
      { class: v.verdict === "chosen" ? "lit" : v.verdict === "stopped" ? "dim" : "" },
      el("td", { title: v.verdict }, VERDICTS[v.verdict]),
      nameCell(v.variant),
      el("td", {}, v.device_kind || "–"),
      el("td", { class: "words" }, v.why),
      ...[
        percent(v.accuracy),
        half(v),
        ms(v.run_ms),
        usd(v.price_usd_per_1k == null ? null : 1000 * v.price_usd_per_1k),
        v.loaded_on ? plural(v.loaded_on, "worker") : "–",
      ].map(text => el("td", { class: "n" }, text)),
    );
  const each = new Grid(el("div"), { size: 25, noun: ["candidate", "candidates"] });
  Object.assign(each, { columns: () => columns, row });
  each.show(variants.map(v => ({ ...v, text: [v.variant, v.why, v.device_kind].join(" ") })));
  return [
    el("p", { class: "standing " + (answer ? "good" : "bad") }, el("span", {}, ...said)),
    ...[plan, doubt, cores].filter(Boolean).map(text => el("p", { class: "then" }, text)),
    each.box,
  ];
}
