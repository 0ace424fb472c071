// NDCG@k of every method, with confidence bands.

function levels() {
  return METRICS.map((metric) => /^ndcg@(\d+)$/.exec(metric))
    .filter(Boolean)
    .map((match) => ({ k: Number(match[1]), metric: match[0] }))
    .sort((x, y) => x.k - y.k);
}

function curves(d) {
  const node = section("curves", "NDCG at the top ranks");
  const at = levels();
  const names = methodNames(d);
  if (at.length < 2) {
    put(
      node,
      empty("Curves need NDCG at two or more cutoffs, such as the metrics ndcg@1-10; this report has fewer."),
    );
    return node;
  }
  const hidden = new Set();
  const view = { bands: names.length > 4 ? "pair" : "all", published: false };
  const rows = (d.published ?? []).filter((row) => at.some(({ metric }) => isNumber(row.means[metric])));
  const own = chart(
    `Mean NDCG@k for k from ${at[0].k} to ${at[at.length - 1].k}, of ${listed(names)}`,
    () =>
      curveFigure(
        d,
        at,
        names.filter((name) => !hidden.has(name)),
        view,
        rows,
      ),
    420,
  );
  const toggle = (name, shown) => {
    if (shown) hidden.delete(name);
    else hidden.add(name);
    own.update();
  };
  const choose = (key) => (value) => {
    view[key] = value;
    own.update();
  };
  const offered = () => [
    ["all", "all methods"],
    ["pair", `${state.a} and ${state.b}`],
    ["none", "none"],
  ];
  const bands = choice("Confidence bands", offered(), view.bands, choose("bands"));
  watch(["a", "b"], () => {
    bands.fill(offered(), view.bands);
    own.update();
  });
  const numbers = numbersOf("Table: means and 95\u00a0% confidence intervals", () =>
    table(
      "Mean NDCG@k and its 95\u00a0% confidence interval",
      ["method", ...at.map(({ metric }) => metricName(metric))],
      names.map((name) => [
        name,
        ...at.map(({ metric }) => [
          fixed(d.means[name][metric]),
          el("small", {}, interval(d.intervals?.[name]?.[metric])),
        ]),
      ]),
      "with-intervals",
    ),
  );
  const gray =
    rows.length &&
    numbersOf("Table: published results", () =>
      table(
        "Published means",
        ["method", ...at.map(({ metric }) => metricName(metric))],
        rows.map((row) => [row.method, ...at.map(({ metric }) => fixed(row.means[metric]))]),
      ),
    );
  put(
    node,
    beside(
      [
        legend(names, toggle),
        el(
          "div",
          { class: "controls" },
          bands.node,
          rows.length > 0 &&
            checkbox(
              `published results of others (${rows.length}, gray and dashed)`,
              false,
              choose("published"),
            ),
        ),
        own.node,
        numbers.node,
        gray ? gray.node : "",
      ],
      reading(
        "Each line is one method. Its value at k = 5 is the mean NDCG of the first five ranks over the " +
          "queries: higher is better.",
        "The shaded band around a line is the 95\u00a0% confidence interval: the mean would likely fall " +
          "there for other queries of the same kind. The bands are wide because queries differ. The methods " +
          "are tested on the same queries, so overlapping bands do not mean that two methods are equal. The " +
          "differences in the next section show whether they are.",
        rows.length > 0 &&
          el(
            "p",
            {},
            "Published results are the values that the authors of other methods reported for the same test " +
              "queries, compiled from a secondary source. These methods were not run here.",
          ),
      ),
    ),
  );
  return node;
}

// One button per method, which shows and hides it.
function legend(names, toggle) {
  return el(
    "div",
    { class: "legend", role: "group", "aria-label": "Methods shown" },
    names.map((name) => {
      const button = el(
        "button",
        { type: "button", "aria-pressed": "true", title: methodAbout(name).description },
        swatch(name),
        name,
      );
      button.addEventListener("click", () => {
        const shown = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(shown));
        toggle(name, shown);
      });
      return button;
    }),
  );
}

function curveFigure(d, at, names, view, rows) {
  const x = at.map(({ k }) => k);
  const data = [];
  const banded = { all: names, pair: names.filter((name) => name === state.a || name === state.b), none: [] }[
    view.bands
  ];
  for (const name of banded) {
    const known = at.filter(({ metric }) => isNumber(d.intervals?.[name]?.[metric]?.[0]));
    data.push({
      name: `${name}, band`,
      x: [...known.map(({ k }) => k), ...known.map(({ k }) => k).reverse()],
      y: [
        ...known.map(({ metric }) => d.intervals[name][metric][0]),
        ...known.map(({ metric }) => d.intervals[name][metric][1]).reverse(),
      ],
      mode: "lines",
      line: { width: 0 },
      fill: "toself",
      hoverinfo: "skip",
      fillcolor: methodStyle(name, banded.length > 4 ? 0.08 : 0.14).color,
    });
  }
  for (const row of view.published ? rows : []) {
    data.push({
      name: row.method,
      x,
      y: at.map(({ metric }) => row.means[metric] ?? null),
      mode: "lines+markers",
      connectgaps: true,
      line: { color: color("published"), dash: "dash", width: 1 },
      marker: { color: color("published"), size: 5, symbol: "circle-open" },
      hoverinfo: "text",
      hovertext: at.map(
        ({ k, metric }) => `${plain(row.method)}, published<br>NDCG@${k} ${fixed(row.means[metric])}`,
      ),
    });
  }
  // Ours last, so that their lines are drawn above the others.
  const ordered = [...names].sort((p, q) => Number(methodAbout(p).ours) - Number(methodAbout(q).ours));
  for (const name of ordered) {
    const style = methodStyle(name);
    data.push({
      name,
      x,
      y: at.map(({ metric }) => d.means[name][metric] ?? null),
      mode: "lines+markers",
      line: { color: style.color, dash: style.dash, width: style.width },
      marker: { color: style.color, symbol: style.symbol, size: 8 },
      hoverinfo: "text",
      hovertext: at.map(
        ({ k, metric }) =>
          `<b>${plain(name)}</b><br>NDCG@${k} ${fixed(d.means[name][metric])}<br>${interval(
            d.intervals?.[name]?.[metric],
          )}`,
      ),
    });
  }
  return {
    data,
    layout: {
      xaxis: {
        title: { text: "k" },
        tickvals: x.length <= 12 ? x : undefined,
        range: [x[0] - 0.3, x[x.length - 1] + 0.3],
      },
      yaxis: { title: { text: "mean NDCG@k on test queries" } },
    },
  };
}
