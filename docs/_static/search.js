/* Order of the search results: guides and tutorials, then explanations, results and the API, then lists of changes and sources. */
const PLACES = [
  [/^(changelog|bibliography|benchmarks|pydocs|genindex|commands|notation)$/, -60],
  [/^api\//, -30],
  [/^(results|speed|linear-time|why|hinton)$/, -20],
  [/^(index|guides|understanding|examples|tutorials\/index)$/, -8],
  [/^start$/, 12],
  [/^(tutorials\/|[a-z_-]+$)/, 10],
];

var Scorer = {
  score: ([docname, title, anchor, descr, score]) => {
    const place = PLACES.find(([pattern]) => pattern.test(docname));
    return score + (place ? place[1] : 0);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 30,
  partialTitle: 14,
  term: 5,
  partialTerm: 2,
};
