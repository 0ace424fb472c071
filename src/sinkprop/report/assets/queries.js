// Wins and losses: the difference of two methods on each query, sorted.

const TIE = 1e-9;

// { query, x, y, difference } of the queries for which both methods have a value.
function differences(d, a, b, metric) {
  const found = [];
  (d.queries ?? []).forEach((_, query) => {
    const [x, y] = [valueOf(d, a, metric, query), valueOf(d, b, metric, query)];
    if (isNumber(x) && isNumber(y)) found.push({ query, x, y, difference: x - y });
  });
  return found;
}

function winsAndLosses(found) {
  const wins = found.filter(({ difference }) => difference > TIE).length;
  const losses = found.filter(({ difference }) => difference < -TIE).length;
  return { wins, losses, ties: found.length - wins - losses };
}

function queries(d) {
  const node = section(
    "queries",
    methodNames(d).length > 1 ? "Wins and losses per query" : "Results per query",
  );
  const metrics = queryMetrics(d);
  if (!metrics.length) {
    put(node, empty("This report has no values of single queries."));
    return node;
  }
  const two = methodNames(d).length > 1;
  const sorted = () => {
    const found = differences(d, state.a, state.b, state.metric);
    const height = ({ x, difference }) => (two ? difference : x);
    return found
      .sort((p, q) => height(q) - height(p) || p.query - q.query)
      .map((own) => ({ ...own, height: height(own) }));
  };
  const words = el("p", { class: "verdict", "aria-live": "polite" });
  const cursor = { at: 0 };
  const own = chart(
    "",
    () => ({
      ...queryFigure(d, sorted(), two, cursor),
      events: { click: (event) => openQuery(d, event.points[0].customdata) },
    }),
    340,
  );
  const numbers = numbersOf("Table: every query", () => queryTable(d, sorted(), two));
  const show = () => {
    const found = sorted();
    cursor.at = Math.min(cursor.at, Math.max(0, found.length - 1));
    words.replaceChildren(
      ...(two ? countWords(found) : [`${count(found.length, "query", "queries")}, highest first.`]),
    );
    const what = two ? `${state.a} minus ${state.b}` : state.a;
    own.node.setAttribute(
      "aria-label",
      `${what}, ${metricName(state.metric)} of each query, sorted: ${words.textContent}`,
    );
    own.update();
    numbers.update();
  };
  const now = el(
    "p",
    { class: "note", "aria-live": "polite" },
    "Arrow keys move along the bars; Enter or a click opens the query in the explorer.",
  );
  const strip = el(
    "div",
    {
      class: "keys",
      tabindex: "0",
      role: "application",
      "aria-label": "Bars: arrow keys move, Enter opens the query in the explorer",
    },
    own.node,
  );
  strip.addEventListener("keydown", (event) => {
    const found = sorted();
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -found.length, End: found.length }[event.key];
    if (event.key === "Enter" && found.length) openQuery(d, found[cursor.at].query);
    if (step === undefined || !found.length) return;
    event.preventDefault();
    cursor.at = Math.min(found.length - 1, Math.max(0, cursor.at + step));
    now.textContent = barWords(d, found[cursor.at], two);
    own.update();
  });
  const controls = pairControls(d);
  const metricControl = choice(
    "Metric",
    metrics.map((metric) => [metric, metricName(metric)]),
    state.metric,
    (metric) => change({ metric }),
  );
  watch(["a", "b", "metric"], () => {
    metricControl.set(state.metric);
    show();
  });
  if (!metrics.includes(state.metric)) state.metric = metrics[0];
  show();
  put(
    node,
    beside(
      [
        el("div", { class: "controls" }, controls, metricControl.node),
        words,
        strip,
        now,
        numbers.node,
        d.per_query_note && el("p", { class: "note" }, d.per_query_note),
      ],
      reading(
        two
          ? "Each bar is one query. The first method gives the better ranking where the bar points up, the " +
              "second where it points down. The bars are sorted, so the point where they cross zero shows " +
              "how many queries each method wins."
          : "Each bar is one query, with the best first.",
        two && "A method that is better on average is rarely better on every query.",
        "Select a bar to see the ranking of that query.",
      ),
    ),
  );
  return node;
}

// The two selects of the compared methods, which appear twice on the page and always agree.
function pairControls(d) {
  const names = methodNames(d).map((name) => [name, name]);
  if (names.length < 2) return [];
  const first = choice("First method", names, state.a, (a) =>
    change(a === state.b ? { a, b: state.a } : { a }),
  );
  const second = choice("Second method", names, state.b, (b) =>
    change(b === state.a ? { b, a: state.b } : { b }),
  );
  watch(["a", "b"], () => {
    first.set(state.a);
    second.set(state.b);
  });
  return [first.node, second.node];
}

function countWords(found) {
  const { wins, ties, losses } = winsAndLosses(found);
  return [
    strong(`${state.a} better: ${wins}`),
    `  \u00b7  tied: ${ties}  \u00b7  `,
    strong(`${state.b} better: ${losses}`),
    `  \u00b7  mean of the bars ${signed(mean(found.map(({ difference }) => difference)))}`,
  ];
}

function barWords(d, { query, x, y, difference }, two) {
  const own = `${queryText(d, query)}: ${state.a} ${fixed(x)}`;
  return two ? `${own}, ${state.b} ${fixed(y)}, difference ${signed(difference)}.` : `${own}.`;
}

function queryFigure(d, found, two, cursor) {
  const tone = ({ difference }) => (!two || difference > TIE ? state.a : state.b);
  const colors = new Map([...new Set([state.a, state.b])].map((name) => [name, methodStyle(name).color]));
  const x = found.map((_, i) => i + 1);
  return {
    data: [
      {
        type: "bar",
        x,
        y: found.map(({ height }) => height),
        customdata: found.map(({ query }) => query),
        marker: {
          color: found.map((own) => colors.get(tone(own))),
          line: { width: found.map((_, i) => (i === cursor.at ? 2.5 : 0)), color: color("ink") },
        },
        hoverinfo: "text",
        textposition: "none",
        hovertext: found.map((own) => plain(barWords(d, own, two)).replace(/, /g, "<br>")),
      },
    ],
    layout: {
      bargap: found.length > 60 ? 0 : 0.15,
      xaxis: {
        title: { text: "queries, sorted" },
        showgrid: false,
        zeroline: false,
        ...wholeTicks(found.length),
      },
      yaxis: {
        title: { text: two ? `difference in ${metricName(state.metric)}` : metricName(state.metric) },
        zeroline: true,
        zerolinewidth: 2,
      },
    },
  };
}

function queryTable(d, found, two) {
  const heads = two
    ? ["query", state.a, state.b, "difference", "documents", "relevant", "fold"]
    : ["query", state.a, "documents", "relevant", "fold"];
  return table(
    `${metricName(state.metric)} of each query`,
    heads,
    found.map(({ query, x, y, difference }) => {
      const own = d.queries[query];
      const open = isExplored(d, query)
        ? el(
            "button",
            { type: "button", class: "link", onclick: () => openQuery(d, query) },
            queryText(d, query),
          )
        : queryText(d, query);
      return [
        open,
        fixed(x),
        ...(two ? [fixed(y), signed(difference)] : []),
        whole(own.documents),
        whole(own.relevant),
        own.fold,
      ];
    }),
  );
}

function isExplored(d, query) {
  return (d.explorer?.queries ?? []).some((own) => own.query === query);
}

// Show a query in the explorer, and scroll there.
function openQuery(d, query) {
  if (!isExplored(d, query)) return;
  change({ query, document: null, section: "explorer" });
  goTo("explorer");
}
