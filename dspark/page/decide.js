// From the bytes of a config.json to its decision, by the graph that Python compiled.
// What dspark/observe.py, compiled.py and explain.py say is said here once more; a test holds the
// two to the same answers. Spelling suggestions are the only part of a refusal that is left out.

"use strict";

const LONGEST_QUOTE = 80;

// What is observed and decided, evidence, path and nearest rules included. Never throws for bytes.
function decideBytes(bytes, table, constants) {
  if ([..."GGUF"].every((letter, at) => bytes[at] === letter.charCodeAt(0))) {
    return decideSeen(table, observeGguf());
  }
  let seen;
  try {
    seen = observeConfig(parseConfig(bytes, constants), constants);
  } catch (problem) {
    if (!(problem instanceof Unreadable)) throw problem;
    return unreadable(table, problem, null);
  }
  return decideSeen(table, seen);
}

// ---------------------------------------------------------------------------- observe

function observeGguf() {
  const cells = { packaging: "gguf", algorithm: null, model_type: null, markov: null };
  return { cells, architectures: [], origins: { packaging: ["GGUF magic", "GGUF"] } };
}

function observeConfig(config, constants) {
  const origins = {};
  const nested = nestedObjects(config, constants);
  const packaging = packagingOf(config, nested, origins, constants);
  const speculators = packaging === "speculators";
  const layers = speculators ? speculatorLayers(config) : config;
  const prefix = speculators ? "transformer_layer_config." : "";
  const architectures = architecturesOf(config, origins);
  const algorithm = algorithmOf(config, nested, origins, constants);
  const model_type = modelTypeOf(layers, prefix, origins);
  const markov = markovOf(config, nested, packaging, origins);
  return { cells: { packaging, algorithm, model_type, markov }, architectures, origins, config };
}

const at = (object, key) => object.get(key) ?? null;

function nestedObjects(config, constants) {
  const found = [];
  for (const key of constants.nested_keys) {
    const value = at(config, key);
    if (value === null) continue;
    if (!(value instanceof Map)) {
      throw new Unreadable("nested-config-bad-type", { key, found: kindOf(value) });
    }
    if (value.size) found.push([key, value]);
  }
  return found;
}

function packagingOf(config, nested, origins, constants) {
  const first = (keys) => keys.find((key) => at(config, key) !== null);
  const say = (packaging, key) => {
    origins.packaging = [key, at(config, key)];
    return packaging;
  };
  const speculators = first(["speculators_model_type", "speculators_config"]);
  if (speculators) return say("speculators", speculators);
  if (nested.length) return say("nested", nested[0][0]);
  const bare = first(constants.draft_keys);
  if (bare) return say("flat", bare);
  const inTarget = first(constants.in_target_keys);
  if (inTarget) return say("in-target", inTarget);
  return at(config, "block_size") !== null ? say("flat", "block_size") : "flat";
}

function speculatorLayers(config) {
  const key = "transformer_layer_config";
  const layers = at(config, key) ?? new Map();
  if (layers instanceof Map) return layers;
  throw new Unreadable("speculators-bad-type", { key, found: kindOf(layers) });
}

function architecturesOf(config, origins) {
  const declared = at(config, "architectures");
  if (declared === null) return [];
  const bad = (found) => new Unreadable("architectures-bad-type", { found });
  if (!Array.isArray(declared)) throw bad(kindOf(declared));
  for (const entry of declared) {
    if (typeof entry !== "string") throw bad(`a list that holds ${kindOf(entry)}`);
  }
  if (declared.length) origins.architecture = ["architectures", declared];
  return [...new Set(declared)];
}

function algorithmOf(config, nested, origins, constants) {
  let found = null;
  for (const [key, cell, value] of namedAlgorithms(config, nested, constants)) {
    if (found !== null && found !== cell) throw conflict(origins.algorithm, [key, value]);
    if (found === null) {
      found = cell;
      origins.algorithm = [key, value];
    }
  }
  return found;
}

function* namedAlgorithms(config, nested, constants) {
  const bad = (rule, key, value) => new Unreadable(rule, { key, found: kindOf(value) });
  const named = at(config, "speculators_model_type");
  if (named !== null) {
    if (typeof named !== "string") throw bad("speculators-bad-type", "speculators_model_type", named);
    yield ["speculators_model_type", named, named];
  }
  const about = at(config, "speculators_config");
  if (about !== null && !(about instanceof Map)) {
    throw bad("speculators-bad-type", "speculators_config", about);
  }
  const agreed = named !== null && about !== null ? at(about, "algorithm") : null;
  if (agreed !== null) yield ["speculators_config.algorithm", asWord(agreed), agreed];
  for (const [name, place] of [["", config], ...nested]) {
    const prefix = name && `${name}.`;
    const projector = at(place, "projector_type");
    if (projector !== null) {
      const key = `${prefix}projector_type`;
      if (typeof projector !== "string") throw bad("model-type-bad-type", key, projector);
      yield [key, projector, projector];
    }
    for (const [key, algorithm] of Object.entries(constants.algorithm_of_key)) {
      const value = at(place, key);
      // 0, false and null say that the file does not have what the key is about.
      if (isSet(value)) yield [prefix + key, algorithm, value];
    }
  }
}

function modelTypeOf(layers, prefix, origins) {
  const value = at(layers, "model_type");
  if (value === null) return null;
  const key = `${prefix}model_type`;
  if (typeof value !== "string") {
    throw new Unreadable("model-type-bad-type", { key, found: kindOf(value) });
  }
  origins.model_type = [key, value];
  return value;
}

function markovOf(config, nested, packaging, origins) {
  let found = null;
  // Under a separate draft's keys the prefixed one is another exporter's mistake, not an alias.
  const own = packaging === "in-target" ? "dspark_markov_rank" : "markov_rank";
  const places = [[own, at(config, own)]];
  for (const [key, value] of nested) places.push([`${key}.markov_rank`, at(value, "markov_rank")]);
  for (const [key, rank] of places) {
    if (rank === null) continue;
    const whole = rank instanceof JsonNumber && rank.exact && rank.value >= 0n;
    const cell = !whole ? "invalid" : rank.value > 0n ? "positive" : "zero";
    if (found !== null && found !== cell) throw conflict(origins.markov, [key, rank]);
    if (found === null) {
      found = cell;
      origins.markov = [key, rank];
    }
  }
  return found;
}

function conflict([key, value], [other_key, other_value]) {
  return new Unreadable("identity-keys-conflict", { key, value, other_key, other_value });
}

function kindOf(value) {
  if (value === null || typeof value === "boolean") return String(value);
  if (value instanceof JsonNumber) return "a number";
  if (typeof value === "string") return "a string";
  return Array.isArray(value) ? "a list" : "an object";
}

function isSet(value) {
  if (value instanceof JsonNumber) return Number(value.value) !== 0;
  if (value instanceof Map) return value.size > 0;
  return Array.isArray(value) ? value.length > 0 : Boolean(value);
}

function asWord(value) {
  if (typeof value === "boolean") return value ? "True" : "False"; // as Python writes it
  return typeof value === "string" ? value : jsonText(value);
}

// ----------------------------------------------------------------------------- decide

// The rule that decides one combination of cells.
function walk(table, cells) {
  let name = table.root;
  const nodes = [name];
  while (table.nodes[name].branches) {
    const { fact, branches, other } = table.nodes[name];
    const taken = branches.find(([cell]) => cell === cells[fact]);
    name = taken ? taken[1] : other;
    nodes.push(name);
  }
  return { rule: table.rules[table.nodes[name].rule_id], nodes };
}

function decideSeen(table, seen) {
  const entries = seen.architectures;
  const cellsOf = (architecture) => ({ ...seen.cells, architecture });
  const isNamed = (entry) => table.architectures.includes(entry);
  const named = entries.length > 1 ? entries.filter(isNamed) : [];
  const architecture = named[0] ?? entries[0] ?? null;
  const { rule, nodes } = walk(table, cellsOf(architecture));
  for (const entry of named.slice(1)) {
    const other = walk(table, cellsOf(entry)).rule;
    if (other !== rule) {
      const values = { first: architecture, first_rule: rule.id, second: entry };
      values.second_rule = other.id;
      return unreadable(table, new Unreadable("architectures-conflict", values), seen);
    }
  }
  const cells = cellsOf(architecture);
  const values = placeholders(seen, architecture);
  const refusal = rule.lane === null
    ? { message: filled(rule.refuse, values), help: filled(rule.help, values) } : null;
  const path = nodes.slice(0, -1).map((name) => {
    const fact = table.nodes[name].fact;
    const cell = cells[fact];
    return { fact, value: cell, named: fact !== "architecture" || cell === null || isNamed(cell) };
  });
  return {
    rule, refusal, stage: "route", facts: factsOf(table, seen), nodes, path, config: seen.config,
    evidence: evidenceOf(table, seen, [architecture]), near: nearMisses(table, rule, cells),
  };
}

function unreadable(table, problem, seen) {
  const rule = table.messages[problem.rule];
  const refusal = {
    message: filled(rule.refuse, problem.values), help: filled(rule.help, problem.values),
  };
  return {
    rule, refusal, stage: "observe", facts: factsOf(table, seen), nodes: [], path: [],
    evidence: seen ? evidenceOf(table, seen, seen.architectures) : [], near: [],
    config: seen?.config,
  };
}

function factsOf(table, seen) {
  const cell = (fact) => (fact === "architecture" ? seen?.architectures ?? [] : seen?.cells[fact]);
  return Object.fromEntries(table.facts.map((fact) => [fact, cell(fact) ?? null]));
}

function evidenceOf(table, seen, decided) {
  const found = [];
  for (const fact of table.facts) {
    const [key, raw] = seen.origins[fact] ?? [null, null];
    if (fact === "architecture" && Array.isArray(raw)) {
      for (const cell of decided) {
        found.push({ fact, value: cell, key: `${key}[${raw.indexOf(cell)}]`, raw: cell });
      }
    } else {
      found.push({ fact, value: seen.cells[fact] ?? null, key, raw });
    }
  }
  return found;
}

const accepts = (condition, cell) => condition.cells.includes(cell) !== condition.negated;

function nearMisses(table, decided, cells, most = 3) {
  const found = [];
  for (const rule of Object.values(table.rules)) {
    if (rule.id === decided.id) continue;
    let best = null;
    for (const when of rule.when) {
      const asked = Object.entries(when);
      const failed = asked.filter(([fact, condition]) => !accepts(condition, cells[fact]));
      const shared = asked.some(([fact, condition]) => fact !== "packaging"
        && !condition.negated && cells[fact] !== null && accepts(condition, cells[fact]));
      if (shared && (best === null || failed.length < best.length)) best = failed;
    }
    if (best !== null) {
      const failed = best.map(([fact, { text }]) => ({ fact, wanted: text, got: cells[fact] }));
      found.push({ rule, failed });
    }
  }
  const order = (miss) => [miss.failed.length, miss.rule.lane === null ? 1 : 0];
  found.sort((first, second) => {
    const [a, b] = [order(first), order(second)];
    return a[0] - b[0] || a[1] - b[1] || (first.rule.id < second.rule.id ? -1 : 1);
  });
  return found.slice(0, most);
}

// --------------------------------------------------------------------------- messages

function placeholders(seen, architecture) {
  const entries = seen.architectures;
  return {
    ...Object.fromEntries(Object.entries(seen.cells).map(([fact, cell]) => [fact, quoted(cell)])),
    architecture: quoted(architecture),
    architectures: entries.map(quoted).join(", ") || "absent",
    markov_rank: quoted(seen.origins.markov?.[1] ?? null),
    did_you_mean: "",
  };
}

function filled(template, values) {
  return template.replace(/\{([^{}]*)\}/g, (_, field) => plain(values[field]));
}

function quoted(value) {
  return value === null ? "absent" : `\`${plain(value)}\``;
}

// One line of printable text: control characters escaped, long text cut.
function plain(value, longest = LONGEST_QUOTE) {
  const letters = [...(typeof value === "string" ? value : jsonText(value))];
  const text = letters.length > longest ? [...letters.slice(0, longest), ..."..."] : letters;
  return text.map((letter) => (isPrintable(letter) ? letter : escaped(letter))).join("");
}

const isPrintable = (letter) => letter === " " || !/[\p{C}\p{Z}]/u.test(letter);

function escaped(letter) {
  const short = { "\t": "\\t", "\n": "\\n", "\r": "\\r" }[letter];
  if (short) return short;
  const code = letter.codePointAt(0);
  const [mark, width] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
  return `\\${mark}${code.toString(16).padStart(width, "0")}`;
}

// JSON as Python writes it.
function jsonText(value) {
  if (value instanceof JsonNumber) {
    return value.exact ? value.value.toString() : floatText(value.value);
  }
  if (Array.isArray(value)) return `[${value.map(jsonText).join(", ")}]`;
  if (value instanceof Map) {
    const pairs = [...value].map(([key, inner]) => `${JSON.stringify(key)}: ${jsonText(inner)}`);
    return `{${pairs.join(", ")}}`;
  }
  return JSON.stringify(value);
}

function floatText(number) {
  const sign = number < 0 || Object.is(number, -0) ? "-" : "";
  const [mantissa, power] = Math.abs(number).toExponential().split("e");
  const exponent = Number(power);
  const digits = mantissa.replace(".", "");
  if (exponent < -4 || exponent >= 16) {
    const rest = digits.length > 1 ? `.${digits.slice(1)}` : "";
    const size = String(Math.abs(exponent)).padStart(2, "0");
    return `${sign}${digits[0]}${rest}e${exponent < 0 ? "-" : "+"}${size}`;
  }
  if (exponent < 0) return `${sign}0.${"0".repeat(-exponent - 1)}${digits}`;
  const whole = digits.slice(0, exponent + 1).padEnd(exponent + 1, "0");
  return `${sign}${whole}.${digits.slice(exponent + 1) || "0"}`;
}
