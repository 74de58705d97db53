"use strict";
// How the last hour of the chosen task went.

// How the queries of the chosen task ended over the last hour, ten seconds at a time.
const ENDS = [
  ["in time", "c2", "met"],
  ["late", "late", "late"],
  ["refused", "rejected", "refused"],
  ["infeasible", "demand", "infeasible"],
];
let historyCharts = [];
// Beside the tasks, as on a wide screen, as high as they are.
function historyHeight() {
  const top = part => $(part).getBoundingClientRect().top;
  if (top("queries-part") !== top("history-part")) return 140;
  return Math.min(340, Math.max(140, $("queries-part").offsetHeight - 130));
}
function showHistory(found, task) {
  const row = found && found.tasks.find(one => one.task === task),
    known = row ? row.met.findIndex(value => value != null) : -1;
  const asked =
    row && row.met.some((met, i) => met || row.late[i] || row.refused[i] || row.infeasible[i]);
  $("history-part").hidden = !asked;
  if (!asked) return;
  $("history-task").textContent = task;
  // Not before the first sample: what was then nobody knows.
  const cut = values => values.slice(known),
    { begins_s, step_s } = found;
  const x = cut(row.met).map((_, i) => begins_s + (known + i) * step_s),
    end = begins_s + row.met.length * step_s;
  const every = [10, 20, 60, 120, 300, 600].find(s => (end - x[0]) / s <= (s < 60 ? 4 : 6)) || 900,
    ticks = [];
  for (let s = Math.ceil(x[0] / every) * every; s < end; s += every)
    ticks.push([s, new Date(1000 * s).toISOString().slice(11, every < 60 ? 19 : 16)]);
  const time = { label: "time, UTC", scale: "time", wall: true, least: x[0], most: end, ticks };
  const rates = ENDS.map(([, , field]) =>
    cut(row[field]).map(count => (count == null ? null : count / step_s)),
  );
  const stacked = rates.map((_, k) =>
    x.map((_, i) =>
      rates[k][i] == null ? null : rates.slice(0, k + 1).reduce((sum, one) => sum + one[i], 0),
    ),
  );
  const top = values => Math.max(...values.map(value => value ?? 0));
  const some = ENDS.map((_, k) => rates[k].some(Boolean));
  const diagrams = [
    {
      title: "Queries per second",
      unit: "/s",
      y: {
        label: "queries",
        unit: "/s",
        least: 0,
        most: 1.08 * top(stacked.at(-1)) || 1,
        scale: "linear",
      },
      series: ENDS.map(([name, tone], k) => ({
        name,
        tone,
        form: "area",
        x,
        y: stacked[k],
        read: rates[k],
      })).filter((_, k) => some[k] || k === 0),
    },
    {
      title: "Latency",
      unit: "ms",
      y: {
        label: "latency",
        unit: "ms",
        least: 0,
        most: 1.08 * top(row.p95_ms) || 1,
        scale: "linear",
      },
      series: [
        ["p50", "c0", "p50_ms"],
        ["p95", "c1", "p95_ms"],
      ].map(([name, tone, field]) => ({ name, tone, form: "steps", x, y: cut(row[field]) })),
    },
    {
      title: "Mean accuracy",
      unit: "%",
      y: accuracyAxis(cut(row.accuracy)),
      series: [
        {
          name: "mean accuracy",
          tone: "c0",
          form: "steps",
          x,
          y: cut(row.accuracy).map(value => (value == null ? null : 100 * value)),
        },
      ],
    },
  ];
  if (!historyCharts.length) {
    const group = [];
    put(
      "history",
      ...diagrams.map(({ title, unit }) => {
        const box = el("div", { class: "chart" });
        historyCharts.push(new Chart(box, { height: historyHeight, group }));
        return el(
          "figure",
          {},
          el("figcaption", {}, el("b", {}, title), el("small", {}, unit)),
          box,
        );
      }),
    );
  }
  put(
    "history-keys",
    ...legend(
      [...ENDS.filter((_, k) => some[k] || k === 0), ["p50", "c0"], ["p95", "c1"]].map(
        ([name, tone]) => [name, tone],
      ),
    ).childNodes,
  );
  showAll(
    historyCharts,
    diagrams.map(diagram => ({ detail: task, x: time, ...diagram })),
  );
}
function accuracyAxis(values) {
  const found = values.filter(value => value != null).map(value => 100 * value),
    low = Math.min(...found, 100),
    high = Math.max(...found, 0),
    slack = Math.max(0.5, 0.15 * (high - low));
  return {
    label: "accuracy",
    unit: "%",
    least: Math.max(0, low - slack),
    most: Math.min(100, high + slack),
    scale: "linear",
  };
}
let historyAt = 0,
  historyOf = "",
  historyFound = null;
async function followHistory() {
  if (chosen === historyOf && Date.now() - historyAt < SELDOM_MS) return;
  historyFound = chosen
    ? await get("v1/history?task=" + encodeURIComponent(chosen)).catch(() => null)
    : null;
  [historyAt, historyOf] = [Date.now(), chosen];
}
