// Rank distributions: Pi, computed like sinkprop.doubly_stochastic for a smoothed indicator.

const STORED = 2500; // with more documents, the kernel matrix is not kept but computed in each product

// Documents by decreasing score, with ties in the order of the data.
function orderOf(scores) {
  return Array.from(scores.keys()).sort((i, j) => scores[j] - scores[i] || i - j);
}

// In the order of the scores the matrix A is the symmetric K((y_i - y_k) / sigma) + epsilon, and after h half
// steps Pi = diag(u) A diag(v), where q_0 = 1, q_(t+1) = 1 / (A q_t), and v, u are the last two by parity.
function rankDistribution(scores, { kernel, sigma, n_iter: iterations, epsilon }) {
  const n = scores.length;
  const order = orderOf(scores);
  const y = Float64Array.from(order, (j) => scores[j]);
  const K =
    kernel === "laplace" ? (d) => Math.exp(-Math.abs(d / sigma)) : (d) => Math.exp(-((d / sigma) ** 2) / 2);
  const row = kernelRows(y, K);
  let columns = new Float64Array(n).fill(1);
  let rows = columns;
  for (let t = 0; t < Math.round(2 * iterations); t += 1) {
    if (t % 2) rows = balanced(row, columns, epsilon);
    else columns = balanced(row, rows, epsilon);
  }
  return summaries(n, order, (i) => {
    const own = row(i);
    return Float64Array.from(own, (x, k) => rows[i] * (x + epsilon) * columns[k]);
  });
}

// i -> row i of the kernel matrix; with more than STORED documents the next call overwrites the row.
function kernelRows(y, K) {
  const n = y.length;
  const fill = (own, i) => {
    for (let k = 0; k < n; k += 1) own[k] = K(y[i] - y[k]);
    return own;
  };
  if (n > STORED) {
    const own = new Float64Array(n);
    return (i) => fill(own, i);
  }
  const all = new Float64Array(n * n);
  for (let i = 0; i < n; i += 1) fill(all.subarray(i * n, (i + 1) * n), i);
  return (i) => all.subarray(i * n, (i + 1) * n);
}

function balanced(row, q, epsilon) {
  const n = q.length;
  const total = epsilon * q.reduce((sum, x) => sum + x, 0);
  const result = new Float64Array(n);
  for (let i = 0; i < n; i += 1) {
    const own = row(i);
    let sum = total;
    for (let k = 0; k < n; k += 1) sum += own[k] * q[k];
    result[i] = 1 / sum;
  }
  return result;
}

// A matrix that is stored in the data as bytes relative to its largest entry: one row per document, in the
// order of the file.
function storedDistribution(scores, text, peak) {
  const n = scores.length;
  const order = orderOf(scores);
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  return summaries(n, order, (i) => {
    const start = order[i] * n;
    return Float64Array.from(bytes.subarray(start, start + n), (x) => (x / 255) * peak);
  });
}

// row(i): the probabilities of ranks 1 to n for the document at position i of the ranking, from 0.
function summaries(n, order, row) {
  return {
    n,
    order,
    row,
    describe(i) {
      const p = row(i);
      const total = p.reduce((sum, x) => sum + x, 0);
      return {
        expected: p.reduce((sum, x, k) => sum + x * (k + 1), 0) / total,
        likely: [quantile(p, 0.1 * total), quantile(p, 0.9 * total)],
        reach: quantile(p, 0.999 * total),
        top: p.subarray(0, 10).reduce((sum, x) => sum + x, 0) / total,
      };
    },
  };
}

// The first rank at which the cumulative probability reaches `mass`.
function quantile(p, mass) {
  let sum = 0;
  for (let k = 0; k < p.length; k += 1) {
    sum += p[k];
    if (sum >= mass * (1 - 1e-12)) return k + 1;
  }
  return p.length;
}
