"use strict";
// Whether all is well: the figures that are read first, what stands above the tasks, and the page
// itself where the gateway gives no answer.

// Of the fleet and what is kept (v1/plan), and of what clients experience (v1/slo).
const COLOUR = {
  new: "good",
  as_planned: "good",
  differs: "warn",
  down: "bad",
  met: "good",
  missed: "warn",
  mostly_missed: "bad",
  writable: "good",
  slow: "warn",
  nearly_full: "warn",
  live_state_lost: "warn",
  unwritable: "bad",
  cores_there: "good",
  cores_short: "warn",
  certificate_lasts: "good",
  certificate_ends_soon: "warn",
  certificate_ended: "bad",
  loop_turns: "good",
  loop_silent: "warn",
  keys_read: "good",
  keys_wrong: "warn",
  tasks_answered: "good",
  tasks_unanswered: "bad",
};
const SHORT = {
  new: "nothing is registered yet",
  as_planned: "as planned",
  differs: "not all as planned",
  down: "no worker is running",
  missed: "SLOs are missed",
  mostly_missed: "most queries miss their SLO",
  slow: "the catalog or the live state is slow",
  nearly_full: "a disk is nearly full",
  live_state_lost: "the live state is lost",
  unwritable: "the catalog cannot be written",
  cores_short: "cores are short",
  certificate_ends_soon: "the certificate ends soon",
  certificate_ended: "the certificate has ended",
  loop_silent: "the control loop does not turn",
  keys_wrong: "the keys of clients cannot be read",
  tasks_unanswered: "some tasks cannot be answered",
};
const FROZEN = "The plan is frozen"; // so a rule of the plan begins
// Where nothing is registered there is nothing to plan, and nothing is wrong with that.
const NEW = { level: "new", sentence: "Nothing is registered yet." };
const GRAVITY = ["good", "warn", "bad"];
const sentence = standing =>
  el(
    "p",
    { class: "standing " + COLOUR[standing.level] },
    el("span", {}, ...toTasks(standing.sentence)),
  );

// The gravest of several standings, of equals the first.
const gravity = standing => GRAVITY.indexOf(COLOUR[standing.level]);
const gravest = standings =>
  standings.reduce((worst, one) => (gravity(one) > gravity(worst) ? one : worst));

// Each figure keeps its place and its element, so that only what changed is drawn.
function showGlance(figures) {
  $("glance").hidden = !names.size;
  const list = $("glance").firstElementChild;
  if (!list.children.length)
    list.append(
      ...figures.map(({ name }) =>
        el(
          "div",
          {},
          el("dt", {}, name),
          el("dd", {}, el("b"), " ", el("small")),
          el("dd", { class: "note" }),
        ),
      ),
    );
  figures.forEach(({ figure, unit, note, colour, meaning }, i) => {
    const [, value, said] = list.children[i].children;
    list.children[i].className = colour || "";
    list.children[i].title = meaning;
    value.firstElementChild.textContent = figure;
    value.lastElementChild.textContent = unit;
    said.textContent = tight(note);
  });
}

// Of the chosen task: what clients say of its variants, where that is less than was measured.
function contradiction(variants) {
  const worse = variants.filter(
      v => serving(v) && v.said_accuracy != null && v.said_accuracy < v.accuracy,
    ),
    counts = worse.every(v => v.counted_accuracy != null);
  return worse.length
    ? [
        "By what clients say, answers of " +
          chosen +
          " are right less often than was measured: " +
          someOf(
            worse.map(
              v =>
                "`" +
                v.name +
                "` " +
                percent(v.said_accuracy) +
                " of the time instead of " +
                percent(v.accuracy),
            ),
          ) +
          ". Queries and plans go by what " +
          (counts
            ? "clients say."
            : "was measured (`MODELLESS_TRUST_FEEDBACK` names tasks that go by clients)."),
      ]
    : [];
}
// The same of how their answers are divided among the classes, which is no error; who has looked
// says so.
const ACCEPT = "This is normal now",
  SURE = "Yes, learn anew what is normal";
function otherAnswers(variants) {
  const changed = variants.filter(v => serving(v) && v.answers && v.answers.changed);
  return changed.length
    ? [
        "Answers of " +
          chosen +
          " are divided among the classes otherwise than at first: " +
          someOf(
            changed.map(v => percent(v.answers.moved) + " of those of `" + v.name + "` fall elsewhere"),
          ) +
          ". That is no error, but what is asked or who asks may have changed.",
      ]
    : [];
}
// Asked twice: what is normal is learned anew, and nobody can take that back. How far its reader has
// come is kept by task: the sentence beside the button is written anew when its numbers change.
const acceptances = new Map();
function acceptance(task) {
  if (!acceptances.has(task)) acceptances.set(task, { text: ACCEPT, busy: false, says: "" });
  const state = acceptances.get(task);
  const button = el("button", { type: "button", "data-key": "accept " + task });
  const says = el("span", { role: "status" });
  const show = change => {
    Object.assign(state, change);
    button.textContent = state.text;
    button.disabled = state.busy;
    says.textContent = " " + state.says;
  };
  button.onclick = async () => {
    if (state.text === ACCEPT) return show({ text: SURE, says: "" });
    show({ busy: true });
    try {
      const path = "v1/answers/" + encodeURIComponent(task) + "/accept";
      show({ says: (await get(path, { by: "the page" })).sentence });
    } catch (error) {
      show({ text: ACCEPT, busy: false, says: error.message });
    }
  };
  show({});
  return [" ", button, says];
}
function showNotice(rules, contradicted, changed, task) {
  $("notice").hidden = !rules.length && !contradicted.length && !changed.length;
  const line = (text, part, name, ...more) =>
    el("p", { class: "standing" }, el("span", {}, ...spoken(text), " ", jump(part, name), ...more));
  if (!changed.length) acceptances.delete(task);
  putKeeping($("notice"), [
    ...contradicted.map(text => line(text, "variants-part", "Variants")),
    ...changed.map(text => line(text, "variants-part", "Variants", ...acceptance(task))),
    ...rules.map(text => line(text, "rules-part", "Rules")),
  ]);
}
function showStanding(standings) {
  const colour = COLOUR[gravest(standings).level],
    banner = $("banner");
  banner.hidden = colour === "good";
  banner.className = "wide banner " + colour;
  put("banner", ...standings.filter(one => colour === "good" || gravity(one) > 0).map(sentence));
}
// Every time: the last attempt may have failed and said so in its place.
function showHealth(standings, askedLately, frozen) {
  const health = $("health"),
    { level } = gravest(standings),
    met = askedLately && COLOUR[level] === "good" && standings.some(one => one.level === "met");
  const short = SHORT[level] + (met ? ", SLOs are met" : "") + (frozen ? ", plan frozen" : "");
  if (health.textContent !== short) health.textContent = short;
  health.className = COLOUR[level];
  document.title = (COLOUR[level] === "good" ? "" : SHORT[level] + " · ") + "modelless";
}

// When the page knew all that it shows. Where it cannot be told any more, nothing on it is of now.
let knownAt = null;
function showAway(error) {
  const silent = error instanceof TypeError || error instanceof DOMException; // of fetch: no reply came
  const since = knownAt ? " since " + clock(knownAt) : "",
    health = $("health"),
    banner = $("banner");
  const asked = error.code === "UNAUTHENTICATED" && !knownAt; // nothing is wrong yet
  const short = asked
    ? error.message
    : (silent ? (knownAt ? "no answer" : "no answer yet") : "not up to date") + since;
  if (health.textContent !== short) health.textContent = short;
  health.className = asked ? "warn" : "bad";
  document.title = short + " · modelless";
  document.body.classList.toggle("stale", knownAt !== null);
  last.standing = null; // is told anew with the next answer
  banner.hidden = !$("login").hidden;
  banner.className = "wide banner bad";
  const said =
    (silent
      ? "The gateway gives no answer"
      : "The gateway does not say what is so: " + error.message) +
    (knownAt ? (silent ? since + "." : " Nothing is known" + since + ".") : ".") +
    (knownAt ? " What is shown is from then." : "") +
    (error.code === "STATE_UNAVAILABLE"
      ? " Queries are answered with what is loaded meanwhile."
      : "");
  if (banner.textContent !== said)
    put("banner", el("p", { class: "standing bad" }, el("span", {}, said)));
}
