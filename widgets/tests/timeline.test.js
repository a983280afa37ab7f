import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { afterEach, beforeEach, test } from "node:test";
import { JSDOM } from "jsdom";

const read = (name) => JSON.parse(readFileSync(new URL(`./${name}.json`, import.meta.url), "utf8"));

let timeline;
let dom;

beforeEach(async () => {
  dom = new JSDOM("<!doctype html><body></body>", { pretendToBeVisual: true });
  for (const name of ["window", "document", "requestAnimationFrame", "cancelAnimationFrame"]) globalThis[name] = dom.window[name];
  globalThis.window = dom.window;
  ({ default: timeline } = await import("../timeline.js"));
});

afterEach(() => dom.window.close());

// Stands where anywidget's model stands: keeps what is sent, hands out what the kernel would send.
class Model {
  sent = [];
  heard = new Set();
  on = (event, callback) => this.heard.add(callback);
  off = (event, callback) => this.heard.delete(callback);
  send = (message) => this.sent.push(message);
  tell = (message) => [...this.heard].forEach((callback) => callback(structuredClone(message)));
  last = (type) => this.sent.filter((message) => message.type === type).at(-1);
}

function open(snapshot, model = new Model()) {
  const el = document.createElement("div");
  document.body.append(el);
  const close = timeline.render({ model, el });
  if (snapshot) model.tell({ ...snapshot, id: model.last("snapshot").id });
  return { model, el, close };
}

const drawn = () => new Promise((resolve) => requestAnimationFrame(() => resolve()));
const chips = (el, turn, row) => [...el.querySelectorAll(`[data-block="${turn}"][data-row="${row}"]`)].map((chip) => chip.textContent);
const press = (el, key, more = {}) => el.dispatchEvent(new dom.window.KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more }));

function quiet(iteration, extra = {}) {
  const first = iteration * 5 + 1;
  const chip = (column, name, seq) => ({ column, kind: "tool", name, state: "ran", note: "ran · 1 ms", seq });
  return {
    id: `${iteration}.1`, iteration, attempt: 1, title: `turn ${iteration}`, headline: "committed", line: "a → b → ✓ commit",
    quiet: true, outcome: "committed", first, last: first + 4,
    columns: [{ label: "position 0", position: 0 }, { label: "position 1", position: 1 }],
    rows: [{
      claim: "c", holder: "kernel 1", state: "done", note: `claim c · record ${first}`, seq: first,
      chips: [chip(0, "a", first + 1), chip(1, "b", first + 3)],
      mark: { column: 2, kind: "commit", text: `✓ commit · record ${first + 4}`, seq: first + 4 },
    }],
    ...extra,
  };
}

function long(count, extra) {
  const crash = read("crash");
  const { quiet: _, ...incident } = quiet(0);
  const blocks = Array.from({ length: count }, (_, at) => (extra?.(at) ? { ...incident, ...extra(at), id: `${at}.1`, iteration: at, title: `turn ${at}` } : quiet(at)));
  return { ...crash, timeline: { head: crash.timeline.head, blocks } };
}

test("a view asks for a snapshot when it renders and shows it", () => {
  const { model, el } = open(read("crash"));
  assert.equal(model.sent.length, 1);
  assert.deepEqual(chips(el, "1.1", 1), [
    "◆ model↺ replayed · 0 requests",
    "get_invoice safe↺ replayed",
    "refund unsafe⚡ may have happened: not run again",
    "◆ model⋯ running now, first live call",
  ]);
  assert.match(el.querySelector(".ab-head").textContent, /running · replayed 0–2, now live at position 3/);
  assert.match(el.querySelector(".ab-fence").textContent, /kernel 4121 can write nothing more/);
  assert.equal(el.querySelectorAll(".ab-cursor").length, 1);
});

test("a replayed call stands under the one that ran", () => {
  const { el } = open(read("crash"));
  const rows = [...el.querySelectorAll(".ab-turn:last-child tbody tr")].filter((row) => row.querySelector("th"));
  const columns = rows.map((row) => [...row.children].findIndex((cell) => cell.textContent.includes("get_invoice")));
  assert.equal(columns[0], columns[1]);
});

test("every state has a sign and a word, and the legend holds those in use", () => {
  const { el } = open(read("crash"));
  const legend = [...el.querySelectorAll(".ab-legend > span")].map((item) => item.textContent);
  assert.deepEqual(legend, ["■ ran", "↺ replayed from the journal", "⚡ may have happened: not run again", "? started, no result", "⋯ running"]);
});

test("terms are explained where they stand, and all of them at the foot", () => {
  const { el } = open(read("crash"));
  const titles = new Set([...el.querySelectorAll("abbr")].map((term) => term.textContent));
  for (const term of ["claim", "record", "commit", "fence", "position", "check"]) assert.ok(titles.has(term), term);
  assert.ok(el.querySelectorAll(".ab-words dt").length >= 6);
});

test("what models and tools chose reaches the page as text only", () => {
  const attack = '<img src=x onerror="alert(1)"><script>1</script>';
  const snapshot = read("crash");
  snapshot.timeline.head.run = snapshot.timeline.head.agent = snapshot.timeline.head.headline = attack;
  for (const block of snapshot.timeline.blocks) {
    block.headline = block.line = block.title = attack;
    for (const row of block.rows) {
      row.holder = row.note = attack;
      if (row.fence) row.fence.text = attack;
      if (row.mark) row.mark.text = attack;
      for (const chip of row.chips) chip.name = chip.note = chip.key = attack;
    }
  }
  const { model, el } = open(snapshot);
  el.querySelector(".ab-open").click();
  model.tell({ type: "record", id: model.last("record").id, seq: 2, record: { text: attack } });
  return drawn().then(() => {
    assert.equal(el.querySelectorAll("img, script").length, 0);
    assert.ok(el.querySelector("pre").textContent.includes("<script>1</script>"));
  });
});

test("a block message replaces that block alone", async () => {
  const { model, el } = open(read("crash"));
  const [before] = el.querySelectorAll(".ab-turn");
  const block = structuredClone(read("crash").timeline.blocks[1]);
  block.headline = "final answer";
  model.tell({ type: "block", block });
  await drawn();
  const [first, second] = el.querySelectorAll(".ab-turn");
  assert.equal(first, before);
  assert.match(second.textContent, /final answer/);
});

test("a new block is put in its order, also if it comes late", async () => {
  const { model, el } = open(read("attempts"));
  model.tell({ type: "block", block: quiet(2) });
  model.tell({ type: "block", block: quiet(1) });
  await drawn();
  const titles = [...el.querySelectorAll("[data-toggle]")].map((button) => button.dataset.toggle);
  assert.deepEqual(titles, ["0.1", "0.2", "1.1", "2.1"]);
});

test("a head message replaces the head", async () => {
  const { model, el } = open(read("crash"));
  model.tell({ type: "head", head: { run: "order-42", status: "completed", headline: "completed", detail: "turn 1", alarm: false } });
  await drawn();
  assert.match(el.querySelector("[role=status]").textContent, /completed/);
});

test("changes that come before the snapshot are left to the snapshot", async () => {
  const { model, el } = open(undefined);
  model.tell({ type: "block", block: quiet(0) });
  model.tell({ type: "select", seq: 2 });
  await drawn();
  assert.equal(el.querySelectorAll(".ab-turn").length, 0);
  assert.equal(model.last("record"), undefined);
});

test("several views of one model each get their own answers", async () => {
  const model = new Model();
  const one = open(read("crash"), model);
  const two = open(undefined, model);
  assert.match(two.el.textContent, /asking for the timeline/);
  model.tell({ ...read("attempts"), id: model.last("snapshot").id });
  assert.equal(chips(one.el, "1.1", 0).length, 3);
  assert.equal(chips(two.el, "0.2", 0).length, 4);
  model.tell({ type: "block", block: quiet(7) });
  await drawn();
  for (const view of [one, two]) assert.equal(chips(view.el, "7.1", 0).length, 2);
});

test("a chip opens the record it stands for, and closes it again", async () => {
  const { model, el } = open(read("crash"));
  el.querySelector('[data-block="1.1"][data-row="1"][data-column="2"]').click();
  const asked = model.last("record");
  assert.equal(asked.seq, 12);
  assert.match(el.querySelector("pre").textContent, /asking for record 12/);
  model.tell({ type: "record", id: asked.id, seq: 12, record: { kind: "tool.result", interrupted: { partial: [] } } });
  await drawn();
  assert.equal(el.querySelector("pre").textContent, JSON.stringify({ kind: "tool.result", interrupted: { partial: [] } }, null, 2));
  assert.equal(document.activeElement.getAttribute("aria-expanded"), "true");
  el.querySelector('[data-block="1.1"][data-row="1"][data-column="2"]').click();
  assert.equal(el.querySelector("pre"), null);
});

test("the record that started a call is one step away", () => {
  const { model, el } = open(read("crash"));
  el.querySelector('[data-block="1.1"][data-row="1"][data-column="2"]').click();
  const other = [...el.querySelectorAll(".ab-bar button")].find((button) => button.textContent.includes("how it was started"));
  other.click();
  assert.equal(model.last("record").seq, 10);
});

test("a huge record is cut, and says so", async () => {
  const { model, el } = open(read("crash"));
  el.querySelector(".ab-open").click();
  const asked = model.last("record");
  model.tell({ type: "record", id: asked.id, seq: asked.seq, record: { text: "x".repeat(300_000) } });
  await drawn();
  assert.ok(el.querySelector("pre").textContent.length < 101_000);
  assert.match(el.querySelector("pre").textContent, /… cut: 300,\d+ characters in all$/);
});

test("closing a record gives the focus back to its chip", () => {
  const { el } = open(read("crash"));
  el.querySelector('[data-block="1.1"][data-row="0"][data-column="1"]').click();
  const button = [...el.querySelectorAll(".ab-bar button")].at(-1);
  button.focus();
  button.click();
  assert.equal(document.activeElement.dataset.column, "1");
});

test("an answer to another question does not fill an open record", async () => {
  const { model, el } = open(read("crash"));
  el.querySelector('[data-block="1.1"][data-row="0"][data-column="0"]').click();
  const first = model.last("record");
  el.querySelector('[data-block="1.1"][data-row="0"][data-column="1"]').click();
  model.tell({ type: "record", id: first.id, seq: first.seq, record: { late: true } });
  await drawn();
  assert.match(el.querySelector("pre").textContent, /asking for record/);
});

test("errors are shown where the answer was awaited", async () => {
  const { model, el } = open(read("crash"));
  el.querySelector(".ab-open").click();
  model.tell({ type: "error", id: model.last("record").id, message: "no record 2 here" });
  await drawn();
  assert.equal(el.querySelector("pre").textContent, "no record 2 here");

  const failed = open(undefined);
  failed.model.tell({ type: "error", id: failed.model.last("snapshot").id, message: "RunNotFound: there is no run 'x'" });
  assert.match(failed.el.textContent, /RunNotFound/);
});

test("select opens the turn of a record and marks its chip", async () => {
  const { model, el } = open(long(40));
  assert.equal(el.querySelector('[data-block="5.1"]'), null);
  model.tell({ type: "select", seq: 27 });
  await drawn();
  assert.equal(el.querySelector('[data-block="5.1"][data-column="0"]').getAttribute("aria-expanded"), "true");
  assert.equal(model.last("record").seq, 27);
});

test("turns without incident fold, incidents and the newest turn do not", () => {
  const { el } = open(long(30, (at) => (at === 10 ? { headline: "taken over by kernel 2" } : undefined)));
  const lines = [...el.querySelectorAll("[data-toggle]")].map((button) => button.textContent);
  assert.deepEqual(lines.map((line) => line.split(" · ")[0]), [
    ...Array.from({ length: 10 }, (_, at) => `turn ${at}`), "turn 10", "turns 11–28", "turn 29",
  ]);
  assert.equal(el.querySelectorAll("table").length, 2);
});

test("what the reader unfolded stays so while the run goes on", async () => {
  const { model, el } = open(long(6));
  el.querySelector('[data-toggle="2.1"]').click();
  assert.equal(el.querySelector('[data-toggle="2.1"]').getAttribute("aria-expanded"), "true");
  assert.equal(document.activeElement.dataset.toggle, "2.1");
  model.tell({ type: "block", block: quiet(6) });
  await drawn();
  assert.equal(el.querySelector('[data-toggle="2.1"]').getAttribute("aria-expanded"), "true");
  assert.equal(el.querySelector('[data-toggle="5.1"]').getAttribute("aria-expanded"), "false");
});

test("a group of folded turns unfolds to their lines", () => {
  const { el } = open(long(100));
  assert.equal(el.querySelectorAll("[data-toggle]").length, 2);
  el.querySelector('[data-toggle="g0.1"]').click();
  assert.equal(el.querySelectorAll("[data-toggle]").length, 101);
});

test("a very long turn leaves out its middle", () => {
  const columns = Array.from({ length: 300 }, (_, at) => ({ label: `position ${at}`, position: at }));
  const wide = quiet(0, { columns });
  wide.rows[0].chips = columns.map((_, at) => ({ column: at, kind: "tool", name: `t${at}`, state: "ran", note: "ran", seq: at + 2 }));
  const crash = read("crash");
  const { el } = open({ ...crash, timeline: { head: crash.timeline.head, blocks: [wide] } });
  assert.equal(el.querySelectorAll(".ab-open").length, 64);
  assert.match(el.textContent, /… 236 more …/);
});

test("arrows walk the chips, Escape closes the record", () => {
  const { el } = open(read("crash"));
  const at = (row, column) => el.querySelector(`[data-block="1.1"][data-row="${row}"][data-column="${column}"]`);
  at(0, 0).focus();
  press(at(0, 0), "ArrowRight");
  assert.equal(document.activeElement, at(0, 1));
  press(at(0, 1), "ArrowDown");
  assert.equal(document.activeElement, at(1, 1));
  press(at(1, 1), "ArrowUp");
  press(at(0, 1), "ArrowLeft");
  press(at(0, 0), "ArrowLeft");
  assert.equal(document.activeElement, at(0, 0));
  at(0, 0).click();
  press(at(0, 0), "Escape");
  assert.equal(el.querySelector("pre"), null);
  assert.equal(document.activeElement, at(0, 0));
});

test("arrows step over places where a holder has no chip", () => {
  const crash = read("crash");
  const gap = quiet(0, { columns: [0, 1, 2].map((position) => ({ label: `position ${position}`, position })) });
  gap.rows[0].chips[1].column = 2;
  const { el } = open({ ...crash, timeline: { head: crash.timeline.head, blocks: [gap] } });
  const [first, last] = el.querySelectorAll(".ab-open");
  first.focus();
  press(first, "ArrowRight");
  assert.equal(document.activeElement, last);
});

test("a reader at the end is kept there, one further up is left alone", async () => {
  const { model, el } = open(read("crash"));
  const body = el.querySelector(".ab-body");
  let height = 1000;
  Object.defineProperties(body, { scrollHeight: { get: () => height }, clientHeight: { get: () => 100 } });
  body.scrollTop = 900;
  model.tell({ type: "block", block: quiet(2) });
  await drawn();
  assert.equal(body.scrollTop, 1000);
  body.scrollTop = 300;
  height = 1200;
  model.tell({ type: "block", block: quiet(3) });
  await drawn();
  assert.equal(body.scrollTop, 300);
});

test("keys do not reach the notebook, except those with a modifier", () => {
  const { el } = open(read("crash"));
  const reached = [];
  document.body.addEventListener("keydown", (event) => reached.push(event.key));
  const chip = el.querySelector(".ab-open");
  for (const key of ["a", "b", "m", "d", "d", "x", "Enter"]) press(chip, key);
  press(chip, "s", { ctrlKey: true });
  assert.deepEqual(reached, ["s"]);
});

test("focus survives a redrawing of its block", async () => {
  const { model, el } = open(read("crash"));
  el.querySelector('[data-block="1.1"][data-row="1"][data-column="1"]').focus();
  const block = structuredClone(read("crash").timeline.blocks[1]);
  block.headline = "final answer";
  model.tell({ type: "block", block });
  await drawn();
  const { block: id, row, column } = document.activeElement.dataset;
  assert.deepEqual([id, row, column], ["1.1", "1", "1"]);
});

test("everything that can be clicked is a button with a label", () => {
  const { el } = open(read("crash"));
  for (const button of el.querySelectorAll("button")) {
    assert.equal(button.type, "button");
    assert.ok(button.textContent.trim());
  }
  assert.ok(el.querySelectorAll("[onclick]").length === 0);
});

test("render returns its clean-up", async () => {
  const { model, el, close } = open(read("crash"));
  const root = el.firstChild;
  model.tell({ type: "block", block: quiet(9) });
  close();
  assert.equal(model.heard.size, 0);
  assert.equal(el.children.length, 0);
  await drawn();
  assert.equal(el.children.length, 0);
  assert.equal(root.querySelector('[data-toggle="9.1"]'), null);
});

test("ten thousand records open in under two seconds, quiet or not", () => {
  for (const extra of [undefined, (at) => ({ headline: `taken over ${at}` })]) {
    const snapshot = long(2000, extra);
    const began = performance.now();
    const { el, close } = open(snapshot);
    assert.ok(performance.now() - began < 2000);
    assert.ok(el.querySelectorAll("*").length < 4000);
    close();
  }
});

test("one more block of a long run is drawn without drawing the others anew", async () => {
  const { model, el } = open(long(2000));
  const kept = el.querySelector('[data-toggle="1999.1"]');
  model.tell({ type: "block", block: quiet(1999, { headline: "still committed" }) });
  await drawn();
  assert.notEqual(el.querySelector('[data-toggle="1999.1"]'), kept);
  const group = el.querySelector('[data-toggle^="g"]');
  model.tell({ type: "block", block: quiet(1999, { headline: "and again" }) });
  await drawn();
  assert.equal(el.querySelector('[data-toggle^="g"]'), group);
});
