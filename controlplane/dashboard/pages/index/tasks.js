"use strict";
// The tasks: which one is shown, what became of the queries of each, and how it is asked.

// The chosen task; before its reader chose any the one whose queries miss their SLO most, else the
// one that is asked most. That one stays too, once it was asked.
const missing = one =>
  one && (one.slo_missed ?? (one.share_met != null && one.share_met < SHORT_OF))
    ? one.late + one.refused - (one.infeasible || 0)
    : 0;
function shownTask(tasks, rows) {
  const there = tasks.some(task => task.name === chosen);
  const known = rows.find(row => row.task === chosen);
  if (there && (byReader || known?.requests)) return chosen;
  const lately = new Map(rows.map(row => [row.task, row.lately])),
    asked = name => lately.get(name)?.requests || 0;
  return (
    [...tasks]
      .sort(
        (a, b) =>
          missing(lately.get(b.name)) - missing(lately.get(a.name)) ||
          asked(b.name) - asked(a.name),
      )
      .map(task => task.name)[0] || ""
  );
}
function choose(task) {
  chosen = task;
  byReader = true;
  history.replaceState(null, "", "#" + encodeURIComponent(task));
  return refresh();
}

function showTask(tasks) {
  for (const part of ["frontier-part", "variants-part"]) $(part).hidden = !tasks.length;
  $("welcome").hidden = tasks.length > 0;
  document.body.classList.toggle("new", !tasks.length);
  const task = tasks.find(task => task.name === chosen);
  const side = specs =>
    specs.map(s => s.name + " " + s.dtype + "[" + s.shape.join(", ") + "]").join(", ");
  $("signature").textContent = task
    ? (tasks.length > 1 ? task.name + " · " : "") +
      side(task.inputs) +
      " → " +
      side(task.outputs) +
      " · by default " +
      defaults(task.slo)
    : "";
  $("metric").textContent = task ? "accuracy by " + task.metric + ": " + task.accuracy_means : "";
}

// What holds when a query names nothing.
const defaults = slo =>
  [
    Number(slo.latency_ms.toPrecision(3)).toLocaleString("en-GB", { maximumFractionDigits: 9 }) +
      " ms",
    slo.accuracy == null ? null : "accuracy " + percent(slo.accuracy),
    slo.cost == null ? null : "at most " + usd(1000 * slo.cost) + " USD per million",
    slo.prefer === "cost" ? null : "prefers " + slo.prefer,
  ]
    .filter(Boolean)
    .join(", ");

// What became of queries that go to several tasks by one name: of all of these together, where any
// were asked.
function together(rows) {
  const there = rows.filter(Boolean),
    sums = {};
  if (!there.length) return undefined;
  for (const name of ["requests", "met", "late", "refused", "infeasible", "infeasible_answered"])
    sums[name] = there.reduce((sum, one) => sum + (one[name] || 0), 0);
  const servable = sums.requests - sums.infeasible - sums.infeasible_answered;
  return {
    ...sums,
    share_met: servable ? sums.met / servable : null,
    lately: together(there.map(one => one.lately)),
  };
}

// Whether so many clients did not wait for their answers that it is to be seen, and when they went.
const manyGaveUp = one =>
  (one?.gave_up || 0) >= FEW_GAVE_UP &&
  one.gave_up > MAY_GIVE_UP * (one.requests + one.gave_up);
const gaveUpWhen = one =>
  count(one.gave_up) +
  " did not wait for the answer" +
  (one.gave_up_after_ms == null || one.gave_up_slo_ms == null
    ? ""
    : ", but " + count(one.gave_up_after_ms) + " ms in the mean of the " +
      count(one.gave_up_slo_ms) + " ms that they named");

// Every task with what became of its queries; a click chooses whose variants the page shows.
let tasksGrid = null;
function showQueries(tasks, { tasks: rows, lately_s: seconds, window_s: window }) {
  $("queries-part").hidden = !tasks.length;
  if (!tasks.length) return;
  const known = new Map(rows.map(row => [row.task, row])),
    asked = rows.some(row => row.requests);
  const short = value => (value != null && value < SHORT_OF ? "n short" : "n"),
    rate = value => (value == null ? "–" : value < 10 ? fixed(value, 1) : count(value));
  const lately = one => (seconds > 0 ? one.all?.lately : null);
  const refused = one => lately(one) && lately(one).refused - (lately(one).infeasible || 0);
  const beyond = one =>
    lately(one) && (lately(one).infeasible || 0) + (lately(one).infeasible_answered || 0);
  const columns = [
    { name: "Task", value: one => one.task.name },
    { name: "Variants", number: true, value: one => one.task.variants },
    { name: "Queries/s", number: true, value: one => lately(one)?.requests ?? 0 },
    {
      name: "SLO met",
      number: true,
      meaning: "answered in time by what met the SLO, of those that some variant could serve",
      value: one => lately(one)?.share_met,
    },
    {
      name: "Late",
      number: true,
      meaning: "answered late or not at all within the deadline",
      value: one => lately(one)?.late ?? 0,
    },
    {
      name: "Refused",
      number: true,
      meaning: "told at once that no worker could answer in time",
      value: one => refused(one) ?? 0,
    },
    {
      name: "Infeasible",
      number: true,
      meaning: "asked for what no variant can do",
      value: one => beyond(one) ?? 0,
    },
    {
      name: "Queries",
      label: "In all",
      number: true,
      meaning: "since the gateways started",
      value: one => one.all?.requests ?? 0,
    },
    {
      name: "SLO met in all",
      label: "Met in all",
      number: true,
      meaning: "the same share, of all queries since the gateways started",
      value: one => one.all?.share_met,
    },
  ];
  const row = one => {
    const button = el(
      "button",
      {
        type: "button",
        class: "pick",
        "data-key": "task " + one.task.name,
        "aria-pressed": String(one.task.name === chosen),
      },
      one.task.name,
    );
    button.onclick = () => choose(one.task.name);
    const now = lately(one),
      cell = (text, name = text === "–" ? "n nil" : text === "0" ? "n none" : "n") =>
        el("td", { class: name }, text);
    return el(
      "tr",
      { class: one.task.name === chosen && tasks.length > 1 ? "here" : "" },
      el(
        "td",
        { class: "words" },
        button,
        one.task.live_variants === 0
          ? el("span", { class: "tag canary" }, "no live version")
          : one.task.unanswered
            ? el(
                "span",
                { class: "tag canary", title: one.task.unanswered },
                "default accuracy out of reach",
              )
            : null,
        manyGaveUp(now)
          ? el(
              "span",
              { class: "tag canary", title: gaveUpWhen(now) },
              percent(now.share_gave_up) + " of clients gave up",
            )
          : null,
      ),
      cell(count(one.task.variants)),
      cell(now ? rate(now.requests / seconds) : "–"),
      cell(percent(now?.share_met), now?.share_met == null ? "n nil" : short(now.share_met)),
      cell(count(now?.late)),
      cell(count(refused(one))),
      cell(count(beyond(one))),
      cell(count(one.all?.requests)),
      cell(
        percent(one.all?.share_met),
        one.all?.share_met == null ? "n nil" : short(one.all.share_met),
      ),
    );
  };
  $("task-count").textContent = tasks.length > 1 ? tasks.length : "";
  tasksGrid = tasksGrid || new Grid($("queries"), { size: 12, noun: ["task", "tasks"] });
  const since =
    window > 0
      ? "Since the gateways started, " + span(window) + " ago"
      : "Since the gateways started";
  Object.assign(tasksGrid, {
    columns: () => columns,
    row,
    groups: () => [
      ["", 2],
      [
        seconds > 0
          ? "The last " + Math.round(seconds) + " s"
          : asked
            ? "Lately"
            : "Nothing was asked yet",
        5,
      ],
      [since, 2],
    ],
  });
  // Of more than fit those that miss their SLO come first, then those that were asked most: rows do
  // not jump with every turn.
  const of = task =>
    task.lengths
      ? together(Object.values(task.lengths.buckets).map(name => known.get(name)))
      : known.get(task.name);
  const items = tasks.map(task => ({ text: task.name, task, all: of(task) }));
  if (tasks.length > 12)
    items.sort(
      (a, b) =>
        missing(lately(b)) - missing(lately(a)) || (b.all?.requests || 0) - (a.all?.requests || 0),
    );
  tasksGrid.show(items);
}

// How the chosen task is asked; unfolded while nobody has asked it, and from then on as its reader
// leaves it.
let askOf = null;
const FIRST = {
  cost: "cheapest",
  accuracy: "most accurate",
  latency: "quickest",
  energy: "most frugal",
}; // of what fits
function showAsk(task, asked) {
  const part = $("ask");
  part.hidden = !task;
  if (!task) return;
  if (askOf !== task.name) {
    askOf = task.name;
    part.open = !asked;
    $("picture-file").value = $("text-asked").value = "";
    put("picture-said");
    put("text-said");
  }
  $("text").hidden = !task.text;
  $("picture").hidden = !task.image;
  $("ask-task").textContent = task.name;
  const live = task.live_variants ?? task.variants,
    fitting =
      live === 1
        ? "Its only variant answers if it meets"
        : `Of its ${live} variants the ${FIRST[task.slo.prefer] || "cheapest"} one answers that meets`;
  put(
    "ask-decides",
    fitting + " what the query names under ",
    el("code", {}, "slo"),
    ". The answer says which variant and worker gave it, and whether the SLO was met.",
  );
  put(
    "ask-how",
    copyable(
      askingCommand(
        task,
        new URL(".", document.baseURI).href,
        sessionStorage.getItem("token") !== null,
      ),
    ),
  );
}

// A picture is a query of one row, which the page itself asks.
$("picture-file").onchange = async () => {
  const file = $("picture-file").files[0],
    task = chosen,
    say = text => {
      if (task === chosen) put("picture-said", text);
    };
  if (!file) return;
  say("…");
  try {
    const answer = await get("v1/query?task=" + encodeURIComponent(task), file);
    say(answered(answer));
  } catch (error) {
    say((error.code ? error.code + ": " : "") + error.message);
  }
};
// So is a text, of a task that takes any.
$("text").onsubmit = async event => {
  event.preventDefault();
  const text = $("text-asked").value,
    task = chosen,
    say = said => {
      if (task === chosen) put("text-said", said);
    };
  if (!text.trim()) return;
  say("…");
  try {
    say(answered(await get("v1/query", { task, inputs: [text] })));
  } catch (error) {
    say((error.code ? error.code + ": " : "") + error.message);
  }
};
function answered({ labels, scores, outputs, variant, queue_ms, run_ms }) {
  const said = Array.isArray(labels?.[0])
    ? labels[0].join(" ").slice(0, 80)
    : labels
      ? labels[0] + (scores ? " (" + brief(scores[0]) + ")" : "")
      : JSON.stringify(outputs).slice(0, 80);
  return said + ", by " + variant + " in " + ms(queue_ms + run_ms) + " ms";
}
