// Decides configs as the explorer's page does: `node explorer.cjs PAGE-FOLDER`, an object of
// {table, constants, engines} in the first line of standard input, then one base64 config a line.

"use strict";

const fs = require("node:fs");
const path = require("node:path");
const readline = require("node:readline");
const vm = require("node:vm");

const [folder] = process.argv.slice(2);
const source = ["strict_json.js", "decide.js", "engines.js"]
  .map((name) => fs.readFileSync(path.join(folder, name), "utf-8")).join("\n");
const page = vm.runInThisContext(`${source}\n({ decideBytes, engineAnswer, plain });`);

function said(decision, engines) {
  const { rule, refusal, stage, facts, evidence, path: steps, near, config } = decision;
  const told = ({ rule: by, outcome, lane, text, command }) => (
    { rule_id: by.id, outcome, lane, text, command });
  const answer = (pack) => {
    const { best, traps } = page.engineAnswer(pack, config);
    return { best: told(best), traps: traps.map(told) };
  };
  return {
    decision: { rule_id: rule.id, name: rule.name, lane: rule.lane, refusal },
    stage,
    facts,
    evidence: evidence.map(({ fact, value, key, raw }) => (
      { fact, value, key, raw: key === null ? null : page.plain(raw) })),
    path: steps,
    near: near.map(({ rule: other, failed }) => ({ rule_id: other.id, failed })),
    engines: config ? engines.map(answer) : [],
  };
}

let given = null;
readline.createInterface({ input: process.stdin }).on("line", (line) => {
  if (given === null) {
    given = JSON.parse(line);
    return;
  }
  const bytes = new Uint8Array(Buffer.from(line, "base64"));
  const decision = page.decideBytes(bytes, given.table, given.constants);
  process.stdout.write(`${JSON.stringify(said(decision, given.engines))}\n`);
});
