// Elements from data. Text is only ever set as text: nothing that a config or a rule says is markup.

"use strict";

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== ""));
  return node;
}

const el = (tag, attributes = {}, ...children) =>
  fill(document.createElement(tag), attributes, children);

const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

const byId = (id) => document.getElementById(id);

const word = (cell) => (cell === null ? "ABSENT" : cell);

// `words in backticks` of a message become code.
function prose(text) {
  return text.split("`").map((part, number) => (number % 2 ? el("code", {}, part) : part));
}

const LANE = "lane";
const REFUSED = "refused";
const UNREADABLE = "unreadable";
const MARKS = { [LANE]: "✓", [REFUSED]: "✕", [UNREADABLE]: "!" };

// A rule pack's IDs have its name before them.
const isUnreadable = (rule) => rule.id.split(":").pop().startsWith("E");

const outcomeOf = (rule) =>
  (rule.lane !== null ? LANE : isUnreadable(rule) ? UNREADABLE : REFUSED);

// What a rule comes to, by a mark and a word: colour only repeats them.
function badge(rule) {
  const outcome = outcomeOf(rule);
  const said = outcome === LANE ? `lane ${rule.lane}` : outcome;
  return el("span", { class: `badge ${outcome}` }, `${MARKS[outcome]} ${said}`);
}

function table(caption, heads, rows) {
  return el("div", { class: "scroll" }, el("table", {},
    el("caption", { class: "hidden" }, caption),
    el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, rows.map((cells) => el("tr", {},
      cells.map((cell, at) => el("td", { "data-head": heads[at] }, cell)))))));
}
