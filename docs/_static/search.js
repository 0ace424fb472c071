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
  score: ([docname, title, anchor, descr, score, filename, kind]) => {
    const place = PLACES.find(([pattern]) => pattern.test(docname));
    const isTitle = kind === "title" && !anchor; // of a page, not of a section
    return score + (place ? place[1] : 0) + (isTitle ? 20 : 0);
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
