// Wires the page: input, tabs, theme. Everything is decided here; nothing is sent anywhere.

"use strict";

const DATA = JSON.parse(byId("data").textContent);
const RULES = [...Object.values(DATA.table.rules), ...Object.values(DATA.table.messages)];
const THEMES = ["system", "light", "dark"];
const TABS = ["decide", "rules", "changes"];
const AFTER_TYPING_MS = 150;

let newest = null; // the decision shown

const graph = new Graph(byId("graph"), byId("graph-node"), DATA.table, openRule);

// ------------------------------------------------------------------------- deciding

function show(bytes) {
  if (bytes.length === 0) {
    newest = null;
    byId("answer").replaceChildren(el("p", { class: "note" }, "No config yet."));
    byId("reasons").replaceChildren();
    byId("engines").replaceChildren();
    graph.light([]);
    return;
  }
  newest = decideBytes(bytes, DATA.table, DATA.constants);
  const before = DATA.old ? decideBytes(bytes, DATA.old, DATA.constants) : null;
  byId("answer").replaceChildren(...answerView(newest, before, openRule));
  byId("reasons").replaceChildren(...reasonsView(newest, DATA.facts, openRule));
  byId("engines").replaceChildren(...enginesView(DATA.engines, newest.config));
  graph.light(newest.nodes, newest.path.map((step) => step.value));
  showRules();
}

function decideText() {
  show(new TextEncoder().encode(byId("config").value));
}

function setConfig(text) {
  byId("config").value = text;
  byId("file").value = "";
  decideText();
}

async function decideFile(file) {
  // One byte more than is read of a config is enough to refuse a larger one.
  const bytes = new Uint8Array(await file.slice(0, DATA.constants.largest_config + 1).arrayBuffer());
  byId("config").value = new TextDecoder().decode(bytes.subarray(0, 100_000));
  byId("example").value = "";
  openTab("decide");
  show(bytes);
}

// ---------------------------------------------------------------------------- rules

function showRules() {
  const found = filtered(RULES, byId("filter").value, byId("outcome").value);
  const cut = found.length > MOST_ROWS ? `, the first ${MOST_ROWS} shown` : "";
  byId("rule-count").textContent = `${found.length} of ${RULES.length} rules${cut}`;
  byId("rule-table").replaceChildren(found.length ? rulesView(found, newest?.rule.id)
    : el("p", {}, "No rule has all these words."));
}

function openRule(id) {
  byId("filter").value = "";
  byId("outcome").value = "";
  showRules();
  if (!byId(`rule-${id}`)) {
    byId("filter").value = id;
    showRules();
  }
  openTab("rules");
  byId(`rule-${id}`).scrollIntoView({ block: "center" });
  byId(`rule-${id}`).focus();
}

// ----------------------------------------------------------------------------- tabs

function openTab(name) {
  for (const one of TABS) {
    byId(one).hidden = one !== name;
    byId(`tab-${one}`).setAttribute("aria-selected", one === name);
    byId(`tab-${one}`).tabIndex = one === name ? 0 : -1;
  }
}

function stepTab(event) {
  const here = TABS.findIndex((name) => byId(`tab-${name}`) === document.activeElement);
  const to = {
    ArrowRight: (here + 1) % TABS.length, ArrowLeft: (here + TABS.length - 1) % TABS.length,
    Home: 0, End: TABS.length - 1,
  }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  openTab(TABS[to]);
  byId(`tab-${TABS[to]}`).focus();
}

function nextTheme() {
  const root = document.documentElement;
  const theme = THEMES[(THEMES.indexOf(root.dataset.theme ?? "system") + 1) % THEMES.length];
  root.dataset.theme = theme;
  byId("theme").textContent = `Theme: ${theme}`;
}

// ------------------------------------------------------------------------- dropping

function listenToDrops() {
  const hint = (shown) => document.body.classList.toggle("dropping", shown);
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    hint(true);
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) hint(false);
  });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    hint(false);
    const [file] = event.dataTransfer.files;
    const text = event.dataTransfer.getData("text/plain");
    if (file) decideFile(file);
    else if (text) setConfig(text);
  });
}

// ---------------------------------------------------------------------------- start

function start() {
  const { table: name, table_version: version } = DATA.table;
  const count = Object.keys(DATA.table.rules).length;
  byId("table-line").textContent = `table ${name} ${version}, ${count} rules`
    + (DATA.old ? `, compared with ${DATA.old.table_version}` : "");
  byId("problem").hidden = !DATA.problem;
  byId("problem").textContent = DATA.problem
    && `The rules file has changed and its newest version is refused; this page shows the last good one. ${DATA.problem}`;
  byId("example").append(el("option", { value: "" }, "choose a rule's own test"),
    ...RULES.filter((rule) => rule.example).map((rule) =>
      el("option", { value: rule.id }, `${rule.id} ${rule.name}`)));
  byId("changes").append(...changesView(DATA, (config) => {
    openTab("decide");
    setConfig(JSON.stringify(config, null, 2));
    byId("config").focus();
  }));

  let typing;
  byId("config").addEventListener("input", () => {
    byId("example").value = "";
    clearTimeout(typing);
    typing = setTimeout(decideText, AFTER_TYPING_MS);
  });
  byId("example").addEventListener("change", (event) => {
    const rule = RULES.find((one) => one.id === event.target.value);
    if (rule) setConfig(rule.example);
  });
  byId("open").addEventListener("click", () => byId("file").click());
  byId("file").addEventListener("change", (event) => decideFile(event.target.files[0]));
  byId("clear").addEventListener("click", () => {
    byId("example").value = "";
    setConfig("");
    byId("config").focus();
  });
  byId("filter").addEventListener("input", showRules);
  byId("outcome").addEventListener("change", showRules);
  byId("zoom-in").addEventListener("click", () => graph.zoom(1.25));
  byId("zoom-out").addEventListener("click", () => graph.zoom(0.8));
  byId("zoom-all").addEventListener("click", () => graph.showAll());
  byId("zoom-path").addEventListener("click", () => graph.showPath());
  byId("tabs").addEventListener("keydown", stepTab);
  for (const name of TABS) byId(`tab-${name}`).addEventListener("click", () => openTab(name));
  byId("theme").addEventListener("click", nextTheme);
  listenToDrops();
  showRules();
  decideText();
}

start();
