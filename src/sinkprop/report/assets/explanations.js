// Explanations in the explorer: the features that move the selected document, and those that change the metric.

// Tables under each list; null if no method is explained.
function explanationTables(d, view) {
  if (!Object.keys(d.explanations?.methods ?? {}).length) return null;
  const boxes = view.sides.map(() => el("div", { class: "why" }));
  const heading = el("h3");
  const node = el(
    "div",
    {},
    heading,
    el("div", { class: boxes.length > 1 ? "pair" : "single" }, boxes),
    el(
      "p",
      { class: "note" },
      "Contributions of the features to the expected rank, relative to a random order: the share of each " +
        "feature along the way from equal scores to those of the model. Over all features they sum to the " +
        "whole distance. The same for the expected metric of the query. They say what the model does with " +
        "the features, not what causes relevance.",
    ),
  );
  const fill = () => {
    const query = exploredQuery(d);
    const j = view.chosen();
    heading.textContent = `Why is ${j === null ? "a document" : documentName(query, j)} at its rank?`;
    view.sides.forEach((side, i) => boxes[i].replaceChildren(...explanationOf(d, side, query, j)));
  };
  view.charts.push({ node, update: fill, highlight: fill });
  return node;
}

function explanationOf(d, side, query, j) {
  const method = side.method();
  const heading = el("h4", {}, swatch(method), method);
  const own = d.explanations.methods[method]?.[d.explorer.queries.indexOf(query)];
  if (!own || j === null)
    return [heading, el("p", { class: "note" }, "This report does not explain this ranking.")];
  const middle = (query.labels.length + 1) / 2;
  const expected = side.distribution?.describe(side.place[j]).expected;
  const start = `A random order gives rank ${middle.toFixed(1)}`;
  const end = expected && state.width === 0 ? `, the model expects rank ${expected.toFixed(1)}` : "";
  const pairs = (flat) => flat.filter((_, i) => i % 2 === 0).map((f, i) => [f, flat[2 * i + 1]]);
  const moves = pairs(own.documents[j]).filter(([, ranks]) => Math.abs(ranks) >= 0.05);
  const gains = pairs(own.query);
  const metric = metricName(d.explanations.metric);
  return [
    heading,
    el("p", { class: "note" }, `${start}${end}.`),
    contributionTable(
      `Features that move ${documentName(query, j)}`,
      ["feature", "moves it by"],
      moves.map(([f, ranks]) => [d.explanations.features[f], ranksWords(ranks), -ranks]),
    ),
    el(
      "p",
      { class: "note" },
      `Expected ${metric} of this query: ${fixed(own.expected)}; of a random order: ${fixed(own.random)}.`,
    ),
    contributionTable(
      `What each feature does to ${metric} of this query`,
      ["feature", "changes it by"],
      gains.map(([f, gain]) => [d.explanations.features[f], signed(gain), gain]),
    ),
  ];
}

function ranksWords(ranks) {
  const size = Math.abs(ranks).toFixed(1);
  return `${size} ${size === "1.0" ? "rank" : "ranks"} ${ranks < 0 ? "up" : "down"}`;
}

// Rows of [feature, words, value]; a bar to the right is an improvement.
function contributionTable(caption, heads, rows) {
  if (!rows.length) return el("p", { class: "note" }, `${caption}: none by as much as the last digit shown.`);
  const most = Math.max(...rows.map(([, , value]) => Math.abs(value)));
  return table(
    caption,
    [...heads, ""],
    rows.map(([feature, words, value]) => [
      feature,
      words,
      el("span", {
        class: value < 0 ? "share against" : "share",
        style: `width: ${Math.max(2, Math.round((100 * Math.abs(value)) / most))}px`,
        "aria-hidden": "true",
      }),
    ]),
    "shares",
  );
}
