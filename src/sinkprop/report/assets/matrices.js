// The explorer's charts: where the chosen document may stand, and the matrix of all documents.

// The chosen document's probability of every place, under both methods.
function documentFigure(d, view) {
  const own = chart(
    "Probability of each place for the chosen document",
    () => {
      const query = exploredQuery(d);
      const j = view.chosen();
      const data = view.sides
        .filter((side) => side.distribution && side.place[j] !== undefined)
        .map((side) => {
          const p = Array.from(side.distribution.row(side.place[j]).subarray(0, DRAWN));
          const style = methodStyle(side.method());
          return {
            // A step as wide as a place, also for the first and the last.
            name: side.method(),
            x: [0.5, ...p.map((_, k) => k + 1), p.length + 0.5],
            y: [p[0], ...p, p[p.length - 1]],
            mode: "lines",
            fill: "tozeroy",
            fillcolor: methodStyle(side.method(), 0.12).color,
            line: { color: style.color, dash: style.dash, width: style.width, shape: "hvh" },
            hoverinfo: "text",
            hovertext: [0, ...p.keys(), p.length - 1].map(
              (k) => `${plain(side.method())}<br>place ${k + 1}: ${percent(p[k])}`,
            ),
          };
        });
      // As far as the distributions reach: what lies beyond holds a thousandth at most.
      const reach = view.sides
        .filter((side) => side.distribution && side.place[j] !== undefined)
        .map((side) => side.distribution.describe(side.place[j]).reach);
      const last = Math.min(DRAWN, view.sides[0].placed.length, Math.max(20, ...reach));
      return {
        data,
        layout: {
          title: {
            text: plain(`${documentName(query, j)}, label ${query.labels[j]}`),
            font: { size: 14 },
            x: 0,
            xref: "paper",
            xanchor: "left",
            y: 0.97,
          },
          xaxis: { title: { text: "place" }, ...wholeTicks(last), range: [0.5, last + 0.5] },
          yaxis: { title: { text: "probability" }, rangemode: "tozero", tickformat: ".2~p", nticks: 6 },
          margin: { l: 60, r: 16, t: 40, b: 48 },
        },
      };
    },
    280,
  );
  const numbers = numbersOf("The numbers: this document's places", () => {
    const j = view.chosen();
    const known = view.sides.filter((side) => side.distribution && side.place[j] !== undefined);
    const rows = known.map((side) => side.distribution.row(side.place[j]));
    return table(
      `Probability of each place: ${documentName(exploredQuery(d), j)}`,
      ["place", ...known.map((side) => side.method())],
      Array.from({ length: Math.min(view.sides[0].placed.length, DRAWN) }, (_, k) => [
        String(k + 1),
        ...rows.map((p) => p[k].toPrecision(3)),
      ]),
    );
  });
  own.highlight = () => {
    own.update();
    numbers.update();
  };
  view.charts.push(own);
  view.numbers.push(numbers);
  return beside(
    [el("h3", {}, "Where the chosen document may stand"), own.node, numbers.node],
    reading(
      "The height over a place is the probability that the document stands there. A narrow peak means that " +
        "the model is sure of the place, a broad " +
        "one that many documents have nearly the same score.",
      "The strips in the lists show the same from above, a document a line: the stronger the color, the " +
        "more probable. \u201cLikely\u201d is the range that holds the " +
        "middle 80\u00a0%. The slider makes all distributions narrower or wider: narrowed far enough, each " +
        "document has one place, the list's.",
      "These probabilities say how far apart the scores are, not how often the model is right: one that is " +
        "sure of a place may be wrong. How often it is right is what the labels and NDCG tell.",
    ),
  );
}

function matrixFigures(d, view) {
  const figures = view.sides.map((side) => matrixFigure(d, view, side));
  return el(
    "div",
    {},
    el("h3", {}, "All documents at once"),
    el(
      "p",
      { class: "prose" },
      "A row is a document, in the order of the method; a column is a place; the stronger the color, the " +
        "more probable it is that the document stands there. " +
        "A thin diagonal is a sure ranking. Blocks are groups of documents that the model cannot tell apart.",
    ),
    el("div", { class: "pair" }, figures),
  );
}

function matrixFigure(d, view, side) {
  const size = () => Math.min(side.limit(), DRAWN);
  const heading = el("h4");
  const note = el("p", { class: "note" });
  const own = chart(
    "",
    () =>
      matrixData(d, side, size(), view.chosen(), (event) => {
        const j = side.placed[event.points[0].y - 1];
        if (j !== undefined && j !== state.document) change({ document: j });
      }),
    430,
  );
  const numbers = numbersOf(`The numbers: the ${side.key === "a" ? "first" : "second"} matrix`, () => {
    const n = size();
    const query = exploredQuery(d);
    return table(
      `Probability of each place, documents in the order of ${side.method()}`,
      ["document", ...Array.from({ length: n }, (_, k) => String(k + 1))],
      side.distribution
        ? Array.from({ length: n }, (_, i) => [
            documentName(query, side.placed[i]),
            ...Array.from(side.distribution.row(i).subarray(0, n), (p) => p.toPrecision(3)),
          ])
        : [],
    );
  });
  const update = own.update;
  own.update = () => {
    heading.replaceChildren(swatch(side.method()), side.method());
    own.node.setAttribute(
      "aria-label",
      `Rank distribution by ${side.method()}: documents by places, ${size()} of ${side.placed.length}`,
    );
    note.textContent = side.distribution
      ? size() < side.placed.length
        ? `The first ${size()} of ${side.placed.length} documents and places.`
        : ""
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
  return [
    {
      type: "rect",
      xref: "paper",
      x0: 0,
      x1: 1,
      y0: place + 0.5,
      y1: place + 1.5,
      line: { color: color("mark"), width: 2 },
    },
  ];
}

// Stops at the cubes of equal steps, so that small probabilities can be seen beside large ones; the strips
// do the same.
function scaleTo(name) {
  const paper = color("paper")
    .match(/[\d.]+/g)
    .map(Number);
  const full = color(`method-${methodIndex(name) % 8}`)
    .match(/[\d.]+/g)
    .map(Number);
  return Array.from({ length: 21 }, (_, step) => {
    const t = step / 20;
    return [
      t ** 3,
      `rgb(${[0, 1, 2].map((c) => Math.round(paper[c] + t * (full[c] - paper[c]))).join(", ")})`,
    ];
  });
}

function matrixData(d, side, n, chosen, point) {
  const query = exploredQuery(d);
  const z = side.distribution
    ? Array.from({ length: n }, (_, i) => Array.from(side.distribution.row(i).subarray(0, n)))
    : [];
  const ranks = Array.from({ length: n }, (_, k) => k + 1);
  const names = ranks.map((rank) => plain(documentName(query, side.placed[rank - 1])));
  return {
    data: [
      {
        type: "heatmap",
        z,
        x: ranks,
        y: ranks,
        zmin: 0,
        zmax: Math.max(side.peak, 1e-12),
        colorscale: scaleTo(side.method()),
        hoverongaps: false,
        customdata: names.map((name) => ranks.map(() => name)),
        hovertemplate: "%{customdata}<br>place %{x}: %{z:.3~p}<extra></extra>",
        xgap: n <= 25 ? 1 : 0,
        ygap: n <= 25 ? 1 : 0,
        colorbar: { thickness: 10, outlinewidth: 0, tickformat: ".2~p", nticks: 6, len: 0.9 },
      },
    ],
    layout: {
      shapes: markedRow(side, chosen),
      xaxis: {
        title: { text: "place" },
        range: [0.5, n + 0.5],
        showgrid: false,
        zeroline: false,
        ...wholeTicks(n),
      },
      yaxis: {
        title: { text: "document, in the method's order" },
        range: [n + 0.5, 0.5],
        showgrid: false,
        zeroline: false,
        ...wholeTicks(n),
      },
      margin: { l: 56, r: 8, t: 8, b: 48 },
    },
    events: { hover: point },
  };
}
