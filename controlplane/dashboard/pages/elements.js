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
