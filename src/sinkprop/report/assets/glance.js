// Overview of the data: numbers of queries and documents, list lengths, distribution of the labels.

function glance(d) {
  const node = section("glance", "Data overview");
  const own = d.glance;
  if (!own) {
    put(node, empty("This report has no description of the data."));
    return node;
  }
  if (d.about)
    put(
      node,
      el(
        "div",
        { class: "prose" },
        d.about.split(/\n\s*\n/).map((text) => el("p", {}, text)),
      ),
    );
  const tiles = [
    [whole(own.queries), "queries"],
    [whole(own.documents), "documents"],
    [whole(own.features), "features per document"],
    isNumber(own.without_relevant) && [
      whole(own.without_relevant),
      `${own.without_relevant === 1 ? "query" : "queries"} without a relevant document`,
    ],
  ].filter(Boolean);
  put(
    node,
    el(
      "dl",
      { class: "figures" },
      tiles.map(([value, text]) => el("div", {}, el("dt", {}, text), el("dd", {}, value))),
    ),
  );
  const lengths = own.lengths?.values?.length ? lengthChart(own.lengths.values) : null;
  const labels = own.labels?.values?.length ? labelChart(own.labels) : null;
  put(node, el("div", { class: "pair" }, lengths, labels), own.parts?.length ? partsTable(own.parts) : "");
  return node;
}

// Bins of a histogram: single values if there are few, else ranges of equal round width, or doubling ranges
// if a few lists are far longer than the rest.
function bins(values) {
  const sorted = [...values].sort((x, y) => x - y);
  const [least, most] = [sorted[0], sorted[sorted.length - 1]];
  const middle = sorted[Math.floor(sorted.length / 2)];
  let edges = [];
  if (most - least < 25) edges = Array.from({ length: most - least + 2 }, (_, i) => least + i);
  else if (most > 20 * middle) {
    for (let edge = 1; edge < 2 * most + 1; edge *= 2) edges.push(edge);
  } else {
    const width = roundWidth((most - least) / 20);
    for (let edge = Math.floor(least / width) * width; edge <= most + width; edge += width) edges.push(edge);
  }
  const found = edges.slice(0, -1).map((low, i) => ({ low, high: edges[i + 1] - 1, n: 0 }));
  for (const value of values) found.find((bin) => value >= bin.low && value <= bin.high).n += 1;
  while (found.length > 1 && !found[found.length - 1].n) found.pop();
  return found.map((bin) => ({
    ...bin,
    middle: (bin.low + bin.high) / 2,
    width: bin.high - bin.low + 1,
    text: bin.low === bin.high ? String(bin.low) : `${bin.low}${DASH}${bin.high}`,
  }));
}

function roundWidth(width) {
  const power = 10 ** Math.floor(Math.log10(width));
  return Math.max(1, power * [1, 2, 5, 10].find((factor) => factor * power >= width));
}

function lengthChart(values) {
  const found = bins(values);
  const equal = found.every((bin) => bin.width === found[0].width);
  const sorted = [...values].sort((x, y) => x - y);
  const middle = sorted[Math.floor((sorted.length - 1) / 2)];
  const own = chart(
    `Histogram of list lengths: ${count(values.length, "query", "queries")}, from ${sorted[0]} to ${
      sorted[sorted.length - 1]
    } documents, half of them with at most ${middle}`,
    () => ({
      data: [
        {
          type: "bar",
          x: found.map((bin) => (equal ? bin.middle : bin.text)),
          y: found.map((bin) => bin.n),
          marker: { color: color("accent") },
          hoverinfo: "text",
          hovertext: found.map((bin) => `${bin.text} documents: ${count(bin.n, "query", "queries")}`),
          textposition: "none",
        },
      ],
      layout: {
        bargap: 0.08,
        xaxis: {
          type: equal ? "linear" : "category",
          nticks: 8,
          tickangle: 0,
          title: { text: "documents per query" },
          showgrid: false,
        },
        yaxis: { title: { text: "queries" }, rangemode: "tozero" },
      },
    }),
    300,
  );
  const numbers = numbersOf("Table: list lengths", () =>
    table(
      "Queries by number of documents",
      ["documents", "queries"],
      found.map((bin) => [bin.text, whole(bin.n)]),
    ),
  );
  return el(
    "div",
    { class: "figure" },
    el("h3", {}, "List lengths"),
    el(
      "p",
      { class: "note" },
      `Number of documents to rank per query: from ${whole(sorted[0])} to ${whole(
        sorted[sorted.length - 1],
      )}; half of the queries have at most ${whole(middle)}. Longer lists are harder to rank well at the top.`,
    ),
    own.node,
    numbers.node,
  );
}

function labelChart({ values, counts }) {
  const total = counts.reduce((sum, n) => sum + n, 0);
  const own = chart(
    `Documents by label: ${values.map((value, i) => `${counts[i]} with label ${value}`).join(", ")}`,
    () => ({
      data: [
        {
          type: "bar",
          x: values.map(String),
          y: counts,
          marker: { color: color("accent") },
          hoverinfo: "text",
          textposition: "none",
          hovertext: values.map(
            (value, i) => `label ${value}: ${count(counts[i], "document")}, ${percent(counts[i] / total)}`,
          ),
        },
      ],
      layout: {
        bargap: 0.3,
        xaxis: { type: "category", title: { text: "label" }, showgrid: false },
        yaxis: { title: { text: "documents" }, rangemode: "tozero" },
      },
    }),
    300,
  );
  const numbers = numbersOf("Table: labels", () =>
    table(
      "Documents by label",
      ["label", "documents", "share"],
      values.map((value, i) => [String(value), whole(counts[i]), percent(counts[i] / total)]),
    ),
  );
  return el(
    "div",
    { class: "figure" },
    el("h3", {}, "Labels"),
    el(
      "p",
      { class: "note" },
      "Relevance of the documents to their queries; a larger label is more relevant. In most collections " +
        "most documents have the lowest label, and a good ranking puts the few others at the top.",
    ),
    own.node,
    numbers.node,
  );
}

function partsTable(parts) {
  const words = { train: "training", vali: "validation", test: "test" };
  const details = numbersOf("Table: splits", () =>
    table(
      "Queries and documents of each split",
      ["fold", "split", "queries", "documents"],
      parts.map((part) => [
        part.fold,
        words[part.part] ?? part.part,
        whole(part.queries),
        whole(part.documents),
      ]),
    ),
  );
  return details.node;
}
