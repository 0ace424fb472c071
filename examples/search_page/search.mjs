// Search over the index that build.py writes: candidates of a query, and their features.
//
// Words, formulas and their names are those of tools/make_pydocs.py. The order of operations is the same as well,
// so that the features are those of Python up to rounding.

const FIELDS = ["name", "signature", "summary", "body", "whole"];
const K1 = 1.2, B = 0.75;

/** Stems of the words of a text or an identifier, without stop words, single letters and numbers. */
export function tokens(text, stopWords) {
  const words = text.replaceAll("IPv", "Ipv").match(/[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+\p{Nd}*|[A-Z]+\p{Nd}*/gu) ?? [];
  const lower = words.map((word) => word.toLowerCase());
  return lower.filter((word) => word.length > 1 && !stopWords.has(word)).map(stem);
}

/** Step 1 of Porter's algorithm, then without a final e. */
export function stem(word) {
  const vowel = /[aeiou]|(?<=[^aeiou])y/;
  if (word.endsWith("sses") || word.endsWith("ies")) word = word.slice(0, -2);
  else if (word.endsWith("s") && !word.endsWith("ss") && word.length > 3) word = word.slice(0, -1);
  if (word.endsWith("eed")) {
    if (/[aeiouy][^aeiouy]/.test(word.slice(0, -3))) word = word.slice(0, -1);
  } else {
    for (const ending of ["ed", "ing"]) {
      if (!word.endsWith(ending)) continue;
      const root = word.slice(0, -ending.length);
      if (!vowel.test(root)) continue;
      if (/(at|bl|iz)$/.test(root)) word = root + "e";
      else if (root.length > 1 && root.at(-1) === root.at(-2) && !"aeioulsz".includes(root.at(-1))) word = root.slice(0, -1);
      else if (/^[^aeiou]*[aeiouy][^aeiouwxy]$/.test(root)) word = root + "e";
      else word = root;
      break;
    }
  }
  if (word.endsWith("y") && vowel.test(word.slice(0, -1))) word = word.slice(0, -1) + "i";
  return word.endsWith("e") && word.length > 4 ? word.slice(0, -1) : word;
}

/** A sum with the rounding errors added up (Neumaier): equal terms in another order have the same sum. */
function sum(terms) {
  let total = 0, errors = 0;
  for (const x of terms) {
    const next = total + x;
    errors += Math.abs(total) >= Math.abs(x) ? total - next + x : x - next + total;
    total = next;
  }
  return total + errors;
}

/** Word statistics of one field; tf(t) has the occurrences of the word with number t by document. */
class Index {
  #maps = new Map();

  constructor(postings, n) {
    this.postings = postings; // one list per field that it consists of: [gap, tf, gap, tf, ...] of each word
    this.n = n;
    this.length = new Float64Array(n);
    this.distinct = new Float64Array(n);
    this.total = 0;
    this.vocabulary = postings[0].length;
    const last = new Int32Array(n).fill(-1);
    for (let t = 0; t < this.vocabulary; t++) {
      this.#each(t, (d, tf) => {
        this.length[d] += tf;
        this.total += tf;
        if (last[d] !== t) this.distinct[d]++;
        last[d] = t;
      });
    }
    this.meanLength = this.total / n;
  }

  #each(t, call) {
    for (const lists of this.postings) {
      for (let i = 0, d = -1; i < lists[t].length; i += 2) call((d += lists[t][i]), lists[t][i + 1]);
    }
  }

  tf(t) {
    let map = this.#maps.get(t);
    if (!map) {
      this.#maps.set(t, (map = new Map()));
      this.#each(t, (d, tf) => map.set(d, (map.get(d) ?? 0) + tf));
    }
    return map;
  }

  /** What the formulas need of each word of a query. */
  query(words) {
    return words.map((t) => {
      const tf = this.tf(t);
      const occurrences = [...tf.values()].reduce((a, b) => a + b, 0);
      return {
        tf,
        idf: Math.log(1 + (this.n - tf.size + 0.5) / (tf.size + 0.5)),
        background: (occurrences + 0.5) / (this.total + 0.5 * this.vocabulary),
      };
    });
  }
}

/** The features of a field, as functions of an index, a document and the words of a query there. */
const FIELD_FEATURES = {
  tf: (index, d, words) => sum(words.map(({ tf }) => tf.get(d) ?? 0)),
  idf: (index, d, words) => sum(words.map(({ tf, idf }) => (tf.has(d) ? idf : 0))),
  tfidf: (index, d, words) => sum(words.map(({ tf, idf }) => Math.log1p(tf.get(d) ?? 0) * idf)),
  bm25(index, d, words) {
    const norm = K1 * (1 - B + (B * index.length[d]) / index.meanLength);
    return sum(words.filter(({ tf }) => tf.has(d)).map(({ tf, idf }) => (idf * tf.get(d) * (K1 + 1)) / (tf.get(d) + norm)));
  },
  lm_jm(index, d, words) {
    const length = Math.max(index.length[d], 1);
    return sum(words.map(({ tf, background }) => Math.log((0.5 * (tf.get(d) ?? 0)) / length + 0.5 * background)));
  },
  lm_dir(index, d, words) {
    const mu = index.meanLength;
    return sum(words.map(({ tf, background }) => Math.log(((tf.get(d) ?? 0) + mu * background) / (index.length[d] + mu))));
  },
  lm_abs(index, d, words) {
    const length = index.length[d], delta = 0.7;
    if (!length) return sum(words.map(({ background }) => Math.log(background)));
    const left = delta * index.distinct[d];
    return sum(
      words.map(({ tf, background }) => Math.log((Math.max((tf.get(d) ?? 0) - delta, 0) + left * background) / length)),
    );
  },
  length: (index, d) => Math.log1p(index.length[d]),
  coverage: (index, d, words) => (words.length ? words.filter(({ tf }) => tf.has(d)).length / words.length : 0),
};

/** The documents, with one index per field. */
export class Collection {
  constructor({ documents, vocabulary, postings, stopWords, runs, nCandidates }) {
    this.documents = documents;
    this.n = documents.docid.length;
    this.runs = runs;
    this.nCandidates = nCandidates;
    this.stopWords = new Set(stopWords);
    this.number = new Map(vocabulary.map((word, t) => [word, t]));
    this.index = Object.fromEntries(FIELDS.slice(0, 4).map((field) => [field, new Index([postings[field]], this.n)]));
    this.index.whole = new Index(FIELDS.slice(0, 4).map((field) => postings[field]), this.n);
  }

  /** Numbers of the distinct words of a text that occur in any document, in order. */
  words(text) {
    const numbers = tokens(text, this.stopWords).map((word) => this.number.get(word));
    return [...new Set(numbers.filter((t) => t !== undefined))];
  }

  /** Documents that contain a word of the query in a field, best first by a feature of the field. */
  ranking(feature, field, words) {
    const index = this.index[field], query = index.query(words);
    const found = [...new Set(query.flatMap(({ tf }) => [...tf.keys()]))];
    const scored = found.map((d) => [FIELD_FEATURES[feature](index, d, query), d]);
    return scored.sort(([a, c], [b, d]) => b - a || c - d).map(([, d]) => d); // documents are in order of their names
  }

  /** The documents that the model ranks: the first of several rankings in turn. */
  candidates(words) {
    let rankings = this.runs.map(([feature, field]) => this.ranking(feature, field, words)[Symbol.iterator]());
    const chosen = new Set();
    while (rankings.length && chosen.size < this.nCandidates) {
      rankings = rankings.filter((ranking) => {
        if (chosen.size >= this.nCandidates) return true;
        let next = ranking.next();
        while (!next.done && chosen.has(next.value)) next = ranking.next();
        if (!next.done) chosen.add(next.value);
        return !next.done;
      });
    }
    return [...chosen];
  }

  /** The features of documents, one row after the other, each feature scaled to [0, 1] among these documents. */
  features(documents, words) {
    const queries = FIELDS.map((field) => [this.index[field], this.index[field].query(words)]);
    const [whole, query] = queries.at(-1);
    const { parent, kind, parts, parameters, siblings } = this.documents;
    const rows = documents.map((d) => [
      ...queries.flatMap(([index, words]) => Object.values(FIELD_FEATURES).map((feature) => feature(index, d, words))),
      parent[d] < 0 ? 0 : FIELD_FEATURES.bm25(whole, parent[d], query),
      parts[d],
      kind[d],
      Math.log1p(parameters[d]),
      Math.log1p(siblings[d]),
    ]);
    return scaled(rows);
  }
}

/** As in LETOR's QueryLevelNorm; 0 if the feature is constant. */
function scaled(rows) {
  const width = rows[0]?.length ?? 0;
  const result = new Float64Array(rows.length * width);
  for (let j = 0; j < width; j++) {
    let low = Infinity, high = -Infinity;
    for (const row of rows) {
      low = Math.min(low, row[j]);
      high = Math.max(high, row[j]);
    }
    if (high - low <= 1e-12 * Math.max(Math.abs(low), Math.abs(high))) continue;
    rows.forEach((row, i) => (result[i * width + j] = (row[j] - low) / (high - low)));
  }
  return result;
}
