// The explorer's charts: the rank distribution of the selected document, and the matrix of all documents.

// The selected document's probability of every rank, under both methods.
function documentFigure(d, view) {
  const own = chart(
    "Probability of each rank for the selected document",
    () => {
      const query = exploredQuery(d);
      const j = view.chosen();
      const data = view.sides
        .filter((side) => side.distribution && side.place[j] !== undefined)
        .map((side) => {
          const p = Array.from(side.distribution.row(side.place[j]).subarray(0, DRAWN));
          const style = methodStyle(side.method());
          return {
            // A step as wide as a rank, also for the first and the last.
            name: side.method(),
            x: [0.5, ...p.map((_, k) => k + 1), p.length + 0.5],
            y: [p[0], ...p, p[p.length - 1]],
            mode: "lines",
            fill: "tozeroy",
            fillcolor: methodStyle(side.method(), 0.12).color,
            line: { color: style.color, dash: style.dash, width: style.width, shape: "hvh" },
            hoverinfo: "text",
            hovertext: [0, ...p.keys(), p.length - 1].map(
              (k) => `${plain(side.method())}<br>rank ${k + 1}: ${percent(p[k])}`,
            ),
          };
        });
      // As far as the distributions reach: at most a thousandth of the probability lies beyond.
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
          xaxis: { title: { text: "rank" }, ...wholeTicks(last), range: [0.5, last + 0.5] },
          yaxis: { title: { text: "probability" }, rangemode: "tozero", tickformat: ".2~p", nticks: 6 },
          margin: { l: 60, r: 16, t: 40, b: 48 },
        },
      };
    },
    280,
  );
  const numbers = numbersOf("Table: this document's rank distribution", () => {
    const j = view.chosen();
    const known = view.sides.filter((side) => side.distribution && side.place[j] !== undefined);
    const rows = known.map((side) => side.distribution.row(side.place[j]));
    return table(
      `Probability of each rank: ${documentName(exploredQuery(d), j)}`,
      ["rank", ...known.map((side) => side.method())],
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
    [el("h3", {}, "Rank distribution of the selected document"), own.node, numbers.node],
    reading(
      "The height at a rank is the probability that the document has this rank. A narrow peak means that " +
        "few other documents have a similar score, a broad one that many do.",
      "The strips in the lists show the same distributions, one per document: the stronger the color, the " +
        "more probable the rank. \u201cLikely\u201d is the range of the middle 80\u00a0%. The slider makes " +
        "distributions that are not calibrated narrower or wider. If they are narrow enough, each document " +
        "has one rank, that of the list.",
      "Calibrated probabilities say how often documents like this one belong at a rank. Others show only " +
        "how far apart the scores are, not how often the model is right: a narrow peak can be at the wrong " +
        "rank. The labels and NDCG show how good the ranking is.",
    ),
  );
}

function matrixFigures(d, view) {
  const figures = view.sides.map((side) => matrixFigure(d, view, side));
  return el(
    "div",
    {},
    el("h3", {}, "Rank distributions of all documents"),
    el(
      "p",
      { class: "prose" },
      "Each row is a document, in the order of the method, and each column is a rank. The stronger the " +
        "color, the more probable is this rank for the document. A thin diagonal is a ranking with well " +
        "separated scores. Blocks are groups of documents with nearly equal scores.",
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
  const numbers = numbersOf(`Table: the ${side.key === "a" ? "first" : "second"} matrix`, () => {
    const n = size();
    const query = exploredQuery(d);
    return table(
      `Probability of each rank, with documents in the order of ${side.method()}`,
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
      `Rank distribution by ${side.method()}: documents by rank, ${size()} of ${side.placed.length}`,
    );
    note.textContent = side.distribution
      ? size() < side.placed.length
        ? `The first ${size()} of ${side.placed.length} documents and ranks.`
        : ""
      : "This method has no rank distribution here.";
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

// Color stops at the cubes of equal steps, so that small probabilities are visible next to large ones; the
// strips do the same.
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
        hovertemplate: "%{customdata}<br>rank %{x}: %{z:.3~p}<extra></extra>",
        xgap: n <= 25 ? 1 : 0,
        ygap: n <= 25 ? 1 : 0,
        colorbar: { thickness: 10, outlinewidth: 0, tickformat: ".2~p", nticks: 6, len: 0.9 },
      },
    ],
    layout: {
      shapes: markedRow(side, chosen),
      xaxis: {
        title: { text: "rank" },
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
