// Calibration: the probabilities of a model against observed frequencies, before and after calibration.

function calibration(d) {
  const node = section("calibration", "Calibration of the probabilities");
  const names = methodNames(d).filter((name) => Object.keys(d.calibration?.[name] ?? {}).length);
  if (!names.length) {
    put(
      node,
      empty(
        hasDistributions(d)
          ? "No model of this report is calibrated, so its rank probabilities show only how far apart scores are."
          : "This report has no rank probabilities.",
      ),
    );
    return node;
  }
  const ours = names.filter((name) => methodAbout(name).ours);
  const view = { method: leader(d, ours) ?? leader(d, names) ?? names[0], event: "first is best" };
  const record = () => Object.values(d.calibration[view.method])[0];
  const shown = () => record().events.find((own) => own.event === view.event) ?? record().events[0];
  const words = el("p", { class: "prose", "aria-live": "polite" });
  const key = el("ul", { class: "key" });
  const own = chart("", () => reliabilityFigure(view.method, shown()), 480);
  const bins = numbersOf("Table: every bin", () => binsTable(view.method, shown()));
  const errors = el("div");
  const eventControl = choice("Probability that", [], view.event, (event) => {
    view.event = event;
    show();
  });
  const methodControl = choice(
    "Method",
    names.map((name) => [name, name]),
    view.method,
    (name) => {
      view.method = name;
      show();
    },
  );
  const show = () => {
    const events = record().events.filter((one) => one.after);
    if (!events.some((one) => one.event === view.event)) view.event = events[0].event;
    eventControl.fill(
      events.map((one) => [one.event, eventWords(one.event)]),
      view.event,
    );
    words.replaceChildren(...calibrationWords(view.method, record(), shown()));
    key.replaceChildren(...calibrationKey(view.method, shown()));
    errors.replaceChildren(
      scrolling("Calibration errors", errorsTable(view.method, record())),
      el("p", { class: "note" }, logScoreWords(record().log_scores)),
    );
    own.node.setAttribute(
      "aria-label",
      `Reliability diagram of ${view.method}: observed frequency against the probability that ` +
        `${eventWords(view.event)}, with counts`,
    );
    own.update();
    bins.update();
  };
  show();
  put(
    node,
    beside(
      [
        el("div", { class: "controls" }, methodControl.node, eventControl.node),
        words,
        key,
        own.node,
        bins.node,
        el("h3", {}, "Calibration error of each probability"),
        errors,
      ],
      reading(
        "A point is a group of forecasts with similar probabilities: to the right, what was forecast; " +
          "upwards, how often it happened, with its 95\u00a0% interval. On the diagonal both are equal. " +
          "Below it the model is too sure, above it not sure enough.",
        "The bars above count the forecasts, on a logarithmic scale. Points of few forecasts have long " +
          "intervals and may be off the diagonal by chance.",
        "Before calibration, the probabilities come from the distances between scores alone.",
        "Calibration holds for queries like those that it was fitted to. Documents with equal labels share " +
          "their ranks evenly.",
      ),
    ),
  );
  return node;
}

function eventWords(event) {
  const [, first] = event.match(/^top (\d+)$/) ?? [];
  if (first === "1") return "a document belongs at rank 1";
  if (first) return `a document belongs among the first ${first}`;
  if (event === "first is best") return "the first document has the best label of its query";
  return `a document has a ${event.replace(">=", "of at least")}`;
}

function calibrationWords(method, record, { event, before, after }) {
  const points = (error) => `${(100 * error).toFixed(1)} percentage points`;
  return [
    strong(method),
    ` is calibrated on ${count(record.n_calibrating, "query", "queries")}. On the ` +
      `${count(record.n_queries, "test query", "test queries")}, its probabilities that ${eventWords(event)} ` +
      `are ${points(after.error)} away from the observed frequencies on average` +
      `${before ? `; before calibration, ${points(before.error)}` : ""}.`,
  ];
}

function logScoreWords({ before, after, uniform }) {
  return (
    `Mean log score of the ranks, in nats per rank (smaller is better): ${fixed(after, 3)} calibrated, ` +
    `${fixed(before, 3)} before, and ${fixed(uniform, 3)} if every rank had the same probability.`
  );
}

function calibrationKey(method, { before }) {
  const item = (name, text) =>
    el("li", {}, el("span", { class: `line ${name}`, "aria-hidden": "true" }), text);
  const after = item(`method-${methodIndex(method) % 8}`, "after calibration");
  return before ? [item("uncalibrated dash", "before calibration"), after] : [after];
}

function reliabilityFigure(method, { before, after }) {
  const style = methodStyle(method);
  const sides = [
    before && { text: "before", bins: before, color: color("published"), dash: "dash", symbol: "square" },
    { text: "after", bins: after, color: style.color, dash: "solid", symbol: "circle" },
  ].filter(Boolean);
  const n = after.counts.length;
  const unit = { range: [-0.02, 1.02], dtick: 0.2, zeroline: false };
  const data = [
    {
      name: "diagonal",
      x: [0, 1],
      y: [0, 1],
      mode: "lines",
      line: { color: color("axis"), width: 1 },
      hoverinfo: "skip",
    },
    ...sides.map((side) => frequencyTrace(side)),
    ...sides.map(({ text, bins, color: fill }) => ({
      name: `${text}, counts`,
      type: "bar",
      x: bins.counts.map((_, i) => (i + 0.5) / n),
      y: bins.counts,
      yaxis: "y2",
      marker: { color: fill },
      hoverinfo: "text",
      hovertext: bins.counts.map(
        (m, i) => `${text} calibration, ${percent(i / n)} to ${percent((i + 1) / n)}: ${whole(m)}`,
      ),
      textposition: "none",
    })),
  ];
  return {
    data,
    layout: {
      barmode: "group",
      bargap: 0.2,
      xaxis: { title: { text: "forecast probability" }, ...unit },
      yaxis: { title: { text: "observed frequency" }, ...unit, domain: [0, 0.78] },
      yaxis2: { title: { text: "count" }, ...countAxis(sides), domain: [0.84, 1] },
      margin: { l: 60, r: 16, t: 8, b: 48 },
    },
  };
}

// A logarithmic axis on which a count of 1 is visible, and at most four powers of ten are labeled.
function countAxis(sides) {
  const most = Math.log10(Math.max(1, ...sides.flatMap(({ bins }) => bins.counts)));
  return { type: "log", range: [-0.2, most + 0.2], dtick: Math.max(1, Math.ceil(most / 3)) };
}

function frequencyTrace({ text, bins, color: own, dash, symbol }) {
  const some = bins.counts.flatMap((m, i) => (m ? [i] : []));
  const values = (name) => some.map((i) => bins[name][i]);
  return {
    name: text,
    x: values("forecast"),
    y: values("observed"),
    mode: "lines+markers",
    line: { color: own, width: 1.5, dash },
    marker: { color: own, size: 8, symbol },
    error_y: {
      type: "data",
      symmetric: false,
      array: some.map((i) => bins.high[i] - bins.observed[i]),
      arrayminus: some.map((i) => bins.observed[i] - bins.low[i]),
      color: own,
      thickness: 1.5,
      width: 4,
    },
    hoverinfo: "text",
    hovertext: some.map(
      (i) =>
        `${text} calibration: forecast ${percent(bins.forecast[i])}, observed ${percent(bins.observed[i])}` +
        `<br>(${interval([bins.low[i], bins.high[i]], percent)}; ${count(bins.counts[i], "forecast")})`,
    ),
  };
}

function errorsTable(method, record) {
  return table(
    `Calibration errors of ${method}: mean distance between probability and frequency`,
    ["probability that", "before", "after"],
    record.events.map(({ event, before, after }) => [
      eventWords(event),
      fixed(before?.error),
      fixed(after?.error),
    ]),
  );
}

function binsTable(method, { event, before, after }) {
  const rows = ([text, bins]) =>
    bins.counts.flatMap((m, i) =>
      m
        ? [
            [
              text,
              fixed(bins.forecast[i], 3),
              fixed(bins.observed[i], 3),
              interval([bins.low[i], bins.high[i]], (x) => fixed(x, 3)),
              whole(m),
            ],
          ]
        : [],
    );
  return table(
    `${method}: the probability that ${eventWords(event)}`,
    ["calibration", "forecast", "observed", "95\u00a0% interval", "forecasts"],
    [["before", before], ["after", after]].filter(([, bins]) => bins).flatMap(rows),
  );
}
