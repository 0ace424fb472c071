// Numbers and names as text.

const MINUS = "\u2212";
const DASH = "\u2013";

function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

function fixed(value, decimals = 4) {
  if (!isNumber(value)) return DASH;
  const text = Math.abs(value).toFixed(decimals);
  return value < 0 && Number(text) !== 0 ? MINUS + text : text;
}

function signed(value, decimals = 4) {
  if (!isNumber(value)) return DASH;
  const text = fixed(value, decimals);
  return value > 0 && Number(text) !== 0 ? `+${text}` : text;
}

// A number of any size, with four significant digits.
function short(value) {
  if (!isNumber(value)) return DASH;
  if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e5))
    return value.toExponential(2).replace("-", MINUS);
  return String(Number(value.toPrecision(4))).replace("-", MINUS);
}

function whole(value) {
  // By hand: the first toLocaleString of a page takes a tenth of a second.
  return isNumber(value) ? String(value).replace(/\B(?=(\d{3})+$)/g, ",") : DASH;
}

function count(n, one, many = `${one}s`) {
  return `${whole(n)} ${n === 1 ? one : many}`;
}

function percent(p) {
  if (!isNumber(p)) return DASH;
  const x = 100 * p;
  if (x > 0 && x < 0.1) return "< 0.1\u00a0%";
  if (x < 100 && x > 99.9) return "> 99.9\u00a0%";
  return `${x < 10 ? x.toFixed(1) : Math.round(x)}\u00a0%`;
}

function probability(p) {
  if (!isNumber(p)) return DASH;
  return p < 0.00005 ? "< .0001" : p.toFixed(4).replace(/^0/, "");
}

function interval(pair, show = fixed) {
  return pair && isNumber(pair[0]) && isNumber(pair[1]) ? `${show(pair[0])} to ${show(pair[1])}` : DASH;
}

function seconds(value) {
  if (!isNumber(value)) return DASH;
  if (value < 0.1) return `${Number((1000 * value).toPrecision(2))} ms`;
  return value < 10 ? `${value.toFixed(2)} s` : `${whole(Math.round(value))} s`;
}

function listed(names) {
  if (names.length < 2) return names.join("");
  return `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}`;
}

const NUMBER_WORDS = [
  "No",
  "One",
  "Two",
  "Three",
  "Four",
  "Five",
  "Six",
  "Seven",
  "Eight",
  "Nine",
  "Ten",
  "Eleven",
  "Twelve",
];

function counted(n) {
  return NUMBER_WORDS[n] ?? whole(n);
}

// ndcg@10 as NDCG@10, map as MAP; options in parentheses stay as they are written.
function metricName(metric) {
  return String(metric).replace(/\b(ndcg|dcg|map|mrr|rbp|err|p)\b/g, (word) => word.toUpperCase());
}

function mean(values) {
  const known = values.filter(isNumber);
  return known.length ? known.reduce((sum, x) => sum + x, 0) / known.length : null;
}

function argmax(names, value) {
  let best = null;
  for (const name of names) {
    if (isNumber(value(name)) && (best === null || value(name) > value(best))) best = name;
  }
  return best;
}
