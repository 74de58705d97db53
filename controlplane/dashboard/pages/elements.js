"use strict";
// Elements of a page. What comes from a server or a file reaches the page as text nodes or
// attributes, never as markup.
const $ = id => document.getElementById(id);

function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}
function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}
function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes))
    if (value !== false && value != null) node.setAttribute(name, value);
  node.append(...children.filter(child => child != null));
  return node;
}

// What the columns of a table mean, beneath it: opened by touch, by keyboard or by a click, and
// left as its reader leaves it. A pointer that rests on a name shows the same. Names and meanings
// come in pairs; some have no meaning.
const unfoldedMeanings = new Set();
function meanings(table, pairs) {
  const told = pairs.filter(([, meaning]) => meaning);
  if (!told.length) return null;
  const fold = el(
    "details",
    { class: "fold meanings", open: unfoldedMeanings.has(table) ? "" : null },
    el("summary", { "data-key": "meanings of " + table }, "What the columns mean"),
    el(
      "dl",
      {},
      ...told.flatMap(([name, meaning]) => [
        el("dt", {}, name || "First column"),
        el("dd", {}, meaning),
      ]),
    ),
  );
  fold.ontoggle = () => {
    if (fold.open) unfoldedMeanings.add(table);
    else unfoldedMeanings.delete(table);
  };
  return fold;
}

// -- text to be pasted elsewhere ------------------------------------------------------------------

async function copy(button, text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = el("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.textContent = "Copied";
  setTimeout(() => {
    button.textContent = "Copy";
  }, 1500);
}
function copyable(text) {
  const button = el("button", { type: "button" }, "Copy");
  button.onclick = () => copy(button, text);
  return el("div", { class: "copied" }, el("pre", {}, text), button);
}
