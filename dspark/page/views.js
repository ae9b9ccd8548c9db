// What is shown of a decision, of the rules and of the changes, as elements.

"use strict";

const MOST_ROWS = 200;
const ABOUT_ENGINES = "From the engines' own code, as parity packs record it. Some also look for words in"
  + " the path, which a pasted config has not; `dspark engines` asks about a checkpoint as it is typed.";
// What is swallowed is accepted into a wrong lane: no better than what cannot be told.
const ENGINE_LOOKS = {
  runs: LANE, refuses: REFUSED, swallows: UNREADABLE, unknown: UNREADABLE,
};

// ------------------------------------------------------------------------- decision

function answerView(decision, before, openRule) {
  const { rule, refusal } = decision;
  const parts = [
    el("h2", { class: "hidden" }, "Decision"),
    el("p", { class: "verdict" }, badge(rule)),
    el("p", {}, el("button", { type: "button", class: "link", onclick: () => openRule(rule.id) },
      `${rule.id} ${rule.name}`)),
  ];
  if (refusal) parts.push(el("p", { class: "message" }, prose(refusal.message)));
  if (refusal?.help) parts.push(el("p", {}, el("strong", {}, "Help: "), prose(refusal.help)));
  if (refusal && rule.refuse.includes("{did_you_mean}")) {
    parts.push(el("p", { class: "note" }, prose("On the command line, `dspark route` also suggests a spelling.")));
  }
  if (before) {
    const same = before.rule.id === rule.id && before.rule.lane === rule.lane;
    parts.push(el("p", { class: "before" }, same ? "Decided alike by the older table." : [
      el("strong", {}, "Changed. "), "The older table: ", badge(before.rule),
      ` ${before.rule.id} ${before.rule.name}`,
    ]));
  }
  return parts;
}

function reasonsView(decision, asks, openRule) {
  const cards = [];
  if (decision.evidence.length) {
    const rows = decision.evidence.map(({ fact, value, key, raw }) => [
      el("span", { title: asks[fact] }, fact),
      value === null ? "absent" : el("code", {}, plain(value)),
      key === null ? (value === null ? "no key has it" : "no key says otherwise")
        : el("span", {}, el("code", {}, key), " = ", el("code", {}, plain(raw, 60))),
    ]);
    cards.push(el("div", { class: "card" }, el("h2", {}, "Evidence"),
      table("Evidence", ["Fact", "Cell", "Read from"], rows)));
  }
  if (decision.path.length) {
    const steps = decision.path.map(({ fact, value, named }) => el("li", {}, `${fact} is `,
      value === null ? "absent" : el("code", {}, plain(value)), named ? "" : " (no rule names it)"));
    cards.push(el("div", { class: "card" }, el("h2", {}, "Path"),
      el("ol", {}, steps, el("li", {}, badge(decision.rule), ` ${decision.rule.id}`))));
  }
  if (decision.near.length) {
    const items = decision.near.map(({ rule, failed }) => el("li", {},
      el("button", { type: "button", class: "link", onclick: () => openRule(rule.id) },
        `${rule.id} ${rule.name}`), " ", badge(rule),
      el("ul", {}, failed.length ? failed.map(({ fact, wanted, got }) => el("li", {},
        `${fact} is `, got === null ? "absent" : el("code", {}, plain(got)), "; it asks for ",
        el("code", {}, shortened(wanted, 160))))
        : el("li", {}, `matches too, and ${decision.rule.id} goes before it`))));
    cards.push(el("div", { class: "card" }, el("h2", {}, "Why not the nearest other rules"),
      el("ul", { class: "near" }, items)));
  }
  return cards;
}

// What each engine would do, for the engines that have parity packs.
function enginesView(packs, config) {
  if (!packs.length || !config) return [];
  const rows = packs.map((pack) => {
    const { best, traps } = engineAnswer(pack, config);
    const ways = traps.length === 1 ? "1 other way to start it swallows"
      : `${traps.length} other ways to start it swallow`;
    return [`${pack.engine} ${pack.version}`, el("div", {}, answerOf(best), traps.length
      ? el("details", {}, el("summary", {}, `${ways} the draft`), traps.map(answerOf)) : "")];
  });
  return [el("div", { class: "card" }, el("h2", {}, "What each engine would do"),
    el("p", { class: "note" }, prose(ABOUT_ENGINES)),
    table("Engines", ["Engine", "Answer"], rows))];
}

function answerOf({ rule, outcome, lane, text, command }) {
  const look = ENGINE_LOOKS[outcome];
  return el("div", { class: "engine" },
    el("p", {}, el("code", {}, command.replaceAll("{source}", "DRAFT"))),
    el("p", {}, el("span", { class: `badge ${look}` }, `${MARKS[look]} ${outcome}`),
      lane ? ` in ${lane}` : "", ` (${rule.id} ${rule.name})`),
    text && el("p", {}, prose(text)));
}

// ---------------------------------------------------------------------------- rules

function conditionText(when) {
  const asked = Object.entries(when).map(([fact, { text }]) => `${fact}: ${text}`);
  return asked.join("; ");
}

function whenView(rule) {
  if (rule.default) return "no other rule matches";
  if (!rule.when.length) return "no rule can be asked about the input";
  return rule.when.map((when, at) => [
    at ? el("p", {}, el("em", {}, "or")) : "",
    ...Object.entries(when).map(([fact, { text }]) =>
      el("p", {}, `${fact}: `, el("code", {}, shortened(text, 160)))),
  ]).flat();
}

function ruleRow(rule, decides) {
  const about = rule.refuse ? [el("p", {}, rule.why)] : [];
  if (rule.help) about.push(el("p", {}, el("strong", {}, "Help: "), prose(rule.help)));
  if (rule.before.length) about.push(el("p", {}, `Goes before ${rule.before.join(", ")}.`));
  for (const ref of rule.refs) {
    const link = /^https:\/\//.test(ref) ? el("a", { href: ref, rel: "noreferrer" }, ref) : ref;
    about.push(el("p", {}, link));
  }
  about.push(el("p", {}, `${rule.tests} tests.`));
  return [
    el("span", { id: `rule-${rule.id}`, tabindex: "-1" }, el("strong", {}, rule.id), " ", rule.name,
      decides ? el("span", { class: "tag" }, "decides your config") : ""),
    badge(rule),
    el("div", {}, whenView(rule)),
    el("div", {}, el("p", {}, prose(rule.refuse || rule.why)),
      el("details", {}, el("summary", {}, rule.refuse ? "Help, reason, references" : "References"),
        about)),
  ];
}

function ruleWords(rule) {
  const texts = [rule.id, rule.name, rule.lane ?? "refused", rule.refuse, rule.help, rule.why];
  return [...texts, ...rule.when.map(conditionText)].join(" ").toLowerCase();
}

// The rules that hold every word of the filter.
function filtered(rules, filter, outcome) {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  return rules.filter((rule) => (!outcome || outcomeOf(rule) === outcome)
    && words.every((one) => ruleWords(rule).includes(one)));
}

function rulesView(rules, decided) {
  const shown = rules.slice(0, MOST_ROWS);
  return table("Rules", ["Rule", "Outcome", "When", "Says"],
    shown.map((rule) => ruleRow(rule, rule.id === decided)));
}

// -------------------------------------------------------------------------- changes

function changesView(data, tryConfig) {
  const { old, table: now, changes } = data;
  if (!old) {
    return [el("div", { class: "card" }, el("h2", {}, "Changes"),
      el("p", {}, "This page holds one table. To see what an edit changes, open the explorer with the older file too:"),
      el("pre", {}, "dspark explore --rules NEW.yaml --old OLD.yaml"))];
  }
  const heads = [...data.compared, "Before", "After", "Try it"];
  const rows = changes.map((change) => changeRow(change, data, tryConfig));
  const kinds = changes.length === 1 ? "1 kind of config changes" : `${changes.length} kinds of config change`;
  return [
    el("div", { class: "card" }, el("h2", {}, "What is decided differently"),
      el("p", {}, `Table ${old.table} ${old.table_version} → ${now.table} ${now.table_version}: `,
        changes.length ? `${kinds} decision, each shown by one config.` : "no config changes decision."),
      changes.length ? table("Changed decisions", heads, rows) : ""),
    el("div", { class: "card" }, el("h2", {}, "What is written differently"), editsView(old, now)),
  ];
}

const cellText = (cell, data) => (cell === data.other ? "any other" : word(cell));

function changeRow(change, data, tryConfig) {
  const config = change.witness ? JSON.parse(change.witness) : null;
  const side = ({ rule_id: id, name, lane }) => el("div", {}, badge({ id, lane }), ` ${id} ${name}`);
  return [
    ...data.compared.map((_, at) => el("code", {}, cellText(change.cells[at] ?? null, data))),
    side(change.old), side(change.new),
    config ? el("button", { type: "button", onclick: () => tryConfig(config) }, "Decide this config")
      : "no config.json has these cells",
  ];
}

// Each rule that is new, gone or edited, both versions side by side, what differs marked.
function editsView(old, now) {
  const ids = [...new Set([...Object.keys(old.rules), ...Object.keys(now.rules)])].sort();
  const edits = ids.map((id) => [old.rules[id], now.rules[id]])
    .filter(([before, after]) => JSON.stringify(written(before)) !== JSON.stringify(written(after)));
  if (!edits.length) return el("p", {}, "No rule has other conditions, another outcome or other words.");
  return edits.map(([before, after]) => {
    const [first, second] = [written(before), written(after)];
    const fields = Object.keys({ ...first, ...second });
    const state = !before ? "new" : !after ? "removed" : "edited";
    const rows = fields.map((field) => {
      const [one, two] = [first[field] ?? "", second[field] ?? ""];
      return [`${field}${one !== two ? " (changed)" : ""}`, marked(one, two), marked(two, one)];
    });
    return el("div", { class: "edit" },
      el("h3", {}, `${(after ?? before).id} ${(after ?? before).name} `, el("span", { class: "tag" }, state)),
      table(`Rule ${(after ?? before).id}`, ["", "Before", "After"], rows));
  });
}

// A text with the words marked that the other one has not; all of it where only their order differs.
function marked(text, other) {
  if (text === other || !text) return text || "—";
  const parts = text.split(/([\s,;[\]]+)/);
  const known = new Set(other.split(/[\s,;[\]]+/));
  const isNew = (part, at) => at % 2 === 0 && part && !known.has(part);
  if (!parts.some(isNew) && text.length >= other.length) return el("mark", {}, text);
  return el("span", {}, parts.map((part, at) => (isNew(part, at) ? el("mark", {}, part) : part)));
}

function written(rule) {
  if (!rule) return {};
  const { name, lane, refuse, help, before, when } = rule;
  const outcome = lane === null ? "refused" : `lane ${lane}`;
  const fields = { name, outcome, when: when.map(conditionText).join(" or ") };
  return { ...fields, "goes before": before.join(", "), message: refuse, help };
}
