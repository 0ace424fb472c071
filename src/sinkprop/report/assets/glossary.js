// Words that the page uses, explained.

const GLOSSARY = [
  [
    "NDCG@k",
    "Normalized discounted cumulative gain of the first k places. Each document adds the more, the higher " +
      "its label, and the less, " +
      "the lower its place; the sum is divided by the largest one possible for the query, so that 1 is a " +
      "perfect order.",
  ],
  ["Mean", "The average over the test queries of each fold, then over the folds."],
  ["Fold", "One division of the queries into those to learn from, to choose settings by, and to test on."],
  [
    "Confidence band, 95\u00a0% interval",
    "The range in which the mean would likely fall if other queries of the same kind were drawn: found by " +
      "drawing the queries anew, with replacement, many times (the bootstrap).",
  ],
  [
    "Beyond chance",
    "If two methods were equally good, their difference on a query could as well have the other sign. A " +
      "randomization test turns signs at random " +
      "many times; p is how often the difference comes out as large as the one seen. Below .05, after " +
      "correction for the number of methods " +
      "compared, it is called beyond chance.",
  ],
  [
    "Rank distribution",
    "How probable each place is for a document, as far as the scores tell: documents with nearly equal " +
      "scores could as well stand the other way round. It is no forecast of how often the model is right. " +
      "The matrix of these probabilities, a row a " +
      "document and a column a place, is made by " +
      "Sinkhorn's method: columns and rows are scaled in turn until each sums to 1.",
  ],
  [
    "Sigma",
    "The width of the rank distribution, in units of the scores. Documents whose scores differ by much " +
      "less than sigma may trade places; " +
      "those that differ by much more do not.",
  ],
  [
    "Expected gain",
    "The metric averaged over the rank distribution. It changes smoothly with the scores, so a model can " +
      "be trained on it; the metric " +
      "itself changes in jumps.",
  ],
];

function glossary() {
  return section(
    "glossary",
    "Words",
    el(
      "dl",
      { class: "glossary" },
      GLOSSARY.map(([word, text]) => el("div", {}, el("dt", {}, word), el("dd", {}, text))),
    ),
  );
}
