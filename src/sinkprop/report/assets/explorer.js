// The ranking explorer: one query's documents in the orders of two methods, and how sure each place is.

const FIRST = 100; // ranks shown before all are asked for
const DRAWN = 500; // ranks of a heat map or a strip at most
const SIDES = ["a", "b"];

function explorer(d) {
  const node = section("explorer", "Ranking explorer");
  const explored = d.explorer?.queries ?? [];
  if (!explored.length) {
    put(node, empty("This report holds no rankings of single queries: it comes from an older file, or was made without them."));
    return node;
  }
  if (!isExplored(d, state.query)) state.query = explored[0].query;
  const view = explorerView(d);
  put(node,
    el("p", { class: "prose" }, "Pick a query and see how two methods put its documents in order, and how sure each place is. "
      + "Point at a document, or move to it with the arrow keys, to find it in both orders and in the matrices below. "
      + "Left and right go to the other list; up and down go along it.", d.explorer.note && ` ${d.explorer.note}`),
    queryPicker(d),
    el("div", { class: "controls" }, pairControls(d), widthControl(d)),
    view.title,
    el("div", { class: "pair lists" }, view.sides.map((side) => side.node)),
    view.more,
    view.summary,
    documentFigure(d, view),
    matrixFigures(d, view));
  watch(["a", "b", "query", "all"], () => view.update());
  watch(["width"], () => view.reshape());
  watch(["document"], () => view.highlight());
  watch(["colors"], () => view.paint());
  view.update();
  requestAnimationFrame(() => view.highlight()); // once the lists are on the page and can be scrolled
  return node;
}

function exploredQuery(d) {
  return d.explorer.queries.find((own) => own.query === state.query);
}

// What the two lists, the matrices and the document's own picture share: the distributions now shown.
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
    more.textContent = state.all ? `Show the first ${FIRST} places only` : `Show all ${whole(n)} places`;
    for (const side of sides) side.read(query);
    for (const side of sides) side.fill(query, sides.find((other) => other !== side));
    view.reshape();
  };
  view.reshape = () => {
    const query = exploredQuery(d);
    for (const side of sides) side.spread(query);
    for (const own of [...view.charts, ...view.numbers]) own.update();
    view.highlight();
  };
  // Charts follow once a frame, however fast the choice moves.
  let waiting = false;
  const mark = () => {
    waiting = false;
    for (const own of view.charts) if (own.node.isConnected) own.highlight();
  };
  view.chosen = () => state.document ?? sides[0].placed[0] ?? null; // until one is chosen, the first
  view.paint = () => sides.forEach((side) => side.paint());
  view.highlight = () => {
    sides.forEach((side) => side.highlight(view.chosen()));
    summary.textContent = documentWords(d, sides, view.chosen());
    if (!waiting) requestAnimationFrame(mark);
    waiting = true;
  };
  return view;
}

// The distribution that a method's report gives for a query, at the width chosen; null where there is none.
function distributionOf(d, method, query) {
  const scores = query.scores[method];
  if (!scores) return null;
  if (query.matrices?.[method]) return storedDistribution(scores, query.matrices[method], query.peaks[method]);
  const settings = settingsOf(d, method);
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

// One method's list. `placed[i]` is the document in place i, `place[j]` the place of document j.
function rankedList(d, key) {
  const body = el("tbody");
  const caption = el("caption");
  const metric = el("p", { class: "note" });
  const grid = el("table", { class: "ranking", role: "grid" }, caption,
    el("thead", {}, el("tr", {}, ["place", "label", "document", "moved", "likely", "probability of each place"].map((head) => el("th", { scope: "col" }, head)))), body);
  const box = el("div", { class: "list" }, grid);
  const heading = el("h4");
  const side = { key, node: el("div", { class: "side" }, heading, metric, box), rows: new Map(), placed: [], place: [], distribution: null };
  side.method = () => state[key];
  side.limit = () => (state.all ? side.placed.length : Math.min(FIRST, side.placed.length));
  side.read = (query) => {
    side.placed = query.scores[side.method()] ? orderOf(query.scores[side.method()]) : [];
    side.place = [];
    side.placed.forEach((j, i) => { side.place[j] = i; });
  };
  side.fill = (query, other) => {
    heading.replaceChildren(swatch(side.method()), side.method());
    caption.textContent = `Documents in the order of ${side.method()}`;
    const value = valueOf(d, side.method(), state.metric, state.query);
    metric.textContent = side.placed.length ? `${metricName(state.metric)} ${fixed(value)}` : "The report holds no scores of this method.";
    side.rows = new Map(side.placed.slice(0, side.limit()).map((j, i) => [j, rankedRow(query, j, i, other)]));
    body.replaceChildren(...side.rows.values());
    box.scrollTop = 0;
  };
  side.spread = (query) => {
    side.distribution = distributionOf(d, side.method(), query);
    side.paint();
  };
  side.paint = () => paintStrips(side);
  side.highlight = (j) => highlightRow(side, box, j);
  listen(side, grid);
  return side;
}

function rankedRow(query, j, i, other) {
  const label = query.labels[j];
  const most = Math.max(1, ...query.labels);
  const moved = other && other.place[j] !== undefined ? other.place[j] - i : null;
  return el("tr", { "data-document": j, tabindex: "-1", "aria-selected": "false" },
    el("td", { class: "place" }, String(i + 1)),
    el("td", {}, el("span", { class: "label", style: `--grade: ${Math.round((100 * label) / most)}%` }, String(label))),
    el("td", { class: "name", title: documentName(query, j) }, documentName(query, j)),
    el("td", { class: moved > 0 ? "moved better" : moved < 0 ? "moved worse" : "moved" }, movedCell(moved)),
    el("td", { class: "likely" }),
    el("td", { class: "strip" }, el("canvas", { height: 1, "aria-hidden": "true" })));
}

function movedCell(moved) {
  if (moved === null) return DASH;
  if (moved === 0) return ["=", el("span", { class: "unseen" }, " same place in the other list")];
  const [arrow, word] = moved > 0 ? ["\u2191", "higher"] : ["\u2193", "lower"];
  return [`${arrow}${Math.abs(moved)}`, el("span", { class: "unseen" }, ` ${word} than in the other list`)];
}

// The strips and likely places of the rows: stronger color is more probable, on one scale for the list.
function paintStrips(side) {
  const { distribution } = side;
  const ranks = Math.min(side.limit(), DRAWN);
  const shown = [...side.rows.values()];
  if (!distribution) {
    side.peak = 0;
    for (const row of shown) row.querySelector(".likely").textContent = DASH;
    for (const row of shown) row.querySelector("canvas").width = 0;
    return;
  }
  const rows = shown.map((_, i) => distribution.row(i).subarray(0, ranks));
  side.peak = rows.reduce((most, p) => Math.max(most, ...p), 0);
  const [r, g, b] = color(`method-${methodIndex(side.method()) % 8}`).match(/[\d.]+/g).map(Number);
  shown.forEach((row, i) => {
    const [low, high] = distribution.describe(i).likely;
    row.querySelector(".likely").textContent = low === high ? String(low) : `${low}${DASH}${high}`;
    const canvas = row.querySelector("canvas");
    canvas.width = ranks;
    const context = canvas.getContext("2d");
    const image = context.createImageData(ranks, 1);
    rows[i].forEach((p, k) => image.data.set([r, g, b, 255 * Math.cbrt(p / side.peak)], 4 * k));
    context.putImageData(image, 0, 0);
  });
}

// Mouse and keyboard of a list: pointing chooses a document, arrow keys move the choice.
function listen(side, grid) {
  const documentAt = (target) => {
    const row = target.closest("tr[data-document]");
    return row ? Number(row.dataset.document) : null;
  };
  const choose = (event) => {
    const j = documentAt(event.target);
    if (j !== null && j !== state.document) change({ document: j });
  };
  grid.addEventListener("mouseover", choose);
  grid.addEventListener("focusin", choose);
  grid.addEventListener("click", (event) => event.target.closest("tr[data-document]")?.focus());
  grid.addEventListener("keydown", (event) => {
    const j = documentAt(event.target);
    if (j === null) return;
    const last = side.limit() - 1;
    const place = side.place[j];
    const to = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: last, PageDown: place + 10, PageUp: place - 10 }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      side.rows.get(side.placed[Math.min(last, Math.max(0, to))]).focus();
    } else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      event.preventDefault();
      const lists = [...grid.closest(".pair").querySelectorAll("table.ranking")];
      const list = lists[event.key === "ArrowLeft" ? 0 : lists.length - 1];
      list.querySelector(`tr[data-document="${j}"]`)?.focus();
    }
  });
}

// The chosen document's row marked, and within the view of its list; it is the one that Tab comes to.
function highlightRow(side, box, j) {
  for (const row of side.rows.values()) {
    row.setAttribute("aria-selected", "false");
    row.tabIndex = -1;
  }
  const row = side.rows.get(j);
  const first = row ?? side.rows.values().next().value;
  if (first) first.tabIndex = 0;
  if (!row) return;
  row.setAttribute("aria-selected", "true");
  if (row.matches(":hover")) return;
  const head = side.node.querySelector("thead").offsetHeight;
  const [above, below] = [row.offsetTop - head - box.scrollTop, row.offsetTop + row.offsetHeight - box.scrollTop - box.clientHeight];
  if (above < 0) box.scrollTop += above;
  else if (below > 0) box.scrollTop += below;
}

function documentWords(d, sides, j) {
  const query = exploredQuery(d);
  if (j === null) return "";
  const parts = sides.filter((side) => side.place[j] !== undefined).map((side) => {
    const i = side.place[j];
    const own = `${side.method()} puts it in place ${i + 1}`;
    if (!side.distribution) return own;
    const { expected, likely, top } = side.distribution.describe(i);
    const range = likely[0] === likely[1] ? `most likely ${likely[0]}` : `most likely ${likely[0]} to ${likely[1]}`;
    return `${own} (${range}; on average ${expected.toFixed(1)}; among the first 10 with probability ${percent(top)})`;
  });
  return `${documentName(query, j)}, label ${query.labels[j]}: ${parts.join("; ")}.`;
}

// A list of the queries, with a field that narrows it and an order to choose.
function queryPicker(d) {
  const explored = d.explorer.queries.map((own) => own.query);
  const id = newId("queries");
  const view = { text: "", order: "data" };
  const list = el("select", { size: 6, id, "aria-label": "Queries", onchange: () => change({ query: Number(list.value), document: null }) });
  const field = el("input", { type: "search", placeholder: "Search queries", "aria-label": "Search queries", "aria-controls": id });
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
    list.replaceChildren(...shown.map((i) => el("option", { value: i, selected: i === state.query }, text(i))));
    found.textContent = shown.length === explored.length ? count(explored.length, "query", "queries") : `${shown.length} of ${explored.length} queries`;
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
  const order = choice("Order", [["data", "as in the data"], two && ["difference", "first method ahead most"], ["worst", "first method lowest"],
    ["longest", "longest list"]].filter(Boolean), "data", (value) => {
    view.order = value;
    show();
  });
  watch(["query"], () => {
    list.value = String(state.query);
  });
  watch(["a", "b", "metric"], show);
  show();
  return el("div", { class: "picker" }, el("div", {}, field, list), el("div", {}, order.node, found, el("div", { class: "buttons" },
    el("button", { type: "button", "aria-label": "Previous query", onclick: () => step(-1) }, "Previous"),
    el("button", { type: "button", "aria-label": "Next query", onclick: () => step(1) }, "Next"))));
}

function widthControl(d) {
  const id = newId("width");
  const output = el("output", { for: id });
  const range = el("input", { type: "range", id, min: -WIDEST, max: WIDEST, step: 0.25, value: state.width });
  const words = () => (state.width === 0 ? "as the model has it" : `${short(2 ** state.width)} times as wide`);
  const note = el("p", { class: "note wide" });
  const show = () => {
    range.value = state.width;
    output.textContent = words();
    range.setAttribute("aria-valuetext", words());
    const own = [...new Set([state.a, state.b])].filter((name) => name !== null);
    note.replaceChildren(...own.map((name) => el("span", {}, strong(name), ` ${distributionWords(d, name)} `)));
    const query = exploredQuery(d);
    range.disabled = own.every((name) => query.matrices?.[name] || !settingsOf(d, name));
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
  return [el("div", { class: "control slider" }, el("label", { for: id }, "Width of the distribution"), range, output), note];
}

function distributionWords(d, name) {
  const settings = settingsOf(d, name);
  const stored = exploredQuery(d).matrices?.[name];
  if (!settings && !stored) return "gives no distribution over places.";
  const explanation = settings?.explanation ? ` ${settings.explanation}` : "";
  if (stored) return `has a distribution of its own kind, whose width is fixed.${explanation}`;
  const given = settings.own ? " The model's own." : " Set by the report.";
  return `sigma ${short(settings.sigma * 2 ** state.width)}, ${settings.kernel === "laplace" ? "Laplace" : "Gaussian"} kernel.${explanation || given}`;
}

// The chosen document's probability of every place, under both methods.
function documentFigure(d, view) {
  const own = chart("Probability of each place for the chosen document", () => {
    const query = exploredQuery(d);
    const j = view.chosen();
    const data = view.sides.filter((side) => side.distribution && side.place[j] !== undefined).map((side) => {
      const p = Array.from(side.distribution.row(side.place[j]).subarray(0, DRAWN));
      const style = methodStyle(side.method());
      return {
        // A step as wide as a place, also for the first and the last.
        name: side.method(), x: [0.5, ...p.map((_, k) => k + 1), p.length + 0.5], y: [p[0], ...p, p[p.length - 1]], mode: "lines",
        fill: "tozeroy", fillcolor: methodStyle(side.method(), 0.12).color,
        line: { color: style.color, dash: style.dash, width: style.width, shape: "hvh" }, hoverinfo: "text",
        hovertext: [0, ...p.keys(), p.length - 1].map((k) => `${plain(side.method())}<br>place ${k + 1}: ${percent(p[k])}`),
      };
    });
    // As far as the distributions reach: what lies beyond holds a thousandth at most.
    const reach = view.sides.filter((side) => side.distribution && side.place[j] !== undefined).map((side) => side.distribution.describe(side.place[j]).reach);
    const last = Math.min(DRAWN, view.sides[0].placed.length, Math.max(20, ...reach));
    return {
      data,
      layout: {
        title: { text: plain(`${documentName(query, j)}, label ${query.labels[j]}`), font: { size: 14 }, x: 0, xref: "paper", xanchor: "left", y: 0.97 },
        xaxis: { title: { text: "place" }, ...wholeTicks(last), range: [0.5, last + 0.5] }, yaxis: { title: { text: "probability" }, rangemode: "tozero", tickformat: ".2~p", nticks: 6 },
        margin: { l: 60, r: 16, t: 40, b: 48 },
      },
    };
  }, 280);
  const numbers = numbersOf("The numbers: this document's places", () => {
    const j = view.chosen();
    const known = view.sides.filter((side) => side.distribution && side.place[j] !== undefined);
    const rows = known.map((side) => side.distribution.row(side.place[j]));
    return table(`Probability of each place: ${documentName(exploredQuery(d), j)}`, ["place", ...known.map((side) => side.method())],
      Array.from({ length: Math.min(view.sides[0].placed.length, DRAWN) }, (_, k) => [String(k + 1), ...rows.map((p) => p[k].toPrecision(3))]));
  });
  own.highlight = () => {
    own.update();
    numbers.update();
  };
  view.charts.push(own);
  view.numbers.push(numbers);
  return beside([el("h3", {}, "Where the chosen document may stand"), own.node, numbers.node], reading(
    "The height over a place is the probability that the document stands there. A narrow peak means that the model is sure of the place, a broad "
      + "one that many documents have nearly the same score.",
    "The strips in the lists show the same from above, a document a line: the stronger the color, the more probable. \u201cLikely\u201d is the range that holds the "
      + "middle 80 %. The slider makes all distributions narrower or wider: narrowed far enough, each document has one place, the list's."));
}

function matrixFigures(d, view) {
  const figures = view.sides.map((side) => matrixFigure(d, view, side));
  return el("div", {}, el("h3", {}, "All documents at once"), el("p", { class: "prose" },
    "A row is a document, in the order of the method; a column is a place; the stronger the color, the more probable it is that the document stands there. "
      + "A thin diagonal is a sure ranking. Blocks are groups of documents that the model cannot tell apart."),
  el("div", { class: "pair" }, figures));
}

function matrixFigure(d, view, side) {
  const size = () => Math.min(side.limit(), DRAWN);
  const heading = el("h4");
  const note = el("p", { class: "note" });
  const own = chart("", () => matrixData(d, side, size(), view.chosen(), (event) => {
    const j = side.placed[event.points[0].y - 1];
    if (j !== undefined && j !== state.document) change({ document: j });
  }), 430);
  const numbers = numbersOf(`The numbers: the ${side.key === "a" ? "first" : "second"} matrix`, () => {
    const n = size();
    const query = exploredQuery(d);
    return table(`Probability of each place, documents in the order of ${side.method()}`, ["document", ...Array.from({ length: n }, (_, k) => String(k + 1))],
      side.distribution ? Array.from({ length: n }, (_, i) => [documentName(query, side.placed[i]),
        ...Array.from(side.distribution.row(i).subarray(0, n), (p) => p.toPrecision(3))]) : []);
  });
  const update = own.update;
  own.update = () => {
    heading.replaceChildren(swatch(side.method()), side.method());
    own.node.setAttribute("aria-label", `Rank distribution by ${side.method()}: documents by places, ${size()} of ${side.placed.length}`);
    note.textContent = side.distribution
      ? (size() < side.placed.length ? `The first ${size()} of ${side.placed.length} documents and places.` : "")
      : "There is no distribution for this method.";
    update();
  };
  own.highlight = () => {
    if (own.drawn && !own.stale) Plotly.relayout(own.node, { shapes: markedRow(side, view.chosen()) });
  };
  view.charts.push(own);
  view.numbers.push(numbers);
  return el("div", { class: "figure" }, heading, own.node, note, numbers.node);
}

function markedRow(side, j) {
  const place = side.place[j];
  if (place === undefined) return [];
  return [{ type: "rect", xref: "paper", x0: 0, x1: 1, y0: place + 0.5, y1: place + 1.5, line: { color: color("mark"), width: 2 } }];
}

// Stops at the cubes of equal steps, so that small probabilities can be seen beside large ones; the strips do the same.
function scaleTo(name) {
  const paper = color("paper").match(/[\d.]+/g).map(Number);
  const full = color(`method-${methodIndex(name) % 8}`).match(/[\d.]+/g).map(Number);
  return Array.from({ length: 21 }, (_, step) => {
    const t = step / 20;
    return [t ** 3, `rgb(${[0, 1, 2].map((c) => Math.round(paper[c] + t * (full[c] - paper[c]))).join(", ")})`];
  });
}

function matrixData(d, side, n, chosen, point) {
  const query = exploredQuery(d);
  const z = side.distribution ? Array.from({ length: n }, (_, i) => Array.from(side.distribution.row(i).subarray(0, n))) : [];
  const ranks = Array.from({ length: n }, (_, k) => k + 1);
  const names = ranks.map((rank) => plain(documentName(query, side.placed[rank - 1])));
  return {
    data: [{
      type: "heatmap", z, x: ranks, y: ranks, zmin: 0, zmax: Math.max(side.peak, 1e-12), colorscale: scaleTo(side.method()), hoverongaps: false, customdata: names.map((name) => ranks.map(() => name)),
      hovertemplate: "%{customdata}<br>place %{x}: %{z:.3~p}<extra></extra>", xgap: n <= 25 ? 1 : 0, ygap: n <= 25 ? 1 : 0,
      colorbar: { thickness: 10, outlinewidth: 0, tickformat: ".2~p", nticks: 6, len: 0.9 },
    }],
    layout: {
      shapes: markedRow(side, chosen),
      xaxis: { title: { text: "place" }, range: [0.5, n + 0.5], showgrid: false, zeroline: false, ...wholeTicks(n) },
      yaxis: { title: { text: "document, in the method's order" }, range: [n + 0.5, 0.5], showgrid: false, zeroline: false, ...wholeTicks(n) },
      margin: { l: 56, r: 8, t: 8, b: 48 },
    },
    events: { hover: point },
  };
}
