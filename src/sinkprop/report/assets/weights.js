// Feature weights or feature importances, with their spread over the folds.

const TOP_FEATURES = 15;

function weights(d) {
  const node = section("weights", "Feature weights and importance");
  const names = methodNames(d).filter((name) => d.weights?.[name]?.features?.length);
  if (!names.length) {
    put(
      node,
      empty("This report has no feature weights: the methods have none, or it was made from an older file."),
    );
    return node;
  }
  const ours = names.filter((name) => methodAbout(name).ours);
  const view = { method: leader(d, ours) ?? names[0] };
  const note = el("p", { class: "note" });
  const aside = reading();
  const own = chart(
    "",
    () => weightFigure(d, view.method),
    110 + 24 * Math.min(TOP_FEATURES, d.weights[view.method].features.length),
  );
  const numbers = numbersOf("Table: every feature and fold", () => weightTable(d, view.method));
  const show = () => {
    const record = d.weights[view.method];
    own.height = 110 + 24 * Math.min(TOP_FEATURES, record.features.length);
    const top = ranked(record)[0];
    note.textContent = record.explanation ?? "";
    aside.replaceChildren(...weightReading(record).childNodes);
    own.node.setAttribute(
      "aria-label",
      `Largest feature ${record.kind}s of ${view.method}; first ${top.feature} with ${short(top.mean)}`,
    );
    own.update();
    numbers.update();
  };
  const control = choice(
    "Method",
    names.map((name) => [name, name]),
    view.method,
    (name) => {
      view.method = name;
      show();
    },
  );
  show();
  put(node, beside([el("div", { class: "controls" }, control.node), own.node, note, numbers.node], aside));
  return node;
}

function weightReading(record) {
  const several = Object.keys(record.folds).length > 1;
  return reading(
    `The chart shows the ${Math.min(TOP_FEATURES, record.features.length)} most important features.`,
    several &&
      "The large point is the mean over the folds; the ticks are single folds. If they are close together, " +
        "the model learned the same from different queries.",
    record.kind === "importance"
      ? "An importance shows how much the model relies on a feature, but not in which direction."
      : "With a positive weight (to the right), a larger value of the feature raises a document's score; " +
        "with a negative weight, it lowers the score.",
  );
}

// Features with their values in each fold, in decreasing order of the absolute mean.
function ranked(record) {
  const folds = Object.keys(record.folds);
  return record.features
    .map((feature, i) => {
      const values = folds.map((fold) => record.folds[fold][i] ?? null);
      return { feature: String(feature), values, mean: mean(values) };
    })
    .sort((p, q) => Math.abs(q.mean ?? 0) - Math.abs(p.mean ?? 0));
}

function weightFigure(d, method) {
  const record = d.weights[method];
  const folds = Object.keys(record.folds);
  const shown = ranked(record).slice(0, TOP_FEATURES).reverse();
  const style = methodStyle(method);
  const y = shown.map((_, i) => i);
  const data = [
    {
      name: "range",
      x: shown.flatMap(({ values }) => [
        Math.min(...values.filter(isNumber)),
        Math.max(...values.filter(isNumber)),
        null,
      ]),
      y: y.flatMap((i) => [i, i, null]),
      mode: "lines",
      line: { color: methodStyle(method, 0.45).color, width: 3 },
      hoverinfo: "skip",
    },
  ];
  folds.forEach((fold, f) => {
    if (folds.length < 2) return;
    data.push({
      name: fold,
      x: shown.map(({ values }) => values[f]),
      y,
      mode: "markers",
      marker: {
        color: methodStyle(method, 0.75).color,
        size: 6,
        symbol: "line-ns-open",
        line: { width: 1.5 },
      },
      hoverinfo: "text",
      hovertext: shown.map(({ feature, values }) => `${plain(feature)}, ${plain(fold)}: ${short(values[f])}`),
    });
  });
  data.push({
    name: "mean",
    x: shown.map((own) => own.mean),
    y,
    mode: "markers",
    marker: { color: style.color, size: 11, symbol: style.symbol },
    hoverinfo: "text",
    hovertext: shown.map((own) => `<b>${plain(own.feature)}</b><br>mean ${short(own.mean)}`),
  });
  return {
    data,
    layout: {
      xaxis: {
        title: { text: record.kind === "importance" ? "importance" : "weight" },
        zeroline: true,
        zerolinewidth: 2,
        nticks: isNarrow() ? 4 : 7,
        tickangle: 0,
      },
      yaxis: {
        tickvals: y,
        ticktext: shown.map(({ feature }) => plain(shortened(feature, isNarrow() ? 16 : 26))),
        range: [-0.7, shown.length - 0.3],
        zeroline: false,
      },
      margin: { l: 20, r: 16, t: 8, b: 48 },
    },
  };
}

function weightTable(d, method) {
  const record = d.weights[method];
  const folds = Object.keys(record.folds);
  return table(
    `Feature ${record.kind}s of ${method}`,
    ["feature", "mean", ...folds],
    ranked(record).map(({ feature, values, mean: own }) => [feature, short(own), ...values.map(short)]),
  );
}
