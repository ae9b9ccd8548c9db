// The strict JSON of a config.json, as dspark/strict_json.py reads it: one meaning, or a refusal.
// Numbers keep how they were written: `256` and `256.0` are one number to JSON.parse.

"use strict";

class Unreadable extends Error {
  constructor(rule, values = {}) {
    super(rule);
    this.rule = rule;
    this.values = values;
  }
}

class JsonNumber {
  constructor(literal, exact) {
    this.exact = exact; // written without a point or an exponent
    this.value = exact ? BigInt(literal) : Number(literal);
  }
}

const INT64 = 2n ** 63n;
const LONGEST_INT64 = 20;
const LONGEST_LITERAL = 24;
const LFS_POINTER = "version https://git-lfs.github.com/spec/";
const JSON_HINTS = {
  "": ", and the file ends",
  "'": ", and single quotes are not JSON",
  "/": ", and comments are not JSON",
  "#": ", and comments are not JSON",
};
const JSON_NUMBER = /-?(?:0|[1-9][0-9]*)((?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)/y;
const JSON_WORD = /true|false|null/y;
const NOT_FINITE = /NaN|-?Infinity/y;
const ESCAPE = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y;
const ESCAPED = { b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" };

// The object that the bytes of a config.json mean, as a Map; throws Unreadable.
function parseConfig(bytes, limits) {
  const value = new JsonReader(decodeUtf8(bytes, limits), limits.deepest_nesting).read();
  if (!(value instanceof Map)) {
    const found = value === null || typeof value === "boolean" ? String(value)
      : typeof value === "string" ? "a string" : Array.isArray(value) ? "an array" : "a number";
    throw new Unreadable("config-not-object", { found });
  }
  return value;
}

function decodeUtf8(bytes, limits) {
  if (bytes.length > limits.largest_config) {
    throw new Unreadable("config-too-large", { limit: limits.largest_config });
  }
  if (bytes.every((byte) => byte === 32 || (byte >= 9 && byte <= 13))) {
    throw new Unreadable("config-empty");
  }
  if ([...LFS_POINTER].every((letter, at) => bytes[at] === letter.charCodeAt(0))) {
    throw new Unreadable("config-is-lfs-pointer");
  }
  if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) {
    throw new Unreadable("config-has-bom");
  }
  // ASCII in UTF-16 or UTF-32 is valid UTF-8 too, with a zero among the first two bytes.
  const zero = bytes.subarray(0, 2).indexOf(0);
  const offset = zero >= 0 ? zero : firstBadByte(bytes);
  if (offset >= 0) {
    const byte = `0x${bytes[offset].toString(16).padStart(2, "0")}`;
    throw new Unreadable("config-not-utf8", { offset, byte });
  }
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
}

// Where the first sequence starts that is not UTF-8, or -1: TextDecoder only says that there is one.
function firstBadByte(bytes) {
  let at = 0;
  while (at < bytes.length) {
    const lead = bytes[at];
    const length = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3
      : lead < 0xf5 ? 4 : 0;
    if (length === 0) return at;
    const least = lead === 0xe0 ? 0xa0 : lead === 0xf0 ? 0x90 : 0x80;
    const most = lead === 0xed ? 0x9f : lead === 0xf4 ? 0x8f : 0xbf;
    for (let more = 1; more < length; more++) {
      const next = bytes[at + more] ?? 0;
      if (next < (more === 1 ? least : 0x80) || next > (more === 1 ? most : 0xbf)) return at;
    }
    at += length;
  }
  return -1;
}

class JsonReader {
  constructor(text, deepest) {
    this.text = text;
    this.deepest = deepest;
    this.at = 0;
    this.depth = 0;
    this.name = "(top level)"; // of the newest key, which is what a bad number is called by
  }

  read() {
    const value = this.value();
    if (this.next() !== "") throw this.invalid("the end of the file");
    return value;
  }

  value() {
    const start = this.next();
    if (start === '"') return this.string();
    if (start === "{") return this.object();
    if (start === "[") return this.array();
    const word = this.take(JSON_WORD);
    if (word) return { true: true, false: false, null: null }[word[0]];
    const number = this.match(JSON_NUMBER);
    if (number) return this.number(number);
    const constant = this.match(NOT_FINITE);
    if (constant) throw this.refusal("config-not-finite", { literal: constant[0] });
    throw this.invalid("a value");
  }

  object() {
    this.open();
    const found = new Map();
    if (this.next() === "}") return this.close(found);
    do {
      if (this.next() !== '"') throw this.invalid("a key in double quotes");
      const start = this.at;
      const key = this.string();
      this.name = key;
      if (found.has(key)) {
        this.at = start;
        throw this.refusal("config-duplicate-key", { key });
      }
      if (this.next() !== ":") throw this.invalid("`:`");
      this.at += 1;
      found.set(key, this.value());
    } while (this.more("}"));
    return this.close(found);
  }

  array() {
    this.open();
    const found = [];
    if (this.next() === "]") return this.close(found);
    do found.push(this.value());
    while (this.more("]"));
    return this.close(found);
  }

  open() {
    if (this.depth === this.deepest) throw this.refusal("config-too-deep", { limit: this.deepest });
    this.depth += 1;
    this.at += 1;
  }

  close(value) {
    this.depth -= 1;
    this.at += 1;
    return value;
  }

  more(closing) {
    const found = this.next();
    if (found === closing) return false;
    if (found !== ",") throw this.invalid(`\`,\` or \`${closing}\``);
    const comma = this.at;
    this.at += 1;
    if (this.next() === closing) {
      this.at = comma;
      throw this.refusal("config-invalid-json", { detail: "a trailing comma" });
    }
    return true;
  }

  string() {
    const start = this.at;
    let result = "";
    for (let at = start + 1; ; at++) {
      const letter = this.text[at];
      if (letter === '"') {
        this.at = at + 1;
        break;
      }
      if (letter === undefined) {
        throw this.refusal("config-invalid-json", { detail: "a string without an end" });
      }
      this.at = at;
      const escape = letter === "\\" ? this.match(ESCAPE) : null;
      if (letter < " " || (letter === "\\" && !escape)) {
        const fault = letter < " " ? "a control character" : "an invalid escape";
        throw this.refusal("config-invalid-json", { detail: `${fault} in a string` });
      }
      this.at = start;
      result += escape ? unescaped(escape[0]) : letter;
      at += escape ? escape[0].length - 1 : 0;
    }
    if (/\p{Surrogate}/u.test(result)) {
      this.at = start;
      const detail = "half of a surrogate pair in a string";
      throw this.refusal("config-invalid-json", { detail });
    }
    return result;
  }

  number(match) {
    const [literal, rest] = match;
    const exact = rest === "";
    // The length goes first: some literals have a million digits.
    const fits = exact
      ? literal.length <= LONGEST_INT64 && -INT64 <= BigInt(literal) && BigInt(literal) < INT64
      : Number.isFinite(Number(literal));
    if (!fits) {
      const shown = literal.length > LONGEST_LITERAL
        ? `${literal.slice(0, 12)}... (${literal.length} characters)` : literal;
      throw this.refusal("number-out-of-range", { key: this.name, literal: shown });
    }
    this.at += literal.length;
    return new JsonNumber(literal, exact);
  }

  next() {
    while (" \t\n\r".includes(this.text[this.at] ?? "x")) this.at += 1;
    return this.text[this.at] ?? "";
  }

  match(pattern) {
    pattern.lastIndex = this.at;
    return pattern.exec(this.text);
  }

  take(pattern) {
    const found = this.match(pattern);
    if (found) this.at += found[0].length;
    return found;
  }

  invalid(expected) {
    const hint = JSON_HINTS[this.text[this.at] ?? ""] ?? "";
    return this.refusal("config-invalid-json", { detail: `expected ${expected}${hint}` });
  }

  refusal(rule, values) {
    const before = this.text.slice(0, this.at);
    const lineStart = before.lastIndexOf("\n") + 1;
    const line = before.slice(0, lineStart).split("\n").length;
    // Characters, not the halves of them that JavaScript counts.
    const column = [...before.slice(lineStart)].length + 1;
    return new Unreadable(rule, { ...values, line, column });
  }
}

function unescaped(escape) {
  const letter = escape[1];
  if (letter === "u") return String.fromCharCode(parseInt(escape.slice(2), 16));
  return ESCAPED[letter] ?? letter;
}
