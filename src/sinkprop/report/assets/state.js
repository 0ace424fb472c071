// The data, the selections on the page, and the part of the address after # that stores them.

const REPORT = JSON.parse(document.getElementById("report-data").textContent);
const METHODS = REPORT.methods ?? [];
const METRICS = REPORT.metrics ?? [];
const DATASETS = REPORT.datasets ?? [];
const MAIN = REPORT.main ?? METRICS[0];
const WIDEST = 3; // the width slider goes from 2^-3 to 2^3 times sigma

// section: the section of the address. a, b: the two compared methods. query: index among the data set's
// queries. document: index among the query's documents. width: log2 of the multiple of sigma. all: whether
// all ranks are shown, not only the first.
const state = {
  section: null,
  data: 0,
  a: null,
  b: null,
  metric: MAIN,
  query: 0,
  document: null,
  width: 0,
  all: false,
  theme: "auto",
};

let watchers = [];

function watch(keys, update) {
  watchers.push({ keys, update });
}

function change(values) {
  const changed = Object.keys(values).filter((key) => state[key] !== values[key]);
  Object.assign(state, values);
  writeAddress();
  for (const { keys, update } of [...watchers]) {
    if (keys.some((key) => changed.includes(key))) update();
  }
}

function dataSet() {
  return DATASETS[state.data];
}

function methodNames(d = dataSet()) {
  return METHODS.map((method) => method.name).filter((name) => d.means?.[name]);
}

function methodAbout(name) {
  return METHODS.find((method) => method.name === name);
}

// The method with the highest mean of the main metric, among the given methods.
function leader(d, names = methodNames(d)) {
  return argmax(names, (name) => d.means[name]?.[MAIN]);
}

// The two methods shown first: our best one, and the method that it is compared with.
function firstPair(d) {
  const names = methodNames(d);
  const ours = names.filter((name) => methodAbout(name).ours);
  const a = leader(d, ours) ?? leader(d) ?? names[0] ?? null;
  const others = names.filter((name) => name !== a);
  const b = others.includes(REPORT.against) ? REPORT.against : (leader(d, others) ?? others[0] ?? a);
  return { a, b };
}

// The query shown first: among those with at least 10 documents and a relevant one, the query whose difference
// between the two methods is closest to the mean difference.
function firstQuery(d, { a, b }) {
  const explored = (d.explorer?.queries ?? []).map((own) => own.query);
  const long = explored.filter((i) => d.queries[i].documents >= 10 && d.queries[i].relevant > 0);
  const gap = (i) => (valueOf(d, a, MAIN, i) ?? NaN) - (valueOf(d, b, MAIN, i) ?? NaN);
  const typical = mean(long.map(gap));
  return argmax(long, (i) => -Math.abs(gap(i) - typical)) ?? long[0] ?? explored[0] ?? 0;
}

function queryText(d, i) {
  const query = d.queries[i];
  return query.name ? `${query.name} (${query.id})` : `Query ${query.id}`;
}

function valueOf(d, method, metric, i) {
  return d.per_query?.[method]?.[metric]?.[i] ?? null;
}

// Metrics that have values per query.
function queryMetrics(d) {
  return METRICS.filter((metric) => methodNames(d).some((name) => d.per_query?.[name]?.[metric]));
}

let written = null; // the timer of a change of the address

// Delayed, and once for many changes, since browsers refuse an address that changes too often.
function writeAddress() {
  written ??= setTimeout(() => {
    written = null;
    history.replaceState(null, "", `#${address()}`);
  }, 250);
}

function address() {
  const d = dataSet();
  const words = new URLSearchParams();
  if (state.section) words.set("section", state.section);
  if (DATASETS.length > 1) words.set("data", d.name);
  if (state.a !== null) words.set("a", state.a);
  if (state.b !== null) words.set("b", state.b);
  if (state.metric !== MAIN) words.set("metric", state.metric);
  if (d?.queries?.[state.query]) words.set("query", d.queries[state.query].id);
  if (state.document !== null) words.set("document", state.document + 1);
  if (state.width) words.set("width", state.width);
  if (state.all) words.set("all", "1");
  if (state.theme !== "auto") words.set("theme", state.theme);
  return words;
}

// The state that an address describes; settings that are missing or invalid get their initial values.
function readAddress(hash) {
  const words = new URLSearchParams(hash.includes("=") ? hash : "");
  const data = Math.max(
    0,
    DATASETS.findIndex((d) => d.name === words.get("data")),
  );
  const d = DATASETS[data];
  const known = (name) => (methodNames(d).includes(name) ? name : null);
  const pair = firstPair(d);
  const explored = d.explorer?.queries ?? [];
  const query = (d.queries ?? []).findIndex((q) => String(q.id) === words.get("query"));
  const wanted = explored.find((q) => q.query === query);
  const place = Number(words.get("document")) - 1;
  const width = Number(words.get("width") ?? 0);
  return {
    section: hash && !hash.includes("=") ? hash : words.get("section"),
    data,
    a: known(words.get("a")) ?? pair.a,
    b: known(words.get("b")) ?? pair.b,
    metric: METRICS.includes(words.get("metric")) ? words.get("metric") : MAIN,
    query: wanted ? query : firstQuery(d, pair),
    document: wanted && Number.isInteger(place) && place >= 0 && place < wanted.labels.length ? place : null,
    width: Math.abs(width) <= WIDEST ? width : 0,
    all: words.get("all") === "1",
    theme: ["light", "dark"].includes(words.get("theme")) ? words.get("theme") : "auto",
  };
}
