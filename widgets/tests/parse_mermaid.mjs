// Reads a JSON list of Mermaid texts from standard input and answers, for each, the labels of its nodes as
// Mermaid itself understood them, or the error it was refused with.
import { JSDOM } from "jsdom";

const dom = new JSDOM("<!doctype html><body></body>");
globalThis.window = dom.window;
globalThis.document = dom.window.document;

const { default: mermaid } = await import("mermaid");
mermaid.initialize({ startOnLoad: false, securityLevel: "strict" });

let input = "";
for await (const chunk of process.stdin) input += chunk;

const answers = [];
for (const text of JSON.parse(input)) {
  try {
    const diagram = await mermaid.mermaidAPI.getDiagramFromText(text);
    const nodes = [...diagram.db.getVertices()].map(([id, vertex]) => [id, vertex.text]);
    answers.push({ nodes: Object.fromEntries(nodes), edges: diagram.db.getEdges().length });
  } catch (error) {
    answers.push({ error: String(error.message ?? error) });
  }
}
console.log(JSON.stringify(answers));
