// The findings in plain words: what was compared, which method is best, by how much, and whether the
// difference is statistically significant.

function opening(d) {
  const names = methodNames(d);
  const best = leader(d);
  const node = section("opening", "Findings");
  if (best === null) {
    put(node, empty("This report has no test means for this data set."));
    return node;
  }
  put(
    node,
    el("p", { class: "lead" }, names.length > 1 ? whoIsAhead(d, best) : whatOneReached(d, best)),
    keyFigures(d, best),
    el(
      "div",
      { class: "prose" },
      el("p", {}, whatWasCompared(d)),
      names.length > 1 && el("p", {}, beyondChance(d, best)),
      names.length > 1 && queryCounts(d, best),
      el("p", {}, whatTheMetricMeans()),
      methodList(names),
    ),
    DATASETS.length > 1 && overDataSets(),
  );
  return node;
}

function strong(text) {
  return el("strong", {}, text);
}

// The tests of methods of this report against its reference.
function testsOf(d) {
  const names = methodNames(d);
  return (d.tests ?? []).filter((test) => test.against === REPORT.against && names.includes(test.method));
}

function testOf(d, method, metric = MAIN) {
  return testsOf(d).find((test) => test.method === method && test.metric === metric) ?? null;
}

// The method that the leader is compared with: the reference, or the best of the others if the reference
// leads.
function strongestOther(d, best) {
  const others = methodNames(d).filter((name) => name !== best);
  return others.includes(REPORT.against) ? REPORT.against : (leader(d, others) ?? others[0]);
}

function whoIsAhead(d, best) {
  const other = strongestOther(d, best);
  const lead = d.means[best][MAIN] - d.means[other]?.[MAIN];
  const test = best === REPORT.against ? testOf(d, other) : testOf(d, best);
  const known =
    test === null
      ? ""
      : test.verdict
        ? ". The difference is statistically significant (p < .05)"
        : ". The difference is not statistically significant";
  if (isNumber(lead) && Number(lead.toFixed(4)) === 0) {
    return [strong(best), ` and `, strong(other), ` are tied on ${d.name}.`];
  }
  return [
    strong(best),
    ` is best on ${d.name}: its mean ${metricName(MAIN)} is ${fixed(d.means[best][MAIN])}, `,
    `${fixed(lead)} above `,
    strong(other),
    `${known}.`,
  ];
}

function whatOneReached(d, best) {
  return [strong(best), ` reaches a mean ${metricName(MAIN)} of ${fixed(d.means[best][MAIN])} on ${d.name}.`];
}

function whatWasCompared(d) {
  const names = methodNames(d);
  const glance = d.glance ?? {};
  const labels = glance.labels?.values ?? [];
  const folds = foldNames(d);
  const what = names.length === 1 ? "One ranking method" : `${counted(names.length)} ranking methods`;
  const highest = labels.length > 2 ? "most relevant" : "relevant";
  const grades =
    labels.length > 1
      ? `, each with a label from ${labels[0]} (not relevant) to ${labels[labels.length - 1]} (${highest})`
      : "";
  const size = isNumber(glance.queries)
    ? `: ${count(glance.queries, "query", "queries")} with ${count(glance.documents, "document")}${grades}. `
    : ". ";
  const inFolds = folds.length > 1 ? `, in ${folds.length} folds` : "";
  const tested = glance.parts?.some((part) => part.part === "train")
    ? "Methods that learn were trained on some of the queries. All methods were tested on other queries, " +
      `which none of them had seen${inFolds}.`
    : "Nothing was trained for this report.";
  const were = names.length === 1 ? "was" : "were";
  return `${what} ${were} tested on ${d.name}${size}${tested}`;
}

function foldNames(d) {
  const first = Object.values(d.folds ?? {})[0];
  return first ? Object.keys(first) : [...new Set((d.queries ?? []).map((query) => query.fold))];
}

// Every method against the reference: which differ significantly from it.
function beyondChance(d, best) {
  const tested = methodNames(d).filter((name) => name !== REPORT.against && testOf(d, name));
  if (!tested.length)
    return "This report has no significance tests of the differences.";
  const by = (verdict) => tested.filter((name) => testOf(d, name).verdict === verdict);
  const [better, worse, open] = [by(1), by(-1), by(0)];
  const says = (names, words) => (names.length ? `${listed(names)} ${words}` : null);
  const claims = [
    says(better, `${better.length > 1 ? "are" : "is"} better than ${REPORT.against}`),
    says(worse, `${worse.length > 1 ? "are" : "is"} worse than ${REPORT.against}`),
  ].filter(Boolean);
  const sure = claims.length ? `Statistically significant (p < .05): ${claims.join("; ")}.` : "";
  const test = best === REPORT.against ? null : testOf(d, best);
  return [sure, notTold(d, open), test && howLarge(test), secondBest(d, best)].filter(Boolean).join(" ");
}

// The methods that do not differ significantly from the reference, and how often chance gives as much.
function notTold(d, open) {
  if (!open.length) return "";
  if (open.length > 1) {
    return (
      `The differences of ${listed(open)} from ${REPORT.against} are not statistically significant: without ` +
      "real differences, ones as large would occur by chance too often."
    );
  }
  return (
    `The difference of ${open[0]} from ${REPORT.against} is not statistically significant: without a real ` +
    `difference, one as large would occur by chance ${howOften(testOf(d, open[0]).randomization_holm)}.`
  );
}

function howLarge({ method, against, interval: range }) {
  if (interval(range, signed) === DASH) return "";
  const [low, high] = range.map((x) => signed(x));
  return (
    `The difference between ${method} and ${against} has a 95\u00a0% confidence interval from ${low} to ` +
    `${high}.`
  );
}

// Only differences to the reference are tested, so nothing but the mean of the second best is known.
function secondBest(d, best) {
  const next = leader(
    d,
    methodNames(d).filter((name) => name !== best),
  );
  if (next === null || next === REPORT.against || best === REPORT.against) return "";
  const behind = fixed(d.means[best][MAIN] - d.means[next][MAIN]);
  return `The second best method is ${next}, ${behind} below ${best}; this difference was not tested.`;
}

function howOften(p) {
  if (!isNumber(p)) return "too often";
  return p > 0.95 ? "almost always" : `in about ${Math.max(1, Math.round(100 * p))} of 100 such experiments`;
}

function queryCounts(d, best) {
  const other = strongestOther(d, best);
  const { wins, ties, losses } = winsAndLosses(differences(d, best, other, MAIN));
  if (!(wins + ties + losses)) return null;
  return el(
    "p",
    {},
    `By query, ${best} gives the better ranking for ${wins}, ${other} for ${losses}, and ${
      ties === 1 ? "1 is tied" : `${ties} are tied`
    }. `,
    "The mean does not show this; see the ",
    el("a", { href: "#queries" }, "differences per query"),
    " and the ",
    el("a", { href: "#explorer" }, "ranking explorer"),
    ".",
  );
}

function whatTheMetricMeans() {
  if (!/^ndcg/.test(MAIN)) {
    return `${metricName(MAIN)} is higher if the relevant documents are closer to the top.`;
  }
  const level = /@(\d+)/.exec(MAIN);
  const ranks = level ? `the first ${level[1]} ranks` : "all ranks";
  return (
    `${metricName(MAIN)} depends on ${ranks} of a ranking. It is 1 if the most relevant documents are at the ` +
    "top, and it falls toward 0 as they move down."
  );
}

function methodList(names) {
  const described = names.filter((name) => methodAbout(name).description);
  return (
    described.length > 0 && [
      el("h3", {}, names.length === 1 ? "The method" : "The methods"),
      el(
        "ul",
        { class: "methods" },
        described.map((name) =>
          el("li", {}, swatch(name), el("span", {}, strong(name), `: ${methodAbout(name).description}`)),
        ),
      ),
    ]
  );
}

function keyFigures(d, best) {
  const other = methodNames(d).length > 1 ? strongestOther(d, best) : null;
  const test = other === null ? null : best === REPORT.against ? testOf(d, other) : testOf(d, best);
  const range = interval(d.intervals?.[best]?.[MAIN]);
  const items = [
    [
      fixed(d.means[best][MAIN]),
      `mean ${metricName(MAIN)} of ${best}${range === DASH ? "" : `, 95\u00a0% interval ${range}`}`,
    ],
    other !== null && [signed(d.means[best][MAIN] - d.means[other][MAIN]), `above ${other}`],
    test && [
      test.verdict ? "significant" : "not significant",
      `p = ${probability(test.randomization_holm)}, ${whole(test.n_queries)} queries`,
    ],
    isNumber(d.glance?.queries) && [
      whole(d.glance.queries),
      d.glance.queries === 1 ? "test query" : "test queries",
    ],
  ].filter(Boolean);
  return el(
    "dl",
    { class: "figures" },
    items.map(([value, text]) => el("div", {}, el("dt", {}, text), el("dd", {}, value))),
  );
}

function overDataSets() {
  const rows = DATASETS.map((d, i) => {
    const best = leader(d);
    const other = best === null ? null : strongestOther(d, best);
    const test = best === null ? null : best === REPORT.against ? testOf(d, other) : testOf(d, best);
    const open = el("button", { type: "button", class: "link", onclick: () => changeDataSet(i) }, d.name);
    return [
      i === state.data ? strong(d.name) : open,
      best ?? DASH,
      fixed(d.means?.[best]?.[MAIN]),
      other ? signed(d.means[best][MAIN] - d.means[other]?.[MAIN]) : DASH,
      other ?? DASH,
      test ? (test.verdict ? "significant" : "not significant") : DASH,
    ];
  });
  const heads = ["data set", "best method", metricName(MAIN), "difference", "from", "significance"];
  return scrolling("All data sets", table("All data sets of this report", heads, rows));
}
