"use strict";
// Pieces of cards: texts with commands and links in them, and tables of rows that fold on a phone.

const empty = text => el("p", { class: "empty" }, text);
// A link to a part of the page; the address keeps the chosen task.
function jump(part, text, first = () => {}) {
  const button = el("button", { type: "button", class: "link", "data-key": "jump " + part }, text);
  button.onclick = () => {
    first();
    $(part).scrollIntoView({ block: "start" });
  };
  return button;
}
const put = (id, ...nodes) => $(id).replaceChildren(...nodes);
// Names stay on one line, but for those that would push the numbers beside them out of a window.
const LONG_NAME = 40;
const nameCell = name =>
  el("td", { class: name.length > LONG_NAME ? "long" : "" }, el("code", {}, name));

// Each name of a column may come with what it means; numbers begin at a column.
const headRow = (names, numbers) =>
  el(
    "thead",
    {},
    el(
      "tr",
      {},
      ...names.map(([text, meaning], i) =>
        el("th", { class: i >= numbers ? "n" : "", title: meaning }, text),
      ),
    ),
  );

// A table whose rows are paragraphs on a phone: their numbers bear the names of their columns, and
// so do those of `more`.
function stacked(name, head, numbers, rows, more = []) {
  for (const row of rows)
    [...row.children].forEach((cell, i) => {
      if (head[i] && (i >= numbers || more.includes(i))) cell.dataset.label = head[i][0];
    });
  const table = el(
    "table",
    { class: "stack", "aria-label": name },
    headRow(head, numbers),
    el("tbody", {}, ...rows),
  );
  return el("div", {}, table, meanings(name, head));
}

// Commands stand in backquotes in what the server says. Its times are written as those of the page;
// a number stays on a line with its unit.
const tight = text =>
  text
    .replace(/\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)? UTC/g, at =>
      clock(at.replace(" UTC", "Z").replace(" ", "T")),
    )
    .replace(/(\d) (%|s|ms|min|h|MiB|GiB|USD|rows?|queries|cores?)(?![\w])/g, "$1\u00a0$2");
const spoken = text =>
  text.split("`").map((part, i) => (i % 2 ? el("code", {}, part) : tight(part)));
// A task whose queries are spoken of is a link to it, and to why they miss their SLO where the page
// says so; each begins a line.
function toTasks(text) {
  const parts = text.split(/(?<=^|\. )([a-z0-9][a-z0-9._-]*:)(?= [\d,]+ of )/),
    task = part => part.slice(0, -1);
  return parts.flatMap((part, i) =>
    part.endsWith(":") && names.has(task(part))
      ? [...(i > 1 ? [el("br")] : []), taskLink(task(part), part)]
      : spoken(part),
  );
}
function taskLink(task, text) {
  const link = el("a", { href: "#" + encodeURIComponent(task) }, text);
  link.onclick = async event => {
    event.preventDefault();
    await choose(task);
    $("cause-part").scrollIntoView({ block: "start" });
  };
  return link;
}
