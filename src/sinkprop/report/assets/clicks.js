// Training on clicks: how often users examine each position, and what the models were trained on.

const CLICK_MODELS = {
  PositionBasedModel: "a position-based model",
  TrustBiasModel: "a trust-bias model",
  CascadeModel: "a cascade model",
  DependentClickModel: "a dependent click model",
};
const AVERAGED = ["CascadeModel", "DependentClickModel"]; // in which examination depends on the clicks above
const BIAS_METHODS = {
  harvest: "from documents that several rankers show at different positions",
  swaps: "from documents that exchanged places with that of position 1",
  documents: "from documents shown at several positions",
  linear: "with the relevance predicted from features by a linear model",
  trees: "with the relevance predicted from features by boosted trees",
  ranker: "with the relevance predicted from features by a ranker",
};

function clicks(d) {
  const node = section("clicks", "Training on clicks");
  const names = methodNames(d).filter((name) => clicksOf(d, name));
  if (!names.length) {
    put(node, empty("No method was trained on clicks for this data set."));
    return node;
  }
  const records = alike(names, (name) => clicksOf(d, name));
  const lines = alike(names, (name) => curveOf(clicksOf(d, name))).filter(({ value }) => value.examination);
  const choices = records.filter(({ value }) => value.clip_choice);
  const own =
    lines.length > 0 &&
    chart(
      `Examination of each position by users; ${lines.map((line) => listed(line.names)).join("; ")}`,
      () => examinationFigure(lines),
      380,
    );
  put(
    node,
    beside(
      [
        records.map((one) => el("p", { class: "prose" }, clickWords(one.names, one.value))),
        own && [
          examinationKey(lines),
          own.node,
          numbersOf("Table: examination of each position", () => examinationTable(lines)).node,
        ],
        choices.length > 0 &&
          numbersOf("Table: errors by which the clip was chosen", () =>
            choices.map((one) => clipTable(one.names, one.value)),
          ).node,
      ],
      clicksReading(d, records, lines),
    ),
  );
  return node;
}

// Clicks on which a method was trained; null if it was trained on labels.
function clicksOf(d, name) {
  return Object.values(d.clicks?.[name] ?? {})[0] ?? null;
}

// Groups of names whose values are equal, such as those of models that were trained on the same log.
function alike(names, valueOf) {
  const groups = new Map();
  for (const name of names) {
    const value = valueOf(name);
    const key = JSON.stringify(value);
    if (!groups.has(key)) groups.set(key, { names: [], value });
    groups.get(key).names.push(name);
  }
  return [...groups.values()];
}

function curveOf({ examination, interval: bounds }) {
  return { examination: examination ?? null, bounds: bounds ?? null };
}

// Model files of earlier versions do not hold the click model, the interval and how the clip was chosen.
function clickWords(names, record) {
  const { method, clip, clip_choice: choice, documents, documents_unknown: unknown } = record;
  const log = `${count(record.clicks, "click")} of ${count(record.sessions, "session")}`;
  const were = names.length === 1 ? "was" : "were";
  const trained =
    method === "none"
      ? [
          ` ${were} trained on click rates, from ${log}.`,
          "They have position bias: documents that were shown further up seem more relevant.",
        ]
      : [
          ` ${were} trained on the relevance of documents, estimated from ${log} by the method ` +
            `\u201c${method}\u201d.`,
          biasWords(record),
          clipWords(clip, choice),
        ];
  const left =
    unknown > 0 &&
    `Training left out ${whole(unknown)} of ${count(documents, "document")}, which no user had seen.`;
  return [strong(listed(names)), [...trained, left].filter(Boolean).join(" ")];
}

function biasWords({ click_model: model, bias_method: by }) {
  if (!model) return "";
  const estimated = by ? `, estimated ${BIAS_METHODS[by] ?? `by the method ${by}`}` : "";
  const averaged = AVERAGED.includes(model)
    ? " In it, examination depends on the clicks further up; the curve is an average."
    : "";
  return `Position bias is that of ${CLICK_MODELS[model] ?? model}${estimated}.${averaged}`;
}

function clipWords(clip, choice) {
  const clipped =
    clip > 0
      ? `Probabilities of examination below ${short(clip)} were raised to ${short(clip)}, the clip`
      : "Probabilities of examination were not clipped";
  if (choice === undefined) return `${clipped}.`;
  if (choice === null) return `${clipped}; this was set by hand.`;
  if (choice.clips.length < 2) return `${clipped}; no other clip was tried.`;
  return (
    `${clipped}. Of ${choice.clips.length} clips, ${short(clip)} is the smallest with an estimated squared ` +
    "error of the relevance within one standard error of the least."
  );
}

function clicksReading(d, records, lines) {
  const methods = records.map(({ value }) => value.method);
  const metrics = records.some(({ names }) => names.some((name) => d.training?.[name]))
    ? "The metrics in the training curves may be those of the estimated relevance. All others"
    : "All metrics";
  return reading(
    lines.length > 0 &&
      "Examination is the probability that a user looks at a position, relative to the first: at 0.25, a " +
        "position is looked at a fourth as often as the first. What is not looked at is not clicked, " +
        "however relevant it is.",
    lines.some(({ value }) => value.bounds) &&
      "The shaded band is the 95\u00a0% interval of each position.",
    methods.includes("inverse propensity") &&
      "Inverse propensity: the clicks of a document are divided by the number of times that users probably " +
        "looked at it.",
    methods.includes("doubly robust") &&
      "Doubly robust: the relevance is predicted from features, and the clicks correct the prediction, more " +
        "for documents at which more users looked.",
    methods.some((method) => method !== "none") &&
      "A click where users rarely look counts for many clicks. The clip limits for how many, so that single " +
        "clicks do not decide. This makes the estimates less noisy, at the price of some position bias.",
    `${metrics} on this page are computed from the labels of the test queries, not from clicks.`,
  );
}

function examinationKey(lines) {
  const item = ({ names }) =>
    el("li", {}, swatch(names[0]), el("span", { class: "prose" }, listed(names)));
  return el("ul", { class: "key" }, lines.map(item));
}

function examinationFigure(lines) {
  const data = lines
    .filter(({ value }) => value.bounds)
    .map(({ names, value }) => bandTrace(names, value.bounds, lines.length > 4 ? 0.08 : 0.14));
  for (const { names, value } of lines) {
    const style = methodStyle(names[0]);
    data.push({
      name: listed(names),
      x: value.examination.map((_, i) => i + 1),
      y: value.examination,
      mode: value.examination.length <= 40 ? "lines+markers" : "lines",
      line: { color: style.color, dash: style.dash, width: style.width },
      marker: { color: style.color, symbol: style.symbol, size: 8 },
      hoverinfo: "text",
      hovertext: value.examination.map((p, i) => {
        const range = value.bounds ? `<br>${interval(boundsAt(value.bounds, i), threeDigits)}` : "";
        return `<b>${plain(listed(names))}</b><br>position ${i + 1}: ${threeDigits(p)}${range}`;
      }),
    });
  }
  const longest = Math.max(...lines.map(({ value }) => value.examination.length));
  return {
    data,
    layout: {
      xaxis: { title: { text: "position" }, ...wholeTicks(longest), range: [0.7, longest + 0.3] },
      yaxis: { title: { text: "examination" }, range: [0, highest(lines)] },
    },
  };
}

// Upper end of the axis. A wide band may leave the chart, so that the curves can still be read.
function highest(lines) {
  const curves = lines.flatMap(({ value }) => value.examination).filter(isNumber);
  const bands = lines.flatMap(({ value }) => value.bounds?.[1] ?? []).filter(isNumber);
  const most = Math.max(...curves);
  return 1.05 * Math.min(2 * most, Math.max(most, ...bands));
}

function bandTrace(names, [low, high], alpha) {
  const known = low.flatMap((_, i) => (isNumber(low[i]) && isNumber(high[i]) ? [i] : []));
  const back = [...known].reverse();
  return {
    name: `${listed(names)}, band`,
    x: [...known, ...back].map((i) => i + 1),
    y: [...known.map((i) => low[i]), ...back.map((i) => high[i])],
    mode: "lines",
    line: { width: 0 },
    fill: "toself",
    hoverinfo: "skip",
    fillcolor: methodStyle(names[0], alpha).color,
  };
}

function boundsAt(bounds, i) {
  return bounds.map((own) => own[i]);
}

function threeDigits(x) {
  return fixed(x, 3);
}

function examinationTable(lines) {
  const longest = Math.max(...lines.map(({ value }) => value.examination.length));
  return table(
    "Examination of each position, relative to the first, and its 95\u00a0% interval",
    ["position", ...lines.map(({ names }) => listed(names))],
    Array.from({ length: longest }, (_, i) => [
      i + 1,
      ...lines.map(({ value }) => [
        threeDigits(value.examination[i]),
        value.bounds ? el("small", {}, interval(boundsAt(value.bounds, i), threeDigits)) : "",
      ]),
    ]),
    "by-position",
  );
}

function clipTable(names, { clip, clip_choice: { clips, errors, standard_errors: spread } }) {
  const least = Math.min(...errors.filter(isNumber));
  return table(
    `Error of each clip, ${listed(names)}`,
    ["clip", "error above the least", "standard error", "note"],
    clips.map((own, i) => [
      short(own),
      short(isNumber(errors[i]) ? errors[i] - least : null),
      short(spread[i]),
      own === clip ? "chosen" : "",
    ]),
  );
}
