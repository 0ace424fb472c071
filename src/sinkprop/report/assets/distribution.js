// Rank distributions: Pi, computed like sinkprop.doubly_stochastic for a smoothed indicator.

const STORED = 2500; // with more documents, the kernel matrix is not kept but computed in each product
const NEGLIGIBLE = 1e-14; // smaller entries of a kernel matrix count as 0 in a calibrated distribution
const CONVERGED = 1e-7; // its iterations end once no factor changes by more than this share

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

// Calibrated rank distribution, computed like sinkprop.calibration.widths.RankMixture: a mixture of smoothed
// indicators of several widths, and of equal probabilities, whose weights depend on the number of documents.
function calibratedDistribution(scores, { scale, warp, widths, weights, lengths, n_iter, epsilon }) {
  const n = scores.length;
  const order = orderOf(scores);
  const center = scores.reduce((sum, x) => sum + x, 0) / n;
  const y = Float64Array.from(order, (j) => warped((scores[j] - center) / scale, warp));
  const [low, high] = lengths.map(Math.log);
  const t = high > low ? Math.min(1, Math.max(0, (Math.log(n) - low) / (high - low))) : 0;
  const shares = weights[0].map((w, m) => (1 - t) * w + t * weights[1][m]);
  const Pi = new Float64Array(n * n).fill(shares[widths.length] / n);
  widths.forEach((width, m) => {
    if (shares[m]) addSmoothed(Pi, y, width, shares[m], n_iter, epsilon);
  });
  return summaries(n, order, (i) => Pi.subarray(i * n, (i + 1) * n));
}

// Add share times the matrix of a smoothed indicator to Pi, for scores y in decreasing order. Of its kernel
// matrix, only what is above NEGLIGIBLE is kept: the columns from first[i] to last[i] - 1 of row i.
function addSmoothed(Pi, y, width, share, iterations, epsilon) {
  const n = y.length;
  const reach = width * Math.sqrt(-2 * Math.log(NEGLIGIBLE));
  const [first, last, starts] = [new Int32Array(n), new Int32Array(n), new Int32Array(n + 1)];
  for (let i = 0, low = 0, high = 0; i < n; i += 1) {
    while (y[low] - y[i] > reach) low += 1;
    while (high < n && y[i] - y[high] <= reach) high += 1;
    first[i] = low;
    last[i] = high;
    starts[i + 1] = starts[i] + high - low;
  }
  const K = new Float64Array(starts[n]);
  for (let i = 0; i < n; i += 1)
    for (let k = first[i], at = starts[i]; k < last[i]; k += 1, at += 1)
      K[at] = Math.exp(-(((y[i] - y[k]) / width) ** 2) / 2);
  const balance = (q) => {
    const rest = epsilon * q.reduce((sum, x) => sum + x, 0);
    const result = new Float64Array(n);
    for (let i = 0; i < n; i += 1) {
      let sum = rest;
      for (let k = first[i], at = starts[i]; k < last[i]; k += 1, at += 1) sum += K[at] * q[k];
      result[i] = 1 / sum;
    }
    return result;
  };
  let columns = null;
  let rows = new Float64Array(n).fill(1);
  for (let t = 0; t < iterations; t += 1) {
    const before = rows;
    columns = balance(rows);
    rows = balance(columns);
    if (rows.every((x, i) => Math.abs(x - before[i]) <= CONVERGED * x)) break;
  }
  for (let i = 0; i < n; i += 1) {
    const base = i * n;
    for (let k = 0; k < n; k += 1) Pi[base + k] += share * rows[i] * epsilon * columns[k];
    for (let k = first[i], at = starts[i]; k < last[i]; k += 1, at += 1)
      Pi[base + k] += share * rows[i] * K[at] * columns[k];
  }
}

function warped(z, [kind, parameter]) {
  if (kind === "softplus") {
    const d = 2 * (z - parameter);
    return 0.5 * (Math.max(d, 0) + Math.log1p(Math.exp(-Math.abs(d))));
  }
  return parameter === 0 ? z : Math.expm1(Math.min(6, Math.max(-6, parameter * z))) / parameter;
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

// Whether any method has probabilities of ranks; given scores have none.
function hasDistributions(d) {
  return Object.keys(d.explorer?.distributions ?? {}).length > 0;
}
