// What each engine would do with a config: its parity pack's graph, asked of what it reads there.
// The reading is that of dspark/parity_facts.py; flags and path are in the cells of each command.

"use strict";

// What an engine does when it is started in the way that suits the config best, and the ways that
// would swallow the draft where that one runs it: dspark/engines.py.
function engineAnswer(pack, config) {
  const tries = pack.commands.map((command) => tried(pack, command, config)).filter(Boolean);
  const best = tries.find((one) => one.outcome === "runs") ?? tries[0];
  const traps = best.outcome === "runs" ? tries.filter((one) => one.outcome === "swallows") : [];
  return { best, traps };
}

function tried(pack, command, config) {
  const cells = { ...command.cells };
  for (const asked of pack.reads) cells[asked.name] = readCell(asked, config, command.flags, pack);
  if (!Object.entries(command.when).every(([fact, one]) => accepts(one, cells[fact]))) return null;
  const { rule } = walk(pack, cells);
  const declared = at(config, "architectures");
  const entries = Array.isArray(declared) ? declared.map(pythonText) : [];
  const values = Object.fromEntries(Object.entries(cells).map(([fact, cell]) => [fact, cell ?? "none"]));
  values.architectures = entries.map(pythonRepr).join(", ");
  values.first_architecture = entries[0] ?? "";
  const text = rule.outcome === "refuses" ? filled(rule.says, values)
    : rule.outcome === "runs" ? "" : rule.says;
  return { rule, outcome: rule.outcome, lane: rule.lane, text, command: command.text };
}

function readCell(asked, config, flags, { registry }) {
  const { source, places, shape, against, words } = asked;
  if (source === "entry") return readEntry(at(config, "architectures"), places[0], registry);
  if (shape === "which") return places.find((place) => firstSet(config, [place]) !== null) ?? null;
  const value = source === "flag" ? flagValue(flags[places[0]]) : firstSet(config, places);
  if (against.length) {
    const isFlag = (place) => place.startsWith("--");
    const bound = firstSet(config, against.filter((place) => !isFlag(place)))
      ?? flagValue(flags[against.find(isFlag)?.slice(2)]);
    return compared(value, bound);
  }
  if (shape !== "text") return shaped(value, shape);
  if (!Object.keys(words).length) return textCell(value, asked);
  const name = typeof value === "string" ? value.toLowerCase() : "";
  const found = Object.entries(words).find(([part]) => name.includes(part));
  return value === null ? null : found ? found[1] : ANOTHER;
}

const ANOTHER = "other"; // than the texts a fact lists

function textCell(value, { same, of, firm, absent }) {
  if (value === null) return absent;
  if (typeof value !== "string") return of.length ? ANOTHER : "not text";
  const cell = Object.hasOwn(same, value) ? same[value] : value;
  return of.length && !of.includes(cell) && !firm.includes(cell) ? ANOTHER : cell;
}

// Flags are JSON of our own, where a whole number is one.
const flagValue = (value) => (typeof value === "number"
  ? new JsonNumber(String(value), Number.isInteger(value)) : value ?? null);

function firstSet(config, places) {
  for (const place of places) {
    let value = config;
    for (const step of place.split(".")) {
      if (value instanceof Map && !/^\d+$/.test(step)) value = at(value, step);
      else if (Array.isArray(value) && /^\d+$/.test(step)) value = value[Number(step)] ?? null;
      else value = null;
    }
    if (value !== null) return value;
  }
  return null;
}

function readEntry(declared, kind, registry) {
  const names = Array.isArray(declared) ? declared.filter((entry) => typeof entry === "string") : [];
  if (!names.length) return null;
  const known = [...new Set(names)].filter((entry) => Object.hasOwn(registry, entry));
  if (!known.length) return "unregistered";
  if (kind === "ranked") return known.reduce((a, b) => (registry[a] <= registry[b] ? a : b));
  return known.length === 1 ? known[0] : "several";
}

const isWhole = (value) => value instanceof JsonNumber && value.exact;

function shaped(value, shape) {
  if (value === null) return null;
  if (shape === "presence") return "present";
  if (shape === "truth") return typeof value === "boolean" ? (value ? "yes" : "no") : "invalid";
  if (!isWhole(value) || value.value < 0n) return "invalid";
  if (shape === "count") return value.value === 0n ? "invalid" : value.value === 1n ? "one" : "several";
  return value.value > 0n ? "positive" : "zero";
}

function compared(value, bound) {
  const bounded = isWhole(bound) && bound.value > 0n;
  if (value === null) return bounded ? "default" : null;
  if (!isWhole(value) || value.value < 1n) return "invalid";
  if (!bounded) return "unbounded";
  if (value.value <= bound.value) return value.value === bound.value ? "equal" : "below";
  return value.value % bound.value ? "uneven" : "multiple";
}

const pythonText = (value) => (typeof value === "string" ? value : jsonText(value));

function pythonRepr(text) {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const inner = [...text].map((letter) => (letter === "\\" || letter === quote ? `\\${letter}`
    : isPrintable(letter) ? letter : escaped(letter)));
  return quote + inner.join("") + quote;
}
