// The page: its header, its sections, and its behavior when it is opened, resized and printed.

const SECTIONS = [
  ["opening", "Findings", opening],
  ["glance", "Data", glance],
  ["curves", "Curves", curves],
  ["scores", "Metrics", scores],
  ["training", "Training", training],
  // only if a model was trained on clicks
  ...(DATASETS.some((d) => d.clicks) ? [["clicks", "Clicks", clicks]] : []),
  ["queries", "Queries", queries],
  ["weights", "Features", weights],
  ["calibration", "Calibration", calibration],
  ["explorer", "Explorer", explorer],
  ["glossary", "Glossary", glossary],
];

const PRINTED = 680; // pixels that fit on a page

function header() {
  const data =
    DATASETS.length > 1
      ? choice(
          "Data set",
          DATASETS.map((d, i) => [String(i), d.name]),
          String(state.data),
          (i) => changeDataSet(Number(i)),
        )
      : null;
  if (data) watchers.push({ keys: ["data"], update: () => data.set(String(state.data)), kept: true });
  const theme = el("button", {
    type: "button",
    class: "theme",
    onclick: () => change({ theme: isDark() ? "light" : "dark" }),
  });
  const name = () => {
    theme.textContent = isDark() ? "Light colors" : "Dark colors";
  };
  watchers.push({
    keys: ["theme"],
    update: () => {
      applyTheme();
      name();
    },
    kept: true,
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    applyTheme();
    name();
  });
  name();
  return [
    el(
      "header",
      {},
      el("h1", {}, REPORT.title ?? "sinkprop report"),
      REPORT.subtitle && el("p", { class: "subtitle" }, REPORT.subtitle),
    ),
    el(
      "nav",
      { class: "bar", "aria-label": "Sections and settings" },
      el(
        "div",
        { class: "links" },
        SECTIONS.map(([id, text]) => el("a", { href: `#${id}` }, text)),
      ),
      data?.node,
      theme,
    ),
  ];
}

function footer() {
  const made = `Made by sinkprop ${REPORT.library ?? ""}`.trim();
  return el(
    "footer",
    {},
    el("p", {}, `${made}. This file contains all of its data and loads nothing.`),
    REPORT.convention && el("p", {}, `Convention of the metrics: \u201c${REPORT.convention}\u201d.`),
    REPORT.command && el("p", {}, "Command: ", el("code", {}, REPORT.command)),
  );
}

function applyTheme() {
  setTheme();
  redrawCharts();
  for (const { keys, update } of watchers) if (keys.includes("colors")) update();
}

function setTheme() {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
}

// Replace the sections by those of the selected data set.
function showDataSet() {
  watchers = watchers.filter((watcher) => watcher.kept);
  clearCharts();
  const main = document.querySelector("main");
  main.replaceChildren(
    ...(DATASETS.length
      ? SECTIONS.map(([, , make]) => make(dataSet()))
      : [empty("This report has no data set.")]),
  );
  drawAtLeisure();
}

function goTo(id) {
  const heading = document.getElementById(`${id}-title`);
  if (!heading) return;
  heading.scrollIntoView({ block: "start" });
  heading.focus({ preventScroll: true });
}

function followLink(event) {
  const link = event.target.closest('a[href^="#"]');
  if (!link) return;
  event.preventDefault();
  change({ section: link.hash.slice(1) });
  goTo(state.section);
}

// Show the state that a new address describes.
function restore(event) {
  clearTimeout(written);
  written = null;
  Object.assign(state, readAddress(new URL(event.newURL).hash.slice(1)));
  clearCharts();
  for (const { kept, update } of watchers) if (kept) update();
  showDataSet();
  if (state.section) goTo(state.section);
}

function beforePrint() {
  document.documentElement.dataset.theme = "light";
  for (const own of charts) {
    own.stale = true;
    draw(own);
    Plotly.relayout(own.node, { width: Math.min(PRINTED, own.node.clientWidth || PRINTED), autosize: false });
  }
}

function afterPrint() {
  applyTheme();
  for (const own of charts) {
    own.stale = true;
    draw(own);
  }
}

function start() {
  if (DATASETS.length) Object.assign(state, readAddress(location.hash.slice(1)));
  setTheme();
  const page = document.getElementById("page");
  page.replaceChildren(...header(), el("main"), footer());
  showDataSet();
  document.addEventListener("click", followLink);
  addEventListener("hashchange", restore);
  addEventListener("beforeprint", beforePrint);
  addEventListener("afterprint", afterPrint);
  if (state.section) goTo(state.section);
  window.sinkpropReport = { data: REPORT, state, rankDistribution, storedDistribution, calibratedDistribution, drawAll };
  performance.mark("sinkprop-shown");
  document.addEventListener("DOMContentLoaded", finish);
}

// Once plotly is loaded: draw the charts in view and mark the page as ready; the others follow.
function finish() {
  drawNear();
  document.documentElement.dataset.ready = "true";
  performance.mark("sinkprop-ready");
  drawAtLeisure();
}

// Change to another data set, with a new query, and with a new pair of methods if it lacks a selected one.
function changeDataSet(data) {
  const d = DATASETS[data];
  const names = methodNames(d);
  const pair = names.includes(state.a) && names.includes(state.b) ? { a: state.a, b: state.b } : firstPair(d);
  Object.assign(state, pair, { query: firstQuery(d, pair), document: null });
  change({ data });
  showDataSet();
}

start();
