"use strict";
// Accuracy and latency of the variants of the chosen task, on one device kind.

// Device kinds: those that run here first, then those that are wanted, then others that were
// measured.
function deviceKinds(variants, kinds) {
  const measured = new Set(variants.flatMap(v => v.devices.map(d => d.device_kind)));
  const found = new Map(
    kinds
      .filter(k => k.running || k.wanted || measured.has(k.device_kind))
      .map(k => [k.device_kind, k]),
  );
  for (const kind of measured)
    if (!found.has(kind))
      found.set(kind, { device_kind: kind, running: 0, wanted: 0, elsewhere: true });
  return [...found.values()].sort(
    (a, b) =>
      b.running - a.running ||
      b.wanted - a.wanted ||
      !!a.elsewhere - !!b.elsewhere ||
      (a.device_kind < b.device_kind ? -1 : 1),
  );
}

// The kind whose latencies are shown: the chosen one, else the first.
function shownKind(kinds) {
  if (!kinds.some(k => k.device_kind === picked)) picked = "";
  return picked || (kinds.length ? kinds[0].device_kind : "");
}

function showDevices(kinds, kind) {
  const where = k =>
    k.running
      ? plural(k.running, "worker") + " running"
      : k.wanted
        ? "wanted, none running"
        : "measured, none here";
  put(
    "device",
    ...(kinds.length < 2
      ? kinds.map(k => el("small", {}, k.device_kind))
      : kinds.map(k => {
          const button = el(
            "button",
            { "aria-pressed": String(k.device_kind === kind), title: where(k) },
            k.device_kind + (k.running ? "" : " · not running"),
          );
          button.onclick = () => {
            picked = k.device_kind;
            refresh();
          };
          return button;
        })),
  );
  $("variant-device").textContent = kind ? "p50 and p95 of one row on " + kind : "";
}

const PRECISIONS = ["fp32", "int8", "fp16", "bf16"]; // each with its colour
const toneOf = precision =>
  PRECISIONS.includes(precision) ? "c" + PRECISIONS.indexOf(precision) : "c4";
const serving = v => v.stage === "live" || v.stage === "canary";

// As high as what stands in the neighbouring card, so that the row has no empty corner.
function frontierHeight(box) {
  const card = $("frontier").closest("section").getBoundingClientRect();
  const beside = $("workers").closest("section").getBoundingClientRect();
  const room =
    beside.top === card.top
      ? $("workers").getBoundingClientRect().bottom - box.getBoundingClientRect().top - 30
      : 0;
  return Math.min(720, Math.max(330, room));
}

// A dot for each variant, and the best accuracy that is reached up to a latency.
function frontierDiagram(points) {
  const latencies = points.map(p => p.d.p95_ms),
    accuracies = points.map(p => 100 * p.v.accuracy);
  const low = Math.min(...accuracies),
    high = Math.max(...accuracies),
    slack = Math.max(0.4, 0.12 * (high - low));
  const off = p => p.d.dominated || !serving(p.v);
  const brief = p => p.v.model_version + " " + p.v.precision,
    marked = points.filter(p => !off(p));
  const label = p =>
    off(p)
      ? ""
      : marked.some(other => other !== p && brief(other) === brief(p))
        ? p.v.name
        : brief(p);
  const dots = [...points]
    .sort((a, b) => off(a) - off(b) || a.d.p95_ms - b.d.p95_ms)
    .map(p => ({
      name: p.v.name,
      tone: serving(p.v) ? toneOf(p.v.precision) : "soft",
      form: "dots",
      x: [p.d.p95_ms],
      y: [100 * p.v.accuracy],
      label: label(p),
      size: off(p) ? 5 : 6.5,
      faint: off(p),
      hollow: [p.d.source === "predicted"],
      details: [
        ["measured on", count(p.v.accuracy_rows) + (p.v.accuracy_rows === 1 ? " row" : " rows")],
        ["throughput", "up to " + rate(p.d.best_rows_per_s) + " rows/s"],
        ...(serving(p.v) ? [] : [["", p.v.stage + ": it answers nothing"]]),
        ...(p.d.dominated ? [["", "another variant is as accurate, as fast and as small"]] : []),
      ],
    }));
  // By p95 alone: what counts as dominated looks at the median, too.
  const front = marked
    .sort((a, b) => a.d.p95_ms - b.d.p95_ms || b.v.accuracy - a.v.accuracy)
    .filter((p, i, all) => all.slice(0, i).every(q => q.v.accuracy < p.v.accuracy));
  const reached = {
    name: "best accuracy up to a latency",
    tone: "soft",
    form: "frontier",
    x: front.map(p => p.d.p95_ms),
    y: front.map(p => 100 * p.v.accuracy),
  };
  return {
    title: "Accuracy and latency",
    detail: "",
    x: {
      label: "p95 latency of one row",
      unit: "ms",
      least: 0.75 * Math.min(...latencies),
      most: 1.35 * Math.max(...latencies),
      scale: "log",
    },
    y: {
      label: "accuracy",
      unit: "%",
      least: Math.max(0, low - slack),
      most: Math.min(100, high + slack),
      scale: "linear",
      decimals: 2,
    },
    series: [...dots, reached],
  };
}

// Those that are not in service have no say in how far the diagram reaches.
function inReach(points) {
  const live = points.filter(p => serving(p.v)),
    accuracies = live.map(p => p.v.accuracy),
    latencies = live.map(p => p.d.p95_ms);
  const low = Math.min(...accuracies),
    slack = Math.max(0.02, Math.max(...accuracies) - low);
  return points.filter(
    p =>
      !live.length ||
      serving(p.v) ||
      (p.v.accuracy >= low - slack &&
        p.d.p95_ms <= 10 * Math.max(...latencies) &&
        10 * p.d.p95_ms >= Math.min(...latencies)),
  );
}

// What the diagram shows of variants on a kind, and nothing that moves with every batch.
function frontierPoints(variants, kind) {
  const shown = ({ name, model_version, precision, stage, accuracy, accuracy_rows }) => ({
    name,
    model_version,
    precision,
    stage,
    accuracy,
    accuracy_rows,
  });
  const measured = ({ p95_ms, dominated, source, best_rows_per_s }) => ({
    p95_ms,
    dominated,
    source,
    best_rows_per_s,
  });
  return inReach(
    variants
      .map(v => ({ v, d: v.devices.find(d => d.device_kind === kind) }))
      .filter(p => p.d && p.d.p95_ms > 0),
  ).map(p => ({ v: shown(p.v), d: measured(p.d) }));
}

// One chart for as long as the page is open: a new one would take what is being read away.
let frontierChart = null;
function showFrontier(points, variants, kind) {
  if (!points.length)
    return put(
      "frontier",
      empty(
        kind && variants.length
          ? "No variant of this task has a profile on " +
              kind +
              " yet; modelless profile measures them."
          : "No variant of this task has a profile yet.",
      ),
    );
  frontierChart =
    frontierChart || new Chart(el("div", { class: "chart" }), { height: frontierHeight });
  const { box } = frontierChart,
    precisions = [...new Set(points.filter(p => serving(p.v)).map(p => p.v.precision))].sort();
  const keys = legend(precisions.map(name => [name, toneOf(name)]));
  const mark = (form, text) =>
    keys.append(el("span", {}, el("i", { class: "key soft " + form }), text));
  const beaten = points.some(p => serving(p.v) && p.d.dominated),
    idle = points.some(p => !serving(p.v));
  if (beaten) mark("pale", "faint: another is as accurate, as fast and as small");
  if (idle) mark("faint", "grey: not in service");
  if (points.some(p => p.d.source === "predicted")) mark("hollow", "hollow: predicted");
  mark("dashes", "best accuracy up to a latency");
  if (box.isConnected) box.nextElementSibling.replaceWith(keys);
  else {
    put("frontier", box, keys);
    frontierChart.observer.observe(box);
  }
  frontierChart.show(frontierDiagram(points));
}
