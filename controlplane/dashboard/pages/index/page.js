"use strict";
// The page as a whole: what is chosen, and its turns.

// The part of the address behind # is the chosen task, and ? what was asked about it: a link to it.
const [linked, asked] = location.hash.slice(1).split("?");
let chosen = decodeURIComponent(linked),
  byReader = chosen !== "",
  picked = "",
  last = {};
const names = new Set(); // of tasks

let busy = false;
function redraw(part, shown, draw) {
  const now = JSON.stringify(shown);
  if (now !== last[part]) {
    draw();
    last[part] = now;
  }
}
async function refresh() {
  if (busy) return;
  busy = true;
  try {
    received = 0;
    const [tasks, slo] = await Promise.all([
      seldom("v1/tasks"),
      get("v1/slo").catch(() => ({ tasks: [] })),
    ]);
    names.clear();
    for (const task of tasks.tasks) names.add(task.name);
    chosen = shownTask(tasks.tasks, slo.tasks);
    const named = encodeURIComponent(chosen);
    const [
      workers,
      plan,
      events,
      { variants },
      { peaks },
      { rules },
      { clients },
      { canaries },
      { devices },
    ] = await Promise.all([
      allWorkers().catch(() => ({ workers: [] })),
      get("v1/plan" + (chosen && "?task=" + named)),
      newEvents(),
      chosen ? get("v1/tasks/" + named + "/variants") : { variants: [] },
      seldom("v1/peaks"),
      seldom("v1/rules"),
      seldom("v1/clients").catch(() => ({ clients: [] })),
      seldom("v1/canaries").catch(() => ({ canaries: [] })),
      seldom("v1/devices").catch(() => ({ devices: [] })),
      followHistory(),
    ]);
    const means = (tasks.tasks.find(task => task.name === chosen) || {}).accuracy_means || "";
    const standing = plan.standing,
      standings = [
        tasks.tasks.length ||
        (standing.level !== "as_planned" && plan.version) ||
        standing.level === "down"
          ? standing
          : NEW,
        slo.standing,
        plan.answered,
        plan.cores,
        plan.storage,
        plan.certificate,
        plan.control_loop,
        plan.client_keys,
      ].filter(one => one && one.sentence),
      kinds = deviceKinds(variants, standing.kinds),
      kind = shownKind(kinds);
    document.body.classList.remove("unknown"); // what is drawn goes by the sizes of the cards
    // Redrawing only what has changed keeps hovers, selections and the keyboard's focus alive.
    const figures = glance({
      slo,
      tasks: tasks.tasks.length,
      workers: workers.workers,
      kinds: standing.kinds,
      headroom: plan.headroom,
      devices,
      colour: slo.standing ? COLOUR[slo.standing.level] : "",
    });
    redraw("glance", [figures], () => showGlance(figures));
    redraw("tasks", [tasks, chosen], () => showTask(tasks.tasks));
    redraw("devices", [kinds, kind], () => showDevices(kinds, kind));
    redraw("workers", [workers, standing, chosen], () => showWorkers(workers.workers, standing));
    const points = frontierPoints(variants, kind);
    redraw("frontier", [points, !variants.length, kind, chosen, $("workers").offsetHeight], () =>
      showFrontier(points, variants, kind),
    );
    redraw("variants", [variants, kind, chosen, workers, means, rules], () =>
      showVariants(variants, kind, workers.workers, means, rules),
    );
    redraw("needs", [tasks, chosen], () =>
      showNeeds(tasks.tasks.find(task => task.name === chosen)),
    );
    redraw("queries", [tasks, slo, chosen], () => showQueries(tasks.tasks, slo));
    const shown = tasks.tasks.find(task => task.name === chosen),
      asked = slo.tasks.find(row => row.task === chosen)?.requests > 0;
    redraw("ask", [shown], () => showAsk(shown, asked));
    redraw("cause", [slo, workers, plan, variants, events, historyFound, chosen], () =>
      showCause(
        slo.tasks.find(one => one.task === chosen),
        slo.lately_s,
        workers.workers,
        plan,
        variants,
        events,
      ),
    );
    redraw("history", [historyFound, chosen], () => showHistory(historyFound, chosen));
    redraw("canaries", [canaries], () => showCanaries(canaries));
    redraw("clients", [clients], () => showClients(clients));
    redraw("rules", [rules], () => showRules(rules));
    const contradicted = contradiction(variants),
      changed = otherAnswers(variants);
    redraw("notice", [plan.rules, contradicted, changed, chosen], () =>
      showNotice(plan.rules, contradicted, changed, chosen),
    );
    redraw("standing", [standings], () => showStanding(standings));
    redraw("plan", [plan, peaks, chosen, standings[0]], () => showPlan(plan, peaks, standings[0]));
    redraw("events", [events], () => showEvents(events));
    showHealth(
      standings,
      slo.tasks.some(row => row.lately?.requests),
      plan.rules.some(text => text.startsWith(FROZEN)),
    );
    knownAt = new Date();
    document.body.classList.remove("stale");
  } catch (error) {
    showAway(error);
  } finally {
    busy = false;
  }
}
$("token").onsubmit = event => {
  event.preventDefault();
  sessionStorage.setItem("token", event.target.elements[0].value);
  refresh();
};
$("needs").onsubmit = event => {
  event.preventDefault();
  explain();
};
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) {
    anew();
    refresh();
  }
});
addEventListener("hashchange", () => {
  const task = decodeURIComponent(location.hash.slice(1).split("?")[0]);
  if (names.has(task) && task !== chosen) choose(task);
});
async function follow() {
  if (!document.hidden) await refresh();
  setTimeout(follow, Math.max(2000, received / BYTES_PER_MS));
}
follow();
