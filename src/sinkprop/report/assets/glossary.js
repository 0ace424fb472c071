// Definitions of the terms that the page uses.

const GLOSSARY = [
  [
    "NDCG@k",
    "Normalized discounted cumulative gain of the first k ranks. Each document adds a gain that grows with " +
      "its label and is discounted by its rank. The sum is divided by the largest sum possible for the " +
      "query, so that 1 is a perfect ranking.",
  ],
  ["Mean", "The average over the test queries of each fold, then over the folds."],
  ["Fold", "One split of the queries into training, validation and test queries."],
  [
    "Confidence band, 95\u00a0% interval",
    "The range in which the mean would likely fall for other queries of the same kind. It is computed by " +
      "the bootstrap: the queries are resampled many times with replacement.",
  ],
  [
    "Statistically significant",
    "If two methods were equally good, their difference on a query could just as well have the other sign. " +
      "A randomization test flips these signs at random many times; p is the share of trials in which the " +
      "mean difference is at least as large as the observed one. A difference is called significant if p " +
      "is below .05 after correction for the number of methods compared (Holm).",
  ],
  [
    "Rank distribution",
    "The probability of each rank for a document, as implied by the scores: documents with nearly equal " +
      "scores could just as well be in the opposite order. Unless it is calibrated, it does not predict how " +
      "often the model is right. The matrix of these probabilities has one row per document and one column per rank. It is " +
      "made by Sinkhorn normalization, which scales columns and rows in turn until each sums to 1.",
  ],
  [
    "Calibrated",
    "Of all documents with probability .7, about seven in ten have the property. A calibration is fitted to " +
      "the scores and labels of queries that the model was not trained on, and holds for queries like them.",
  ],
  [
    "Calibration error",
    "Forecasts are sorted into ten bins by their probability. The error is the mean distance between the " +
      "mean probability and the observed frequency of a bin, weighted by the number of forecasts.",
  ],
  [
    "Sigma",
    "The width of the rank distribution, in units of the scores. Documents whose scores differ by much " +
      "less than sigma can easily exchange ranks; with a much larger difference they hardly do.",
  ],
  [
    "Expected gain",
    "The metric averaged over the rank distribution. It changes smoothly with the scores, so a model can " +
      "be trained on it; the metric itself changes in jumps.",
  ],
];

function glossary() {
  return section(
    "glossary",
    "Glossary",
    el(
      "dl",
      { class: "glossary" },
      GLOSSARY.map(([word, text]) => el("div", {}, el("dt", {}, word), el("dd", {}, text))),
    ),
  );
}
