// The decision graph as an SVG: one column a fact, the rules last. Drawn once; lighting a path only
// changes classes.

"use strict";

const COLUMN = 184;
const LEAF_WIDTH = 290;
const NODE_WIDTH = 114;
const HEIGHT = 26;
const GAP = 10;
const LEAST_SCALE = 0.5; // below it, no label can be read
const MOST_DRAWN = 1500; // nodes; a larger graph could not be read, and would take seconds to draw

class Graph {
  constructor(picture, about, data, openRule) {
    Object.assign(this, { picture, about, data, openRule });
    this.nodes = layOut(data);
    this.path = [];
    this.focused = data.root;
    if (this.nodes) this.draw();
    else this.about.textContent = "This graph has too many nodes to be drawn; the rest of the page is complete.";
  }

  draw() {
    const columns = this.data.facts.map((fact, at) => svg("text",
      { class: "column", x: at * COLUMN, y: -24 }, fact));
    columns.push(svg("text",
      { class: "column", x: this.data.facts.length * COLUMN, y: -24 }, "rule"));
    this.edges = this.edgesOf();
    this.scene = svg("g", {}, svg("g", {}, columns),
      svg("g", { class: "edges" }, this.edges.map((edge) => edge.line)),
      svg("g", {}, [...this.nodes.values()].map((node) => this.drawNode(node))),
      svg("g", { class: "labels" }, this.edges.map((edge) => edge.label)));
    this.picture.append(this.scene);
    const boxes = [...this.nodes.values()];
    this.bounds = {
      left: -20, top: -50, right: this.data.facts.length * COLUMN + LEAF_WIDTH + 20,
      bottom: Math.max(...boxes.map((node) => node.y)) + HEIGHT + 20,
    };
    this.view = { ...this.bounds };
    this.listen();
    this.showAll();
  }

  edgesOf() {
    const edges = [];
    for (const node of this.nodes.values()) {
      for (const [to, cells] of Object.entries(node.children)) {
        const target = this.nodes.get(to);
        const [x1, y1] = [node.x + NODE_WIDTH, node.y + HEIGHT / 2];
        const [x2, y2] = [target.x, target.y + HEIGHT / 2];
        const bend = Math.min(90, (x2 - x1) / 2);
        const line = svg("path",
          { d: `M${x1},${y1}C${x1 + bend},${y1},${x2 - bend},${y2},${x2},${y2}` });
        const label = target.rule
          ? svg("text", { x: x2 - 10, y: y2 - 5, "text-anchor": "end" })
          : svg("text", { x: x2 - 6, y: target.y - 6 });
        edges.push({ from: node.name, to, cells, line, label });
      }
    }
    return edges;
  }

  drawNode(node) {
    const { rule } = node;
    const title = rule ? `${rule.id} ${rule.name}` : node.fact;
    const mark = rule ? `${MARKS[outcomeOf(rule)]} ` : "";
    node.shape = svg("g", {
      class: `node ${rule ? outcomeOf(rule) : "fact"}`, transform: `translate(${node.x},${node.y})`,
      "data-node": node.name,
    },
    svg("rect", {
      width: rule ? LEAF_WIDTH : NODE_WIDTH, height: HEIGHT, rx: rule && rule.lane === null ? 2 : 13,
    }),
    svg("text", { x: 12, y: 17 }, shortened(mark + title, rule ? 36 : 13)),
    svg("title", {}, title));
    return node.shape;
  }

  // Lights the nodes a decision passed, in order; none for a config that could not be read.
  light(names, cells = []) {
    this.path = names;
    if (!this.nodes) return;
    this.picture.classList.toggle("lit", names.length > 0);
    for (const node of this.nodes.values()) {
      const step = names.indexOf(node.name);
      node.shape.classList.toggle("on", step >= 0);
    }
    for (const edge of this.edges) {
      const step = names.indexOf(edge.from);
      const on = step >= 0 && names[step + 1] === edge.to;
      edge.line.classList.toggle("on", on);
      if (on) edge.line.parentNode.append(edge.line); // above the others
      edge.label.textContent = on ? `${step + 1}. ${shortened(word(cells[step]), 22)}` : "";
    }
    this.focus(names.length ? names[names.length - 1] : this.data.root, false);
    if (names.length) this.showPath();
  }

  // ------------------------------------------------------------------------- view

  showAll() {
    this.fit(this.bounds);
  }

  showPath() {
    const boxes = this.path.map((name) => this.nodes.get(name));
    if (!boxes.length) return this.showAll();
    const down = boxes.map((node) => node.y);
    const box = {
      left: boxes[0].x - 20, top: Math.min(...down) - 60,
      right: boxes.at(-1).x + LEAF_WIDTH + 20, bottom: Math.max(...down) + HEIGHT + 40,
    };
    const readable = this.picture.clientWidth / LEAST_SCALE;
    if (box.right - box.left > readable) {
      // Not all of it can be read at once: show where it ends.
      box.left = box.right - readable;
      box.top = boxes.at(-1).y - readable / 2;
      box.bottom = boxes.at(-1).y + readable / 2;
    }
    return this.fit(box);
  }

  fit({ left, top, right, bottom }) {
    this.view = { left, top, right, bottom };
    this.show();
  }

  zoom(factor, x = 0.5, y = 0.5) {
    const { left, top, right, bottom } = this.view;
    const [width, height] = [right - left, bottom - top];
    const whole = this.bounds.right - this.bounds.left;
    const wanted = Math.min(Math.max(width / factor, 150), whole * 3);
    const [w, h] = [wanted, height * (wanted / width)];
    this.fit({
      left: left + (width - w) * x, right: left + (width - w) * x + w,
      top: top + (height - h) * y, bottom: top + (height - h) * y + h,
    });
  }

  pan(x, y) {
    const width = this.view.right - this.view.left;
    const height = this.view.bottom - this.view.top;
    this.fit({
      left: this.view.left + x * width, right: this.view.right + x * width,
      top: this.view.top + y * height, bottom: this.view.bottom + y * height,
    });
  }

  show() {
    const { left, top, right, bottom } = this.view;
    this.picture.setAttribute("viewBox", `${left} ${top} ${right - left} ${bottom - top}`);
  }

  // ------------------------------------------------------------------------ focus

  focus(name, move = true) {
    const node = this.nodes.get(name);
    this.nodes.get(this.focused).shape.classList.remove("focused");
    node.shape.classList.add("focused");
    this.focused = name;
    for (const edge of this.edges) {
      edge.line.classList.toggle("near", move && (edge.from === name || edge.to === name));
    }
    const { left, top, right, bottom } = this.view;
    const seen = node.x >= left && node.x + NODE_WIDTH <= right && node.y >= top
      && node.y + HEIGHT <= bottom;
    if (move && !seen) {
      const [x, y] = [node.x + NODE_WIDTH / 2 - (left + right) / 2, node.y - (top + bottom) / 2];
      this.fit({ left: left + x, right: right + x, top: top + y, bottom: bottom + y });
    }
    if (move) this.describe(node);
  }

  describe(node) {
    const place = this.path.indexOf(node.name);
    const lit = place >= 0 ? ` Step ${place + 1} of this config's path.` : "";
    if (node.rule) {
      this.about.replaceChildren(el("p", {}, badge(node.rule), " ",
        el("button", { type: "button", class: "link", onclick: () => this.openRule(node.rule.id) },
          `${node.rule.id} ${node.rule.name}`), lit));
      return;
    }
    const items = Object.entries(node.children).map(([to, cells]) => {
      const target = this.nodes.get(to);
      const leads = target.rule ? `${to} ${target.rule.name}` : `${to} (${target.fact})`;
      const named = cells.map((cell) => (cell === OTHERWISE ? "anything else" : word(cell)));
      return el("li", {}, el("code", {}, named.join(", ")), ` → ${leads}`);
    });
    this.about.replaceChildren(
      el("p", {}, `${node.name} asks ${node.fact}.${lit}`), el("ul", {}, items));
  }

  step(key) {
    const here = this.nodes.get(this.focused);
    const sameColumn = [...this.nodes.values()].filter((node) => node.x === here.x);
    sameColumn.sort((first, second) => first.y - second.y);
    const row = sameColumn.indexOf(here);
    const nearest = (names) => names.map((name) => this.nodes.get(name)).sort((first, second) =>
      this.path.includes(second.name) - this.path.includes(first.name)
      || Math.abs(first.y - here.y) - Math.abs(second.y - here.y))[0];
    const next = {
      ArrowUp: sameColumn[row - 1],
      ArrowDown: sameColumn[row + 1],
      ArrowRight: nearest(Object.keys(here.children)),
      ArrowLeft: nearest(here.parents),
    }[key];
    if (next) this.focus(next.name);
  }

  listen() {
    const { picture } = this;
    const shifts = { ArrowUp: [0, -0.1], ArrowDown: [0, 0.1], ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0] };
    const keys = {
      "+": () => this.zoom(1.25), "=": () => this.zoom(1.25), "-": () => this.zoom(0.8),
      0: () => this.showAll(), p: () => this.showPath(),
      Enter: () => {
        const { rule } = this.nodes.get(this.focused);
        if (rule) this.openRule(rule.id);
      },
    };
    picture.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (shifts[event.key]) event.shiftKey ? this.pan(...shifts[event.key]) : this.step(event.key);
      else if (keys[event.key.toLowerCase()] ?? keys[event.key]) {
        (keys[event.key.toLowerCase()] ?? keys[event.key])();
      } else return;
      event.preventDefault();
    });
    picture.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && document.activeElement !== picture) return; // the page scrolls
      event.preventDefault();
      const box = picture.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left, event.clientY - box.top];
      this.zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, x / box.width, y / box.height);
    }, { passive: false });
    this.listenToPointers();
  }

  listenToPointers() {
    const { picture } = this;
    const down = new Map(); // one finger drags, two also zoom
    let moved = false;
    picture.addEventListener("pointerdown", (event) => {
      down.set(event.pointerId, event);
      moved = false;
    });
    picture.addEventListener("pointermove", (event) => {
      const before = down.get(event.pointerId);
      if (!before) return;
      const box = picture.getBoundingClientRect();
      const [x, y] = [before.clientX - event.clientX, before.clientY - event.clientY];
      if (!moved && Math.abs(x) + Math.abs(y) < 4) return;
      moved = true;
      picture.setPointerCapture(event.pointerId);
      const others = [...down.values()].filter((other) => other.pointerId !== event.pointerId);
      const apart = (one) => Math.hypot(
        one.clientX - others[0].clientX, one.clientY - others[0].clientY);
      if (others.length) this.zoom(apart(event) / Math.max(1, apart(before)));
      else this.pan(x / box.width, y / box.height);
      down.set(event.pointerId, event);
    });
    for (const end of ["pointerup", "pointercancel"]) {
      picture.addEventListener(end, (event) => down.delete(event.pointerId));
    }
    picture.addEventListener("click", (event) => {
      const name = event.target.closest?.("[data-node]")?.getAttribute("data-node");
      if (name && !moved) this.focus(name);
    });
  }
}

const OTHERWISE = Symbol("otherwise");
const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

// Name -> node with its place, children (name -> cells) and parents; null for a graph too large.
function layOut(data) {
  const nodes = new Map();
  const column = (fact) => (fact ? data.facts.indexOf(fact) : data.facts.length);
  if (Object.keys(data.nodes).length > MOST_DRAWN) return null;
  for (const [name, { fact, branches = [], other, rule_id }] of Object.entries(data.nodes)) {
    const children = {};
    for (const [cell, to] of branches) (children[to] ??= []).push(cell);
    const named = branches.map(([cell]) => cell);
    const rest = data.closed[fact]?.filter((cell) => !named.includes(cell)) ?? [OTHERWISE];
    if (other && rest.length) (children[other] ??= []).push(...rest);
    const rule = rule_id ? data.rules[rule_id] : null;
    nodes.set(name, { name, fact, rule, children, parents: [], x: column(fact) * COLUMN, y: 0 });
  }
  for (const node of nodes.values()) {
    for (const to of Object.keys(node.children)) nodes.get(to).parents.push(node.name);
  }
  place(nodes, data.facts.length);
  return nodes;
}

// Rows by the mean of the neighbours' rows, a few times over: fewer lines cross.
function place(nodes, last) {
  const columns = Array.from({ length: last + 1 }, (_, at) =>
    [...nodes.values()].filter((node) => node.x === at * COLUMN));
  const tallest = Math.max(...columns.map((column) => column.length)) * (HEIGHT + GAP);
  const spread = (column) => {
    const step = Math.max(HEIGHT + GAP, Math.min(tallest / column.length, 90));
    const top = (tallest - step * column.length) / 2;
    column.forEach((node, row) => { node.y = top + row * step; });
  };
  columns.forEach(spread);
  for (let sweep = 0; sweep < 24; sweep++) {
    for (const column of sweep % 2 ? columns : [...columns].reverse()) {
      const wanted = new Map(column.map((node) => {
        const around = sweep % 2 ? node.parents : Object.keys(node.children);
        const rows = around.map((name) => nodes.get(name).y);
        return [node, rows.length ? rows.reduce((sum, y) => sum + y) / rows.length : node.y];
      }));
      column.sort((first, second) => wanted.get(first) - wanted.get(second));
      spread(column);
    }
  }
}
