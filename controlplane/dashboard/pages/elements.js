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
  for (const [name, value] of Object.entries(attributes)) if (value !== false && value != null) node.setAttribute(name, value);
  node.append(...children.filter(child => child != null));
  return node;
}

// -- text to be pasted elsewhere ------------------------------------------------------------------

async function copy(button, text) {
  try { await navigator.clipboard.writeText(text); }
  catch {
    const area = el("textarea"); area.value = text; document.body.append(area); area.select();
    document.execCommand("copy"); area.remove();
  }
  button.textContent = "Copied"; setTimeout(() => { button.textContent = "Copy"; }, 1500);
}
function copyable(text) {
  const button = el("button", { type: "button" }, "Copy");
  button.onclick = () => copy(button, text);
  return el("div", { class: "copied" }, el("pre", {}, text), button);
}
