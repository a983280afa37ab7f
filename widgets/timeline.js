// The live timeline of a run. `agentbook/views/messages.py` describes the messages, and every word shown comes from
// there too. What models and tools chose is hostile: it reaches the page as text only.

const FULL = 3; // a run of so few turns is shown unfolded
const INCIDENTS = 30; // older incidents are folded to their headline
const GROUP = 12; // so many folded turns in a row become one line
const COLUMNS = 64; // the middle of a longer turn is left out
const RECORD_CHARACTERS = 100_000;

let views = 0;

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (name === "onclick") node.addEventListener("click", value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== undefined && child !== ""));
  return node;
}

const name = (text) => make("bdi", {}, text);
const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

class View {
  constructor(model, el) {
    this.model = model;
    this.id = `v${(views += 1)}-${Math.random().toString(36).slice(2)}`;
    this.blocks = new Map(); // id -> block
    this.order = []; // ids, by turn and attempt
    this.shown = new Map(); // what an element shows -> { element, of }
    this.toggled = new Map(); // id -> open, where the reader said so
    this.record = null; // the record that is open: { block, seq, other, row, column, request, text }
    this.requests = 0;
    this.words = { states: {}, terms: {}, model_sign: "" };

    this.top = make("div", { class: "ab-head" }, "asking for the timeline…");
    this.legend = make("div", { class: "ab-legend", hidden: true });
    this.body = make("div", { class: "ab-body", tabindex: 0, role: "group", "aria-label": "turns" });
    this.glossary = make("details", { class: "ab-words", hidden: true });
    const parts = [this.top, this.legend, this.body, this.glossary];
    this.root = make("div", { class: "agentbook-run", role: "figure" }, ...parts);
    this.root.addEventListener("keydown", (event) => this.key(event));
    el.append(this.root);

    this.receive = (message) => this.on(message);
    model.on("msg:custom", this.receive);
    model.send({ type: "snapshot", id: this.ask() });
  }

  close() {
    this.model.off("msg:custom", this.receive);
    if (this.frame !== undefined) cancelAnimationFrame(this.frame);
    this.root.remove();
  }

  ask() {
    return `${this.id}.${(this.requests += 1)}`;
  }

  on(message) {
    if (message.id !== undefined && !String(message.id).startsWith(`${this.id}.`)) return;
    if (message.type === "snapshot") this.open(message);
    else if (message.type === "error") this.fail(message);
    else if (message.type === "record") this.fill(message);
    else if (!this.ready) return; // the snapshot will hold it
    else if (message.type === "block") this.put(message.block);
    else if (message.type === "head") this.head = message.head;
    else if (message.type === "select") this.select(message.seq);
    if (this.ready) this.later();
  }

  open({ timeline, words }) {
    this.ready = true;
    this.words = words;
    this.head = timeline.head;
    this.blocks.clear();
    this.order = [];
    timeline.blocks.forEach((block) => this.put(block));
    const terms = Object.entries(words.terms).flatMap(([term, said]) => [make("dt", {}, term), make("dd", {}, said)]);
    this.glossary.replaceChildren(make("summary", {}, "what these words mean"), make("dl", {}, ...terms));
    this.glossary.hidden = false;
    this.draw();
    this.body.scrollTop = this.body.scrollHeight;
  }

  put(block) {
    if (!this.blocks.has(block.id)) {
      const after = ({ iteration, attempt }) => iteration - block.iteration || attempt - block.attempt;
      let at = this.order.length;
      while (at > 0 && after(this.blocks.get(this.order[at - 1])) > 0) at -= 1;
      this.order.splice(at, 0, block.id);
    }
    this.blocks.set(block.id, block);
  }

  later() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      this.draw();
    });
  }

  // Drawing: only what changed is made anew, so that a long run costs what its newest turn costs.

  draw() {
    const followed = this.body.scrollHeight - this.body.scrollTop - this.body.clientHeight < 24;
    const focus = this.focused();
    this.drawHead();
    const kept = new Map();
    let place = this.body.firstChild;
    for (const item of this.layout()) {
      const held = this.shown.get(item.key);
      const fresh = held && item.of.length === held.of.length && item.of.every((one, at) => one === held.of[at]);
      const element = fresh ? held.element : item.make();
      kept.set(item.key, { element, of: item.of });
      if (element === place) place = place.nextSibling;
      else this.body.insertBefore(element, place);
    }
    while (place?.nextSibling) place.nextSibling.remove();
    place?.remove();
    this.shown = kept;
    if (focus) this.chip(focus)?.focus();
    if (followed) this.body.scrollTop = this.body.scrollHeight;
  }

  drawHead() {
    const { head } = this;
    if (this.drawnHead !== head) {
      this.drawnHead = head;
      this.root.setAttribute("aria-label", `Run ${head.run}`);
      const state = `ab-state${head.alarm ? " ab-alarm" : ""}`;
      this.top.replaceChildren(
        make("b", {}, name(head.run)),
        head.agent ? make("span", { class: "ab-dim" }, name(head.agent)) : "",
        make("span", { class: state, role: "status" }, "● ", ...this.terms(head.headline)),
        make("span", { class: "ab-push" }),
        make("span", { class: "ab-dim" }, ...this.terms(head.detail)),
      );
    }
    const used = new Set();
    for (const block of this.blocks.values()) {
      for (const row of block.rows) for (const chip of row.chips) used.add(chip.state);
    }
    const signs = Object.keys(this.words.states).filter((state) => used.has(state));
    if (this.drawnSigns === signs.join()) return;
    this.drawnSigns = signs.join();
    this.legend.hidden = signs.length === 0;
    this.legend.replaceChildren(
      ...signs.map((state) => {
        const { sign, word, meaning } = this.words.states[state];
        return make("span", { title: meaning }, make("i", { class: `ab-of-${state}` }, sign), ` ${word}`);
      }),
    );
  }

  // What stands in the body: open turns, folded turns, and runs of folded turns as one line.
  layout() {
    const items = [];
    let folded = [];
    const flush = () => {
      const group = folded.length >= GROUP ? `g${folded[0]}` : undefined;
      if (group) items.push(this.groupItem(group, folded));
      if (!group || this.toggled.get(group)) for (const id of folded) items.push(this.turnItem(id, false));
      folded = [];
    };
    const unfolded = this.unfolded();
    for (const id of this.order) {
      if (!unfolded.has(id)) folded.push(id);
      else {
        flush();
        items.push(this.turnItem(id, true));
      }
    }
    flush();
    return items;
  }

  unfolded() {
    const open = new Set(this.order.length <= FULL ? this.order : this.order.slice(-1));
    let incidents = 0;
    for (let at = this.order.length - 1; at >= 0 && incidents < INCIDENTS; at -= 1) {
      if (this.blocks.get(this.order[at]).quiet) continue;
      incidents += 1;
      open.add(this.order[at]);
    }
    for (const [id, said] of this.toggled) open[said ? "add" : "delete"](id);
    return open;
  }

  turnItem(id, open) {
    const block = this.blocks.get(id);
    const record = open && this.record?.block === id ? this.record : undefined;
    return { key: id, of: [block, open, record, record?.text], make: () => this.turn(block, open, record) };
  }

  groupItem(key, ids) {
    const open = Boolean(this.toggled.get(key));
    const [first, last] = [this.blocks.get(ids[0]), this.blocks.get(ids.at(-1))];
    const count = () => make("em", {}, plural(ids.length, "turn"));
    const records = ` folded · record ${first.first}–${last.last}`;
    const label = () => [`turns ${first.iteration}–${last.iteration} · `, count(), records];
    const line = () => make("section", { class: "ab-turn" }, this.toggle(key, open, label()));
    return { key, of: [open, ids.length, last], make: line };
  }

  toggle(key, open, label) {
    const onclick = () => {
      this.toggled.set(key, !open);
      this.draw();
      this.body.querySelector(`[data-toggle="${key}"]`)?.focus();
    };
    const attributes = { class: "ab-toggle", type: "button", "aria-expanded": String(open), "data-toggle": key };
    return make("button", { ...attributes, onclick }, ...label);
  }

  turn(block, open, record) {
    const title = [`${block.title} · `, make("em", {}, block.headline)];
    const line = this.toggle(block.id, open, open ? title : [...title, ` · ${block.line}`]);
    if (!open) return make("section", { class: "ab-turn ab-folded" }, line);
    return make("section", { class: "ab-turn" }, line, this.grid(block), record && this.panel(record));
  }

  grid(block) {
    const half = COLUMNS / 2;
    const all = [...block.columns.keys()];
    const columns = all.length <= COLUMNS ? all : [...all.slice(0, half), null, ...all.slice(-half)];
    const hidden = all.length - columns.length + 1;
    const label = (column) => (column === null ? [`… ${hidden} more …`] : this.terms(block.columns[column].label));
    const header = columns.map((column) => make("th", { class: "ab-pos", scope: "col" }, ...label(column)));
    const body = make("tbody");
    block.rows.forEach((row, number) => {
      if (row.fence) body.append(this.fence(row.fence, columns.length + 2));
      body.append(this.row(block, row, number, columns));
    });
    const head = make("thead", {}, make("tr", {}, make("td"), ...header, make("td")));
    return make("div", { class: "ab-scroll" }, make("table", { class: "ab-grid" }, head, body));
  }

  fence(fence, span) {
    const kind = `ab-fence${fence.closed ? " ab-closed" : ""}`;
    const text = make("span", {}, make("span", {}, ...this.terms(fence.text)));
    return make("tr", {}, make("td", { class: kind, colspan: span }, text));
  }

  row(block, row, number, columns) {
    const who = make("th", { class: `ab-who${row.state === "live" ? " ab-live" : ""}`, scope: "row" });
    who.append(make("b", {}, name(row.holder)), make("small", {}, ...this.terms(row.note)));
    const line = make("tr", {}, who);
    const chips = new Map(row.chips.map((chip) => [chip.column, chip]));
    const end = Math.max(-1, ...chips.keys());
    const shown = columns.findIndex((column) => column !== null && column > end);
    const cells = shown < 0 ? columns : columns.slice(0, shown);
    for (const column of cells) {
      line.append(chips.has(column) ? this.cell(block, chips.get(column), number) : make("td"));
    }
    line.append(this.mark(row.mark, columns.length + 1 - cells.length));
    return line;
  }

  mark(mark, span) {
    if (!mark) return make("td", { colspan: span });
    const kind = mark.kind === "fenced" ? "fence-mark" : mark.kind;
    return make("td", { class: `ab-mark ab-${kind}`, colspan: span }, ...this.terms(mark.text));
  }

  cell(block, chip, row) {
    const word = this.words.states[chip.state] ?? { sign: "", meaning: "" };
    const kind = { model: `${this.words.model_sign} `, step: "step ", question: "question " }[chip.kind] ?? "";
    const children = [kind, make("b", {}, name(chip.name)), chip.declared ? ` ${chip.declared}` : ""];
    children.push(make("small", {}, `${word.sign} ${chip.note}`));
    const seq = chip.seq === undefined ? "" : `Record ${chip.seq}. `;
    const title = `${seq}${word.meaning}${chip.key ? ` Key: ${chip.key}` : ""}`;
    const button = make(
      "button",
      {
        class: "ab-open", type: "button", title, "data-block": block.id, "data-row": row, "data-column": chip.column,
        "aria-expanded": chip.seq === undefined ? undefined : String(this.opened(block, chip, row)),
        onclick: () => this.choose(block, chip, row),
      },
      make("span", {}, ...children),
    );
    return make("td", { class: `ab-chip ab-${chip.state}${chip.cursor ? " ab-cursor" : ""}` }, button);
  }

  // The first use of each term in a text says what it means.
  terms(text) {
    const known = Object.keys(this.words.terms);
    if (known.length === 0) return [text];
    const said = new Set();
    return text.split(new RegExp(`\\b((?:${known.join("|")})\\b|check(?=ed\\b))`)).map((part, at) => {
      if (at % 2 === 0 || said.has(part)) return part;
      said.add(part);
      return make("abbr", { title: this.words.terms[part] }, part);
    });
  }

  // Records: a chip opens the record it stands for.

  choose(block, chip, row) {
    if (chip.seq === undefined) return;
    if (this.opened(block, chip, row)) return this.shut();
    this.show({ block: block.id, row, column: chip.column, seq: chip.seq, other: chip.began });
    this.draw();
    this.chip(this.record)?.focus();
  }

  opened(block, chip, row) {
    return this.record?.block === block.id && this.record.row === row && this.record.column === chip.column;
  }

  shut() {
    const where = this.record;
    this.record = null;
    this.draw();
    this.chip(where)?.focus();
  }

  show(where) {
    this.record = { ...where, request: this.ask(), text: `asking for record ${where.seq}…` };
    this.model.send({ type: "record", id: this.record.request, seq: where.seq });
  }

  select(seq) {
    for (const block of this.blocks.values()) {
      for (const [row, { chips }] of block.rows.entries()) {
        const chip = chips.find((one) => one.seq === seq || one.began === seq);
        if (!chip) continue;
        this.toggled.set(block.id, true);
        this.show({ block: block.id, row, column: chip.column, seq, other: chip.seq === seq ? chip.began : chip.seq });
        this.draw();
        this.chip(this.record)?.scrollIntoView?.({ block: "nearest", inline: "nearest" });
        return;
      }
    }
  }

  fill({ id, record }) {
    if (this.record?.request !== id) return;
    const text = JSON.stringify(record, null, 2);
    const cut = text.length > RECORD_CHARACTERS;
    const rest = cut ? `\n… cut: ${plural(text.length, "character")} in all` : "";
    this.record.text = text.slice(0, RECORD_CHARACTERS) + rest;
  }

  fail({ id, message }) {
    if (this.record?.request === id) this.record.text = message;
    else if (!this.ready) this.top.replaceChildren(make("span", { class: "ab-state ab-alarm" }, `✗ ${message}`));
  }

  panel(record) {
    const bar = make("div", { class: "ab-bar" }, make("b", {}, `record ${record.seq}`));
    if (record.other !== undefined) {
      const onclick = () => {
        this.show({ ...record, seq: record.other, other: record.seq });
        this.draw();
      };
      const word = record.other < record.seq ? "how it was started" : "how it ended";
      bar.append(make("button", { type: "button", onclick }, `${word}: record ${record.other}`));
    }
    bar.append(make("button", { type: "button", onclick: () => this.shut() }, "close"));
    const attributes = { class: "ab-record", role: "region", "aria-label": `record ${record.seq}` };
    return make("div", attributes, bar, make("pre", { tabindex: 0 }, record.text));
  }

  // Keys: arrows walk the chips. Nothing typed here may reach the notebook, whose keys delete cells.

  key(event) {
    if (!event.ctrlKey && !event.metaKey && !event.altKey) event.stopPropagation();
    if (event.key === "Escape" && this.record) return this.shut();
    const here = this.focused();
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!here || !step) return undefined;
    const columns = this.blocks.get(here.block)?.columns.length ?? 0;
    let [row, column] = [here.row + step[0], here.column + step[1]];
    while (step[1] !== 0 && column >= 0 && column < columns && !this.chip({ ...here, row, column })) column += step[1];
    const next = this.chip({ block: here.block, row, column });
    if (next) event.preventDefault();
    return next?.focus();
  }

  focused() {
    const at = this.root.contains(document.activeElement) ? document.activeElement.dataset : undefined;
    return at?.block === undefined ? undefined : { block: at.block, row: Number(at.row), column: Number(at.column) };
  }

  chip({ block, row, column }) {
    return this.body.querySelector(`[data-block="${block}"][data-row="${row}"][data-column="${column}"]`);
  }
}

export default {
  render({ model, el }) {
    const view = new View(model, el);
    return () => view.close();
  },
};
