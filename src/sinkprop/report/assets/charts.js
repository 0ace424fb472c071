// Charts by plotly in the page's colors. They are drawn when they come near the view, and all of them before
// printing. Plotly is the last script of the page, since it takes longest to load: everything without a chart
// is shown and works before it is loaded.

const DASHES = ["dash", "dot", "dashdot", "longdash", "longdashdot"];
const MARKERS = ["circle", "square", "diamond", "triangle-up", "triangle-down", "x", "cross", "star"];
const MARKER_PATHS = [
  "M18 7m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0",
  "M14.5 3.5h7v7h-7z",
  "M18 2l5 5l-5 5l-5 -5z",
  "M18 2.5l5 8h-10z",
  "M18 11.5l5 -8h-10z",
  "M15 2.5l3 3l3 -3l1.5 1.5l-3 3l3 3l-1.5 1.5l-3 -3l-3 3l-1.5 -1.5l3 -3l-3 -3z",
  "M16.5 2.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
  "M18 1.5l1.6 4h4.2l-3.4 2.6l1.3 4.2l-3.7 -2.5l-3.7 2.5l1.3 -4.2l-3.4 -2.6h4.2z",
];
const DASH_ARRAYS = {
  solid: null,
  dash: "6 3",
  dot: "2 2",
  dashdot: "6 2 2 2",
  longdash: "10 3",
  longdashdot: "10 2 2 2",
};

let charts = [];
let probe = null;

const near = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      const chart = charts.find((own) => own.node === entry.target);
      if (chart) chart.visible = entry.isIntersecting;
      if (chart && chart.visible) draw(chart);
    }
  },
  { rootMargin: "300px" },
);

// Forget the charts of the page that is about to be replaced.
function clearCharts() {
  near.disconnect();
  const old = charts;
  charts = [];
  // A drawing that was begun may still be finishing.
  setTimeout(() => old.filter((own) => own.drawn).forEach((own) => Plotly.purge(own.node)), 1000);
}

// A chart with a label for screen readers; `make` returns { data, layout, events }. `update` redraws it.
function chart(label, make, height = 360) {
  const node = el("div", {
    class: "chart",
    role: "figure",
    "aria-label": label,
    style: `min-height: ${height}px`,
  });
  const own = { node, make, height, drawn: false, stale: true, visible: false };
  own.update = () => {
    own.stale = true;
    if (own.visible) draw(own);
  };
  charts.push(own);
  near.observe(node);
  return own;
}

function draw(own) {
  if (!window.Plotly || !own.stale || !own.node.isConnected) return;
  const { data, layout, events = {} } = own.make();
  own.stale = false;
  Plotly.react(own.node, data, dressed(layout, own.height), {
    displayModeBar: false,
    responsive: true,
    doubleClick: false,
  });
  if (own.drawn) return;
  own.drawn = true;
  for (const [name, listener] of Object.entries(events)) own.node.on(`plotly_${name}`, listener);
}

function drawAll() {
  for (const own of charts) draw(own);
}

// Draw the charts that are not near the view, one at a time while the page is idle.
function drawAtLeisure() {
  const idle = window.requestIdleCallback ?? ((work) => setTimeout(work, 200));
  idle(() => {
    if (!window.Plotly) return; // called again when plotly is loaded
    const next = charts.find((own) => own.stale && own.node.isConnected);
    if (next) {
      draw(next);
      drawAtLeisure();
    }
  });
}

// Draw the charts that are in or near the view.
function drawNear() {
  for (const own of charts) if (own.visible) draw(own);
}

function redrawCharts() {
  for (const own of charts) {
    own.stale = true;
    if (own.visible) draw(own);
  }
  drawAtLeisure();
}

// A color of the style sheet in the current theme.
function color(name, alpha = 1) {
  if (!probe) probe = document.body.appendChild(el("span", { hidden: true }));
  probe.style.color = `var(--${name})`;
  const [r, g, b] = getComputedStyle(probe)
    .color.match(/[\d.]+/g)
    .map(Number);
  return `rgba(${r}, ${g}, ${b}, ${alpha})`;
}

function methodIndex(name) {
  return METHODS.findIndex((method) => method.name === name);
}

// The style that distinguishes a method: a color, a dash and a marker; ours have a heavier, solid line.
function methodStyle(name, alpha = 1) {
  const i = methodIndex(name);
  const ours = METHODS[i].ours;
  return {
    color: color(`method-${i % 8}`, alpha),
    dash: ours ? "solid" : DASHES[i % DASHES.length],
    symbol: MARKERS[(i + Math.floor(i / 8)) % 8],
    width: ours ? 3 : 1.8,
  };
}

function swatch(name) {
  const i = methodIndex(name);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const dash = METHODS[i].ours ? "solid" : DASHES[i % DASHES.length];
  const parts = {
    viewBox: "0 0 36 14",
    width: "36",
    height: "14",
    "aria-hidden": "true",
    class: `swatch method-${i % 8}`,
  };
  for (const [key, value] of Object.entries(parts)) svg.setAttribute(key, value);
  const line = document.createElementNS(svg.namespaceURI, "path");
  line.setAttribute("d", "M0 7h36");
  line.setAttribute("stroke-width", METHODS[i].ours ? "3" : "1.8");
  if (DASH_ARRAYS[dash]) line.setAttribute("stroke-dasharray", DASH_ARRAYS[dash]);
  const marker = document.createElementNS(svg.namespaceURI, "path");
  marker.setAttribute("d", MARKER_PATHS[(i + Math.floor(i / 8)) % 8]);
  marker.setAttribute("class", "marker");
  svg.append(line, marker);
  return svg;
}

// Escaped text for a chart's labels, in which plotly would interpret some tags.
function plain(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

function shortened(text, length = 26) {
  return text.length > length ? `${text.slice(0, length - 1)}\u2026` : text;
}

// A layout with the page's fonts and colors on every axis.
function dressed(layout, height) {
  const axis = {
    gridcolor: color("grid"),
    zerolinecolor: color("axis"),
    linecolor: color("axis"),
    tickcolor: color("axis"),
    fixedrange: true,
    automargin: true,
  };
  const axes = Object.entries(layout).filter(([key]) => /^[xy]axis\d*$/.test(key));
  const titled = (own) =>
    own.title ? { title: { ...own.title, font: { size: 13, color: color("muted") }, standoff: 10 } } : {};
  return {
    height,
    autosize: true,
    dragmode: false,
    showlegend: false,
    hovermode: "closest",
    paper_bgcolor: "rgba(0, 0, 0, 0)",
    plot_bgcolor: "rgba(0, 0, 0, 0)",
    font: {
      family: "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
      size: 13,
      color: color("ink"),
    },
    hoverlabel: {
      bgcolor: color("raised"),
      bordercolor: color("axis"),
      font: { color: color("ink"), size: 13 },
      align: "left",
    },
    margin: { l: 56, r: 16, t: 16, b: 48 },
    ...layout,
    ...Object.fromEntries(axes.map(([key, own]) => [key, { ...axis, ...own, ...titled(own) }])),
  };
}

// Ticks at whole numbers from 1 to n, few enough not to overlap.
function wholeTicks(n) {
  return n <= 12 ? { tick0: 1, dtick: 1 } : { nticks: 9 };
}

function isNarrow() {
  return innerWidth < 640;
}

function isDark() {
  return (
    state.theme === "dark" || (state.theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches)
  );
}
