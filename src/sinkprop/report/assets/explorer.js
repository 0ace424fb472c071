// The ranking explorer: one query's documents as ranked by two methods, with their rank distributions.

const FIRST = 100; // ranks shown unless the user asks for all
const DRAWN = 500; // ranks of a heat map or a strip at most
const SIDES = ["a", "b"];

function explorer(d) {
  const node = section("explorer", "Ranking explorer");
  const explored = d.explorer?.queries ?? [];
  if (!explored.length) {
    put(
      node,
      empty(
        "This report has no rankings of single queries: it was made without them, or from an older file.",
      ),
    );
    return node;
  }
  if (!isExplored(d, state.query)) state.query = explored[0].query;
  const view = explorerView(d);
  const probable = hasDistributions(d);
  put(
    node,
    el(
      "p",
      { class: "prose" },
      explorerWords(view.sides.length > 1, probable),
      d.explorer.note && ` ${d.explorer.note}`,
    ),
    queryPicker(d),
    el("div", { class: "controls" }, pairControls(d), probable && widthControl(d)),
    view.title,
    el(
      "div",
      { class: view.sides.length > 1 ? "pair lists" : "lists single" },
      view.sides.map((side) => side.node),
    ),
    view.more,
    view.summary,
    explanationTables(d, view),
    probable && documentFigure(d, view),
    probable && matrixFigures(d, view),
  );
  watch(["a", "b", "metric", "query", "all"], () => view.update());
  watch(["width"], () => view.reshape());
  watch(["document"], () => view.highlight());
  watch(["colors"], () => view.paint());
  view.update();
  requestAnimationFrame(() => view.highlight()); // once the lists are on the page and can be scrolled
  return node;
}

function explorerWords(pair, probable) {
  const how = pair
    ? "Select a query to see how two methods rank its documents"
    : "Select a query to see how its documents are ranked";
  const lists = "The left and right arrow keys switch between the lists; up and down move along a list.";
  if (!probable) return pair ? `${how}. ${lists}` : `${how}.`;
  const where = pair ? "both rankings and in the matrices below" : "the matrix below";
  return (
    `${how}, and the probability of each rank. Point at a document, or move to it with the arrow keys, to ` +
    `highlight it in ${where}.${pair ? ` ${lists}` : ""}`
  );
}

function exploredQuery(d) {
  return d.explorer.queries.find((own) => own.query === state.query);
}

// State shared by the two lists, the matrices and the document's chart: the distributions that are shown.
function explorerView(d) {
  const names = methodNames(d);
  const sides = (names.length > 1 ? SIDES : SIDES.slice(0, 1)).map((key) => rankedList(d, key));
  const title = el("h3", { class: "query-title", "aria-live": "polite" });
  const summary = el("p", { class: "verdict document", "aria-live": "polite" });
  const more = el("button", { type: "button", class: "more", onclick: () => change({ all: !state.all }) });
  const view = { sides, title, summary, more, charts: [], numbers: [] };
  view.update = () => {
    const query = exploredQuery(d);
    const n = query.labels.length;
    title.textContent = `${queryText(d, state.query)}, ${count(n, "document")}`;
    more.hidden = n <= FIRST;
    more.textContent = state.all ? `Show the first ${FIRST} ranks only` : `Show all ${whole(n)} ranks`;
    for (const side of sides) side.read(query);
    for (const side of sides)
      side.fill(
        query,
        sides.find((other) => other !== side),
      );
    view.reshape();
  };
  view.reshape = () => {
    const query = exploredQuery(d);
    for (const side of sides) side.spread(query);
    for (const own of [...view.charts, ...view.numbers]) own.update();
    view.highlight();
  };
  // Charts are updated once per frame, however fast the selection moves.
  let waiting = false;
  const mark = () => {
    waiting = false;
    for (const own of view.charts) if (own.node.isConnected) own.highlight();
  };
  view.chosen = () => state.document ?? sides[0].placed[0] ?? null; // the first until one is selected
  view.paint = () => sides.forEach((side) => side.paint());
  view.highlight = () => {
    sides.forEach((side) => side.highlight(view.chosen()));
    summary.textContent = documentWords(d, sides, view.chosen());
    if (!waiting) requestAnimationFrame(mark);
    waiting = true;
  };
  return view;
}

// A method's rank distribution for a query, at the selected width; null if there is none.
function distributionOf(d, method, query) {
  const scores = query.scores[method];
  if (!scores) return null;
  if (query.matrices?.[method])
    return storedDistribution(scores, query.matrices[method], query.peaks[method]);
  const settings = settingsOf(d, method);
  if (settings?.mixture) return calibratedDistribution(scores, settings.mixture);
  if (!settings || !(settings.sigma > 0)) return null;
  return rankDistribution(scores, { ...settings, sigma: settings.sigma * 2 ** state.width });
}

function settingsOf(d, method) {
  return d.explorer.distributions?.[method]?.[d.queries[state.query].fold] ?? null;
}

function documentName(query, j) {
  const name = query.docids?.[j];
  return name === null || name === undefined ? `document ${j + 1}` : String(name);
}

function documentWords(d, sides, j) {
  const query = exploredQuery(d);
  if (j === null) return "";
  const parts = sides
    .filter((side) => side.place[j] !== undefined)
    .map((side) => {
      const i = side.place[j];
      const own = `${side.method()} puts it at rank ${i + 1}`;
      if (!side.distribution) return own;
      const { expected, likely, top } = side.distribution.describe(i);
      const range =
        likely[0] === likely[1] ? `likely rank ${likely[0]}` : `likely ranks ${likely[0]} to ${likely[1]}`;
      const average = `expected rank ${expected.toFixed(1)}`;
      return `${own} (${range}; ${average}; in the top 10 with probability ${percent(top)})`;
    });
  return `${documentName(query, j)}, label ${query.labels[j]}: ${parts.join("; ")}.`;
}

// A list of the queries, with a search field and a choice of the order.
function queryPicker(d) {
  const explored = d.explorer.queries.map((own) => own.query);
  const id = newId("queries");
  const view = { text: "", order: "data" };
  const list = el("select", {
    size: 6,
    id,
    "aria-label": "Queries",
    onchange: () => change({ query: Number(list.value), document: null }),
  });
  const field = el("input", {
    type: "search",
    placeholder: "Search queries",
    "aria-label": "Search queries",
    "aria-controls": id,
  });
  const found = el("p", { class: "note", "aria-live": "polite" });
  const text = (i) => {
    const own = d.queries[i];
    return `${queryText(d, i)} \u00b7 ${own.relevant} of ${own.documents} relevant`;
  };
  const values = (i) => [valueOf(d, state.a, state.metric, i), valueOf(d, state.b, state.metric, i)];
  const orders = {
    data: () => 0,
    difference: (i) => -((values(i)[0] ?? 0) - (values(i)[1] ?? 0)),
    worst: (i) => values(i)[0] ?? 2,
    longest: (i) => -d.queries[i].documents,
  };
  const show = () => {
    const words = view.text.toLowerCase().split(/\s+/).filter(Boolean);
    const key = orders[view.order];
    const shown = explored.filter((i) => words.every((word) => text(i).toLowerCase().includes(word)));
    shown.sort((p, q) => key(p) - key(q) || p - q);
    list.replaceChildren(
      ...shown.map((i) => el("option", { value: i, selected: i === state.query }, text(i))),
    );
    found.textContent =
      shown.length === explored.length
        ? count(explored.length, "query", "queries")
        : `${shown.length} of ${explored.length} queries`;
  };
  field.addEventListener("input", () => {
    view.text = field.value;
    show();
  });
  const step = (by) => {
    const options = [...list.options].map((option) => Number(option.value));
    const at = options.indexOf(state.query);
    const next = options[Math.min(options.length - 1, Math.max(0, at + by))];
    if (next !== undefined) change({ query: next, document: null });
  };
  field.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    step(by);
  });
  const two = methodNames(d).length > 1;
  const order = choice(
    "Order",
    [
      ["data", "as in the data"],
      two && ["difference", "largest lead of the first method"],
      ["worst", two ? "lowest metric of the first method" : "lowest metric"],
      ["longest", "longest list"],
    ].filter(Boolean),
    "data",
    (value) => {
      view.order = value;
      show();
    },
  );
  watch(["query"], () => {
    list.value = String(state.query);
  });
  watch(["a", "b", "metric"], show);
  show();
  return el(
    "div",
    { class: "picker" },
    el("div", {}, field, list),
    el(
      "div",
      {},
      order.node,
      found,
      el(
        "div",
        { class: "buttons" },
        el("button", { type: "button", "aria-label": "Previous query", onclick: () => step(-1) }, "Previous"),
        el("button", { type: "button", "aria-label": "Next query", onclick: () => step(1) }, "Next"),
      ),
    ),
  );
}

function widthControl(d) {
  const id = newId("width");
  const output = el("output", { for: id });
  const range = el("input", { type: "range", id, min: -WIDEST, max: WIDEST, step: 0.25, value: state.width });
  const words = () =>
    state.width === 0 ? "original width" : `${short(2 ** state.width)} times as wide`;
  const note = el("p", { class: "note wide" });
  const show = () => {
    range.value = state.width;
    output.textContent = words();
    range.setAttribute("aria-valuetext", words());
    const own = [...new Set([state.a, state.b])].filter((name) => name !== null);
    note.replaceChildren(
      ...own.map((name) => el("span", {}, strong(name), ` ${distributionWords(d, name)} `)),
    );
    const query = exploredQuery(d);
    range.disabled = own.every((name) => query.matrices?.[name] || !(settingsOf(d, name)?.sigma > 0));
  };
  let waiting = false;
  range.addEventListener("input", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      change({ width: Number(range.value) });
    });
  });
  watch(["width", "a", "b", "query"], show);
  show();
  return [
    el(
      "div",
      { class: "control slider" },
      el("label", { for: id }, "Width of the distribution"),
      range,
      output,
    ),
    note,
  ];
}

function distributionWords(d, name) {
  const settings = settingsOf(d, name);
  const stored = exploredQuery(d).matrices?.[name];
  if (!settings && !stored) return "has no rank distribution.";
  const explanation = settings?.explanation ? ` ${settings.explanation}` : "";
  if (settings?.mixture)
    return `is calibrated on ${count(settings.calibrated_on, "query", "queries")}.${explanation}`;
  if (stored)
    return `is not calibrated; it has its own kind of rank distribution, whose width is fixed.${explanation}`;
  const given = settings.own ? " This is the model's own width." : " The report chose this width.";
  const sigma = short(settings.sigma * 2 ** state.width);
  const kernel = settings.kernel === "laplace" ? "Laplace" : "Gaussian";
  return `is not calibrated: sigma ${sigma}, ${kernel} kernel.${explanation || given}`;
}
