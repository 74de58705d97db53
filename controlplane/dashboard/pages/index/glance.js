"use strict";
// What an operator wants to know first, of all tasks together: whether queries get what they ask
// for, how many come, what serves them, how much more it could serve, and what it costs. Pure
// functions, from answers of the API to a name, a figure with its unit, and a note for each.

const sumOf = (rows, field) => rows.reduce((sum, row) => sum + (row[field] || 0), 0);
const some = (n, word) => (n ? count(n) + " " + word : null);

// How the queries of the last seconds ended, of all tasks.
function glanceOfSlo(rows, seconds, colour) {
  const lately = rows.map(row => row.lately).filter(Boolean),
    [asked, met, late] = ["requests", "met", "late"].map(field => sumOf(lately, field));
  const infeasible = sumOf(lately, "infeasible"),
    beyond = infeasible + sumOf(lately, "infeasible_answered"),
    servable = asked - beyond;
  const ends = [
    some(late, "late"),
    some(sumOf(lately, "refused") - infeasible, "refused"),
    some(beyond, "infeasible"),
  ].filter(Boolean);
  const note = !asked
    ? "nothing is asked now"
    : ends.length
      ? ends.join(" · ")
      : count(asked) + (asked === 1 ? " query" : " queries") + " in " + Math.round(seconds) + " s";
  return {
    name: "SLO met",
    figure: servable > 0 ? percent(met / servable).replace(" %", "") : "–",
    unit: servable > 0 ? "%" : "",
    note,
    colour,
    meaning:
      "answered in time by what met the SLO, of the queries of the last " +
      Math.round(seconds) +
      " s that some variant could serve",
  };
}

function glanceOfQueries(rows, seconds, tasks) {
  const lately = rows.map(row => row.lately).filter(row => row?.requests),
    qps = seconds > 0 ? sumOf(lately, "requests") / seconds : 0;
  return {
    name: "Queries",
    figure: qps < 10 ? fixed(qps, 1) : count(qps),
    unit: "/s",
    note: lately.length + " of " + plural(tasks, "task") + " asked",
    meaning: "of all tasks, in the last " + Math.round(seconds) + " s",
    qps,
  };
}

function glanceOfWorkers(workers, kinds) {
  const running = sumOf(kinds, "running"),
    wanted = sumOf(kinds, "wanted"),
    busy = workers.map(one => one.busy_ratio);
  const note = busy.length
    ? fixed((100 * busy.reduce((a, b) => a + b, 0)) / busy.length, 0) +
      " % busy" +
      (busy.length > 1 ? ", at most " + fixed(100 * Math.max(...busy), 0) + " %" : "")
    : "none is running";
  return {
    name: "Workers",
    figure: count(running),
    unit: "of " + count(wanted),
    note,
    colour:
      !running && wanted ? "bad" : sumOf(kinds, "missing") || sumOf(kinds, "silent") ? "warn" : "",
    meaning:
      "that run, of those that are wanted; busy: share of their last seconds spent running batches",
  };
}

const MOST_ROOM = 10; // further than this is not looked
function glanceOfRoom(headroom, missed = false) {
  if (!headroom)
    return {
      name: "Headroom",
      figure: "–",
      unit: "",
      note: "not known yet",
      meaning: "how many times of what is asked now the workers could serve",
    };
  const { factor, sentence } = headroom,
    far = factor >= MOST_ROOM;
  return factor < 1
    ? {
        name: "Headroom",
        figure: fixed(100 * factor, 0),
        unit: "%",
        note: "of what is asked can be served",
        colour: "warn",
        meaning: sentence,
      }
    : {
        name: "Headroom",
        figure: (far ? "≥ " : "") + fixed(factor, far ? 0 : 1),
        unit: "×",
        note: missed ? "what is asked, by profiles; yet SLOs are missed" : "what is asked now",
        colour: missed ? "warn" : "",
        meaning: sentence,
      };
}

// By the prices of the device kinds, of every worker that runs.
function glanceOfCost(workers, devices, qps) {
  const prices = new Map(devices.map(one => [one.name, one.usd_per_hour]));
  const each = workers.map(one => prices.get(one.device_kind)),
    known = each.filter(price => price != null);
  if (!known.length)
    return {
      name: "Cost",
      figure: "–",
      unit: "",
      note: workers.length ? "no price is known" : "no worker is running",
      meaning: "of the workers that run",
    };
  const hourly = known.reduce((a, b) => a + b, 0);
  return {
    name: "Cost",
    figure: usd(hourly),
    unit: "USD/h",
    note:
      qps >= 0.1
        ? usd((1e6 * hourly) / 3600 / qps) + " USD per million"
        : plural(known.length, "worker"),
    meaning:
      "price of all workers that run, by their device kinds, and divided by the queries that are asked now",
  };
}

function glance({ slo, tasks, workers, kinds, headroom, devices, colour }) {
  const queries = glanceOfQueries(slo.tasks, slo.lately_s || 0, tasks);
  return [
    glanceOfSlo(slo.tasks, slo.lately_s || 0, colour),
    queries,
    glanceOfWorkers(workers, kinds),
    glanceOfRoom(headroom, ["warn", "bad"].includes(colour)),
    glanceOfCost(workers, devices, queries.qps),
  ];
}
