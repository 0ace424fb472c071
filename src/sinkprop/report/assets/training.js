// Training curves: the objective, the metrics, the width of the kernel, and the step where training stopped.

const TRACES = [
  {
    key: "expected_gain",
    text: "expected gain (training objective)",
    color: "method-0",
    dash: "solid",
    symbol: "circle",
  },
  { key: "training", text: "on training queries", color: "method-2", dash: "dash", symbol: "square" },
  { key: "validation", text: "on validation queries", color: "method-1", dash: "dot", symbol: "diamond" },
];

function training(d) {
  const node = section("training", "Training curves");
  const names = methodNames(d).filter((name) =>
    Object.values(d.training?.[name] ?? {}).some((trace) => trace.steps?.length),
  );
  if (!names.length) {
    put(
      node,
      empty(
        "This report has no record of training: none of its methods kept one, or it was made from an older " +
          "file.",
      ),
    );
    return node;
  }
  const ours = names.filter((name) => methodAbout(name).ours);
  const view = { method: leader(d, ours) ?? names[0], fold: null, path: null };
  const record = () => d.training[view.method][view.fold];
  const paths = () => pathsOf(record());
  const reset = () => {
    const folds = foldsWithSteps(d, view.method);
    if (!folds.includes(view.fold)) view.fold = folds[0];
    const chosen = record().steps[record().chosen];
    view.path = chosen?.path ?? paths()[0];
  };
  const message = el("p", { class: "note" });
  const key = el("ul", { class: "key" });
  const aside = reading();
  const own = chart(
    "Expected gain, metric and width of the kernel at each step of training",
    () => trainingFigure(record(), view.path),
    460,
  );
  const numbers = numbersOf("Table: every step", () => stepsTable(record(), view.path));
  const pathControl = choice("Setting", [], "", (path) => {
    view.path = path;
    show();
  });
  const foldControl = choice("Fold", [], "", (fold) => {
    view.fold = fold;
    reset();
    show();
  });
  const methodControl = choice(
    "Method",
    names.map((name) => [name, name]),
    view.method,
    (name) => {
      view.method = name;
      reset();
      show();
    },
  );
  const show = () => {
    foldControl.fill(
      foldsWithSteps(d, view.method).map((fold) => [fold, fold]),
      view.fold,
    );
    const all = paths();
    const chosen = record().steps[record().chosen]?.path ?? "";
    pathControl.fill(
      all.map((path) => [
        path,
        `${path || "the only one"}${path === chosen && all.length > 1 ? " (chosen)" : ""}`,
      ]),
      view.path,
    );
    pathControl.node.hidden = all.length < 2;
    key.replaceChildren(
      ...tracesOf(stepsOf(record(), view.path)).map((trace) =>
        el(
          "li",
          {},
          el("span", { class: `line ${trace.dash} ${trace.color}`, "aria-hidden": "true" }),
          trace.key === "expected_gain"
            ? trace.text
            : `${metricName(record().criterion ?? "metric")} ${trace.text}`,
        ),
      ),
    );
    aside.replaceChildren(...trainingReading(stepsOf(record(), view.path)).childNodes);
    message.textContent = trainingWords(record());
    own.update();
    numbers.update();
  };
  reset();
  show();
  put(
    node,
    beside(
      [
        el("div", { class: "controls" }, methodControl.node, foldControl.node, pathControl.node),
        key,
        own.node,
        message,
        numbers.node,
      ],
      aside,
    ),
  );
  return node;
}

// Explanation of the lines that are shown.
function trainingReading(steps) {
  const shown = tracesOf(steps).map((trace) => trace.key);
  return reading(
    "The horizontal axis shows the steps of training, or the settings that were tried in turn. The lines " +
      "show the value after each step; higher is better.",
    shown.includes("expected_gain") &&
      "The expected gain is the average metric if documents exchange ranks at random; the closer their " +
        "scores and the larger the width sigma, the more often they do. It is smooth, so gradients can " +
        "maximize it. The other lines show the metric of the model's actual ranking.",
    steps.some((step) => step.sigma > 0) &&
      "Sigma, below, starts wide and is reduced step by step, so that the smooth objective ends up close to " +
        "the metric.",
    shown.includes("validation") &&
      "Each step is validated on queries on which it was not trained. When their metric stops rising, more " +
        "training would only fit the training queries more closely. The step marked \u201cchosen\u201d is " +
        "the selected model or, if the model is an average of steps, has the largest share in it.",
  );
}

// The names of the paths; one empty name if the steps have none.
function pathsOf(record) {
  const named = [...new Set(record.steps.map((step) => step.path).filter(Boolean))];
  return named.length ? named : [""];
}

function foldsWithSteps(d, method) {
  return Object.keys(d.training[method]).filter((fold) => d.training[method][fold].steps?.length);
}

function trainingWords(record) {
  const kept = record.steps[record.chosen];
  const sentences = [
    record.message,
    record.criterion && `The metric on training and validation queries is ${metricName(record.criterion)}.`,
    record.validated_on && `The model was selected by ${record.validated_on}.`,
    record.selected ? `Selected: ${record.selected}.` : kept && `Selected: ${stepName(record, { ...kept, x: kept.number ?? record.chosen + 1 })}.`,
  ];
  return sentences.filter(Boolean).join(" ");
}

// The steps of one path, with their indices among all steps. The start that all paths share comes first, as
// step 0.
function stepsOf(record, path) {
  return record.steps
    .map((step, index) => ({
      ...step,
      index,
      x: path && !step.path ? 0 : step.number,
    }))
    .filter((step) => !step.path || step.path === path)
    .map((step, i) => ({ ...step, x: step.x ?? i + 1 }));
}

function stepName(record, step) {
  return step.label ?? (step.x ? `${record.unit ?? "step"} ${step.x}` : "start");
}

// The lines that have values. If training maximizes the criterion itself, one line is enough.
function tracesOf(steps) {
  return TRACES.filter(
    ({ key }) =>
      steps.some((step) => isNumber(step[key])) &&
      !(key === "expected_gain" && steps.every((step) => step.expected_gain === step.training)),
  );
}

function trainingFigure(record, path) {
  const steps = stepsOf(record, path);
  const x = steps.map((step) => step.x);
  const widths = steps.some((step) => step.sigma > 0);
  const lines = tracesOf(steps);
  const few = steps.length <= 40;
  const data = lines.map((trace) => ({
    name: trace.text,
    x,
    y: steps.map((step) => step[trace.key] ?? null),
    mode: few ? "lines+markers" : "lines",
    connectgaps: true, // some methods evaluate the training queries only now and then
    line: { color: color(trace.color), dash: trace.dash, width: 2.2 },
    marker: { color: color(trace.color), symbol: trace.symbol, size: 7 },
    hoverinfo: "text",
    hovertext: steps.map(
      (step) => `${plain(stepName(record, step))}<br>${plain(trace.text)}: ${fixed(step[trace.key])}`,
    ),
  }));
  if (widths) {
    data.push({
      name: "sigma",
      x,
      y: steps.map((step) => (step.sigma > 0 ? step.sigma : null)),
      yaxis: "y2",
      mode: few ? "lines+markers" : "lines",
      line: { color: color("muted"), width: 2, shape: "hvh" },
      marker: { color: color("muted"), size: 5 },
      hoverinfo: "text",
      hovertext: steps.map((step) => `${plain(stepName(record, step))}<br>sigma ${short(step.sigma)}`),
    });
  }
  const { shapes, annotations } = marksOf(record, steps);
  return {
    data,
    layout: {
      shapes,
      annotations,
      xaxis: {
        title: { text: record.unit ?? "step" },
        anchor: widths ? "y2" : "y",
        ...wholeTicks(steps.length),
        range: stepRange(x),
        zeroline: false,
      },
      yaxis: { title: { text: "gain or metric" }, domain: widths ? [0.34, 1] : [0, 1] },
      ...(widths
        ? { yaxis2: { title: { text: "sigma" }, domain: [0, 0.24], type: "log", ...widthTicks(steps) } }
        : {}),
      margin: { l: 60, r: 16, t: 44, b: 48 },
    },
  };
}

function stepRange(x) {
  const pad = 0.03 * (Math.max(...x) - Math.min(...x)) + 0.3;
  return [Math.min(...x) - pad, Math.max(...x) + pad];
}

// Ticks at a few of the widths, since a logarithmic axis of less than a decade has no round numbers.
function widthTicks(steps) {
  const widths = [...new Set(steps.map((step) => step.sigma).filter((sigma) => sigma > 0))].sort(
    (x, y) => x - y,
  );
  const some = widths.filter((_, i) => i % Math.ceil(widths.length / 4) === 0);
  return { tickvals: some, ticktext: some.map((sigma) => String(Number(sigma.toPrecision(2)))) };
}

// A line at the chosen step, and one where early stopping ended the path.
function marksOf(record, steps) {
  const shapes = [];
  const annotations = [];
  const mark = (index, text, dash, tone, side) => {
    const x = steps.find((step) => step.index === index)?.x;
    if (x === undefined) return;
    shapes.push({
      type: "line",
      x0: x,
      x1: x,
      yref: "paper",
      y0: 0,
      y1: 1,
      line: { color: color(tone), dash, width: 1.5 },
    });
    annotations.push({
      x,
      y: 1,
      yref: "paper",
      yanchor: "bottom",
      yshift: side === "left" ? 15 : 0, // above the other mark, which may be close
      showarrow: false,
      text,
      font: { color: color(tone), size: 12 },
      xanchor: (side === "left" && x > steps[0].x) || x > 0.7 * steps[steps.length - 1].x ? "right" : "left",
    });
  };
  const stopped = (record.stopped ?? []).filter((index) => index !== record.chosen);
  const same = (record.stopped ?? []).includes(record.chosen);
  if (isNumber(record.chosen))
    mark(record.chosen, same ? "chosen; stopped here" : "chosen", "solid", "ink", "left");
  for (const index of stopped) mark(index, "stopped early", "dot", "muted", "right");
  return { shapes, annotations };
}

// A table of the steps, with the columns that have values.
function stepsTable(record, path) {
  const steps = stepsOf(record, path);
  const columns = [
    ["sigma", "sigma", short],
    ["expected_gain", "expected gain", fixed],
    ["training", "on training", fixed],
    ["validation", "on validation", fixed],
  ].filter(([key]) => steps.some((step) => isNumber(step[key])));
  const note = (step) => [
    step.index === record.chosen && "chosen",
    (record.stopped ?? []).includes(step.index) && "stopped early",
  ];
  return table(
    `Every ${record.unit ?? "step"}${path ? ` with ${path}` : ""}`,
    [record.unit ?? "step", ...columns.map(([, head]) => head), "note"],
    steps.map((step) => [
      stepName(record, step),
      ...columns.map(([key, , show]) => show(step[key])),
      note(step).filter(Boolean).join(", "),
    ]),
  );
}
