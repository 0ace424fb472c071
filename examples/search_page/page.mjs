// The page: searches as one types, and shows the model's ranking beside BM25's.

import * as ort from "./ort/ort.wasm.min.mjs";
import { Collection } from "./search.mjs";

ort.env.wasm.numThreads = 1; // one query takes milliseconds

const KINDS = ["method", "function", "class", "module"];
const LABELS = { 1: "labeled: helps", 2: "labeled: answers" };
const PAGE = 10;
const $ = (id) => document.getElementById(id);
const inOrder = (values) => [...values.keys()].sort((a, b) => values[b] - values[a] || a - b);

const loading = load();
let latest = null; // the search that was begun last
let shown = PAGE;

async function load() {
  const bytes = async (name) => {
    const response = await fetch(name);
    if (!response.ok) throw new Error(`${name}: ${response.status} ${response.statusText}`);
    return response;
  };
  const [index, model] = await Promise.all([
    bytes("index.json").then((response) => response.json()),
    bytes("model.onnx").then((response) => response.arrayBuffer()),
  ]);
  const session = await ort.InferenceSession.create(new Uint8Array(model));
  const width = index.features.length;
  const rows = new Float64Array(index.nCandidates * width);
  await session.run({ features: new ort.Tensor("float64", rows, [index.nCandidates, width]) }); // the first run is slow
  return { index, session, collection: new Collection(index), bytes: model.byteLength };
}

/** The ranking of a query by the model, its probabilities, and BM25's order. */
export async function search(text) {
  const { index, session, collection } = await loading;
  const start = performance.now();
  const words = collection.words(text);
  const documents = collection.candidates(words);
  const found = performance.now();
  if (!documents.length) return { text, documents, model: [], bm25: [] };
  const features = collection.features(documents, words);
  const computed = performance.now();
  const outputs = await session.run({ features: new ort.Tensor("float64", features, [documents.length, index.features.length]) });
  const end = performance.now();
  const [scores, relevance, confidence] = ["scores", "relevance", "confidence"].map((name) => Array.from(outputs[name].data));
  const byBM25 = new Map(collection.ranking("bm25", "whole", words).map((d, i) => [d, -i]));
  const judged = index.queries.find((query) => query.text === text.trim().toLowerCase());
  const labels = judged && new Map(judged.labels);
  const model = inOrder(scores), bm25 = inOrder(documents.map((d) => byBM25.get(d) ?? -Infinity));
  return {
    text, words: words.map((t) => index.vocabulary[t]), documents, features: Array.from(features), scores, confidence: confidence[0],
    helps: scores.map((_, i) => relevance[2 * i]), answers: scores.map((_, i) => relevance[2 * i + 1]),
    model, bm25, labels, ndcg: labels && [model, bm25].map((order) => ndcg(order.map((i) => labels.get(documents[i]) ?? 0), labels)),
    times: { candidates: found - start, features: computed - found, model: end - computed },
  };
}

/** NDCG@10 of labels in the order of a ranking. */
function ndcg(ranked, labels) {
  const gain = (values) => values.slice(0, 10).reduce((sum, label, i) => sum + (2 ** label - 1) / Math.log2(i + 2), 0);
  return gain(ranked) / gain([...labels.values()].sort((a, b) => b - a));
}

const percent = (p) => (p < 0.005 ? "<1%" : p >= 0.995 ? ">99%" : `${Math.round(100 * p)}%`);

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function track(className, share) {
  const part = element("span", { className });
  part.style.setProperty("--share", share);
  return part;
}

async function show(result) {
  const { index, bytes } = await loading;
  const { documents, times } = result;
  $("status").className = "";
  document.querySelector("main").hidden = !documents.length;
  document.documentElement.dataset.shown = result.text;
  if (!documents.length) {
    $("status").textContent = result.text.trim() ? "No document has any of these words." : "Type what you want to do.";
    return;
  }
  const ms = (t) => `${t.toFixed(1)} ms`;
  const total = times.candidates + times.features + times.model;
  const quality = result.ndcg
    ? ` A test query: NDCG@10 is ${result.ndcg[0].toFixed(2)} for the model and ${result.ndcg[1].toFixed(2)} for BM25.`
    : "";
  $("status").textContent =
    `${documents.length} candidates of ${index.documents.docid.length.toLocaleString("en")} documents in ${ms(total)}: candidates ` +
    `${ms(times.candidates)}, features ${ms(times.features)}, model ${ms(times.model)}.${quality}`;
  const places = new Map(result.bm25.map((i, place) => [i, place + 1]));
  const ranks = new Map(result.model.map((i, place) => [i, place + 1]));
  $("sure").replaceChildren(
    element("strong", { textContent: percent(result.confidence) }),
    " sure that no candidate answers the query better than the first result.",
  );
  document.querySelector(".sureness").style.setProperty("--share", result.confidence);
  $("results").replaceChildren(...result.model.slice(0, shown).map((i, place) => card(index, result, i, place + 1, places.get(i))));
  $("bm25").replaceChildren(
    ...result.bm25.slice(0, PAGE).map((i, place) =>
      element("li", {},
        element("span", { className: "rank", textContent: place + 1 }),
        name(index, documents[i]),
        moved(`model: ${ranks.get(i)}`, place + 1 - ranks.get(i)))),
  );
  $("more").hidden = shown >= documents.length;
  $("facts").textContent =
    `The documents are those of Python ${index.python}. On ${index.queries.length} test queries, the mean NDCG@10 is ` +
    `${index.quality.model.toFixed(3)} for the model, of ${Math.round(bytes / 1000)} kB, and ${index.quality.bm25.toFixed(3)} for BM25.`;
}

/** The name of a document, which may be broken after dots and underscores. */
function name(index, d) {
  const pieces = index.documents.docid[d].split(/(?<=[._])/);
  return element("span", { className: "name" }, ...pieces.flatMap((piece) => [piece, element("wbr")]));
}

/** Where a document stands in the other ranking; up or down says whether the model moved it. */
function moved(text, up) {
  const arrow = up ? element("span", { className: up > 0 ? "up" : "down", textContent: up > 0 ? ` ↑${up}` : ` ↓${-up}` }) : "";
  return element("span", { className: "place" }, text, arrow);
}

function card(index, result, i, rank, place) {
  const d = result.documents[i], label = result.labels?.get(d);
  const bar = element("div", { className: "track" }, track("helps", result.helps[i]), track("answers", result.answers[i]));
  bar.setAttribute("aria-hidden", "true");
  return element("li", {},
    element("span", { className: "rank", textContent: rank }),
    element("div", {},
      name(index, d),
      element("span", { className: "kind", textContent: KINDS[index.documents.kind[d]] }),
      label ? element("span", { className: "label", textContent: LABELS[label] }) : ""),
    element("p", { className: "summary", textContent: index.documents.summary[d] }),
    moved(`BM25: ${place}`, place - rank),
    element("div", { className: "chance" },
      element("p", { className: "percent" },
        element("span", {}, "helps ", element("strong", { textContent: percent(result.helps[i]) })),
        element("span", {}, `answers ${percent(result.answers[i])}`)),
      bar));
}

async function update({ more = false } = {}) {
  const text = $("query").value;
  shown = more ? shown + PAGE : PAGE;
  const mine = (latest = search(text));
  history.replaceState(null, "", text ? `#${new URLSearchParams({ q: text })}` : location.pathname);
  const result = await mine;
  if (mine === latest) await show(result); // else there is newer text
}

function failed(error) {
  $("status").className = "failed";
  $("status").textContent = `The search does not work: ${error.message}. The page must come from a web server, not from a file.`;
}

async function begin() {
  const { index } = await loading;
  $("n-documents").textContent = `${index.documents.docid.length.toLocaleString("en")}`;
  $("queries").append(...index.queries.map(({ text }) => element("option", { value: text })));
  const examples = [...index.queries].sort((a, b) => a.text.length - b.text.length).slice(0, 6);
  $("tries").append(...examples.map(({ text }) => element("button", { type: "button", textContent: text, onclick: () => choose(text) })));
  $("query").value = new URLSearchParams(location.hash.slice(1)).get("q") ?? examples[0].text;
  $("query").addEventListener("input", () => update().catch(failed));
  $("form").addEventListener("submit", (event) => (event.preventDefault(), update().catch(failed)));
  $("more").addEventListener("click", () => update({ more: true }).catch(failed));
  await update();
  document.documentElement.dataset.ready = "";
}

function choose(text) {
  $("query").value = text;
  update().catch(failed);
}

begin().catch(failed);
