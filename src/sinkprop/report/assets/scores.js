// The table of means with significance, and the differences to the reference.

const USUAL = ["ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10", "p@10", "map"];
const MANY = 9; // more metrics than this do not fit on a laptop's screen

const MARKS = { 1: ["\u25b2", "better"], "-1": ["\u25bc", "worse"] };

function scores(d) {
  const names = methodNames(d);
  const one = names.length === 1;
  const node = section("scores", one ? "Test metrics" : "Test metrics and statistical significance");
  if (!names.length) {
    put(node, empty("This report has no test means."));
    return node;
  }
  const tests = testsOf(d).length > 0;
  put(
    node,
    el(
      "p",
      { class: "prose" },
      one
        ? "Means over the test queries."
        : "Test means of every method. The best value of each column is bold. ",
      tests && [
        el("span", { class: "better" }, MARKS[1][0]),
        ` and `,
        el("span", { class: "worse" }, MARKS[-1][0]),
        ` mark means that are significantly better and worse than that of ${REPORT.against}: p < .05 by a `,
        "randomization test over queries, corrected for the number of methods (Holm). ",
      ],
      !one && "Click a column heading to sort by it.",
    ),
    meansTables(d, names),
    tests ? differenceChart(d) : !one && empty("This report has no significance tests of differences."),
    foldsTable(d, names),
  );
  if (d.statement) put(node, el("p", { class: "note statement" }, d.statement));
  return node;
}

// The table of a few metrics, or of all metrics on request.
function meansTables(d, names) {
  const known = METRICS.filter((metric) => names.some((name) => isNumber(d.means[name][metric])));
  const few = known.filter((metric) => USUAL.includes(metric) || metric === MAIN);
  const box = el("div", {}, meansTable(d, names, known.length > MANY && few.length ? few : known));
  if (known.length <= MANY || !few.length) return box;
  return [
    el(
      "div",
      { class: "controls" },
      checkbox(`all ${known.length} metrics`, false, (all) =>
        box.replaceChildren(meansTable(d, names, all ? known : few)),
      ),
    ),
    box,
  ];
}

function meansTable(d, names, shown) {
  const best = Object.fromEntries(
    shown.map((metric) => [
      metric,
      Math.max(...names.map((name) => Number((d.means[name][metric] ?? -Infinity).toFixed(4)))),
    ]),
  );
  const times = [
    ["fit time", "fit"],
    ["prediction time", "predict"],
  ].filter(([, key]) => names.some((name) => isNumber(d.seconds?.[name]?.[key])));
  const columns = [
    {
      head: "method",
      value: (name) => names.indexOf(name),
      cell: (name) => [swatch(name), name],
      first: "ascending",
    },
    ...shown.map((metric) => ({
      head: metricName(metric),
      value: (name) => d.means[name][metric],
      cell: (name) => meanCell(d, name, metric, best[metric]),
    })),
    ...times.map(([head, key]) => ({
      head,
      value: (name) => d.seconds[name]?.[key],
      cell: (name) => seconds(d.seconds[name]?.[key]),
      first: "ascending",
    })),
  ];
  return scrolling("Test means", sortable(`Test means on ${d.name}`, columns, names));
}

function meanCell(d, name, metric, best) {
  const value = d.means[name][metric];
  const text = fixed(value);
  const mark = MARKS[testOf(d, name, metric)?.verdict];
  return [
    isNumber(value) && Number(value.toFixed(4)) === best && methodNames(d).length > 1
      ? el("strong", {}, text)
      : text,
    el(
      "span",
      { class: mark ? (mark === MARKS[1] ? "mark better" : "mark worse") : "mark" },
      mark && el("span", { "aria-hidden": "true" }, mark[0]),
      mark && el("span", { class: "unseen" }, ` ${mark[1]} than ${REPORT.against}, significant`),
    ),
  ];
}

// A table that is sorted by its column headings, in descending or ascending order, with missing values last.
function sortable(caption, columns, names) {
  const body = el("tbody");
  const heads = columns.map((column, i) => {
    const button = el(
      "button",
      { type: "button", onclick: () => sort(i) },
      column.head,
      el("span", { class: "arrow", "aria-hidden": "true" }),
    );
    return el("th", { scope: "col" }, button);
  });
  const rows = new Map(
    names.map((name) => [
      name,
      el(
        "tr",
        { class: methodAbout(name).ours && "ours" },
        columns.map((column, i) =>
          i
            ? el("td", {}, column.cell(name))
            : el("th", { scope: "row", title: methodAbout(name).description }, column.cell(name)),
        ),
      ),
    ]),
  );
  const sort = (i) => {
    const first = columns[i].first ?? "descending";
    const other = first === "ascending" ? "descending" : "ascending";
    const way = heads[i].getAttribute("aria-sort") === first ? other : first;
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    heads[i].setAttribute("aria-sort", way);
    const sign = way === "ascending" ? 1 : -1;
    const key = (name) => columns[i].value(name);
    const order = [...names].sort((p, q) => {
      if (isNumber(key(p)) && isNumber(key(q))) return sign * (key(p) - key(q));
      return Number(!isNumber(key(p))) - Number(!isNumber(key(q)));
    });
    body.replaceChildren(...order.map((name) => rows.get(name)));
  };
  body.append(...rows.values());
  return el(
    "table",
    { class: "numbers sortable" },
    el("caption", {}, caption),
    el("thead", {}, el("tr", {}, heads)),
    body,
  );
}

function differenceChart(d) {
  const metrics = METRICS.filter((metric) => testsOf(d).some((test) => test.metric === metric));
  const view = { metric: metrics.includes(MAIN) ? MAIN : metrics[0] };
  const chosen = () => testsOf(d).filter((test) => test.metric === view.metric);
  const names = [...new Set(testsOf(d).map((test) => test.method))];
  const own = chart(
    `Differences of means from ${REPORT.against}, with 95\u00a0% confidence intervals`,
    () => differenceFigure(d, chosen(), view.metric),
    90 + 38 * names.length,
  );
  const numbers = numbersOf("Table: differences, intervals and tests", () =>
    testsTable(chosen(), view.metric),
  );
  const control = choice(
    "Metric",
    metrics.map((metric) => [metric, metricName(metric)]),
    view.metric,
    (metric) => {
      view.metric = metric;
      own.update();
      numbers.update();
    },
  );
  return beside(
    [
      el("h3", {}, `Differences from ${REPORT.against}`),
      el("div", { class: "controls" }, control.node),
      own.node,
      numbers.node,
    ],
    reading(
      `Each point shows how much higher (to the right) or lower a method's mean is than that of ` +
        `${REPORT.against}, on the same queries. The line through it is the 95\u00a0% confidence interval: ` +
        "the difference would likely fall there for other queries of the same kind.",
      "A filled point is a statistically significant difference. An open point is not: there are too few " +
        "queries, or the methods are too similar.",
    ),
  );
}

function differenceFigure(d, tests, metric) {
  const shown = [...tests].reverse(); // the first is at the top
  const data = shown.map((test) => {
    const style = methodStyle(test.method);
    const known = isNumber(test.interval?.[0]);
    return {
      name: test.method,
      x: [test.difference],
      y: [plain(shortened(test.method, isNarrow() ? 16 : 26))],
      mode: "markers",
      marker: {
        color: style.color,
        symbol: test.verdict ? style.symbol : `${style.symbol}-open`,
        size: 11,
        line: { width: 2, color: style.color },
      },
      error_x: known && {
        type: "data",
        symmetric: false,
        array: [test.interval[1] - test.difference],
        arrayminus: [test.difference - test.interval[0]],
        color: style.color,
        thickness: 2,
        width: 5,
      },
      hoverinfo: "text",
      hovertext: [
        `<b>${plain(test.method)}</b><br>${signed(test.difference)} (${interval(test.interval, signed)})<br>` +
          `p = ${probability(test.randomization_holm)}: ${verdictWords(test)}`,
      ],
    };
  });
  return {
    data,
    layout: {
      xaxis: {
        title: { text: isNarrow() ? "difference" : `difference in mean ${metricName(metric)}` },
        rangemode: "tozero",
        zeroline: true,
        zerolinewidth: 2,
        tickformat: "+.3~f",
        nticks: isNarrow() ? 4 : 7,
        tickangle: 0,
      },
      yaxis: { type: "category", showgrid: false, ticks: "", range: [-0.6, shown.length - 0.4] },
      margin: { l: 20, r: 16, t: 8, b: 48 },
    },
  };
}

function verdictWords({ verdict }) {
  return verdict ? `${MARKS[verdict][1]}, significant` : "not significant";
}

function testsTable(tests, metric) {
  const what = `Differences in ${metricName(metric)} from ${REPORT.against}`;
  return table(
    `${what}, paired by query; p-values are two-sided, with Holm's correction`,
    [
      "method",
      "difference",
      "95\u00a0% interval",
      "queries",
      "p, randomization",
      "p, t-test",
      "p, Wilcoxon",
      "result",
    ],
    tests.map((test) => [
      test.method,
      signed(test.difference),
      interval(test.interval, signed),
      whole(test.n_queries),
      probability(test.randomization_holm),
      probability(test.t_test_holm),
      probability(test.wilcoxon_holm),
      verdictWords(test),
    ]),
  );
}

function foldsTable(d, names) {
  const folds = foldNames(d);
  if (!d.folds || folds.length < 2) return "";
  return numbersOf(`${metricName(MAIN)} by fold`, () =>
    table(
      `Mean ${metricName(MAIN)} of each fold`,
      ["method", ...folds, "mean"],
      names.map((name) => [
        name,
        ...folds.map((fold) => fixed(d.folds[name]?.[fold]?.[MAIN])),
        fixed(d.means[name][MAIN]),
      ]),
    ),
  ).node;
}
