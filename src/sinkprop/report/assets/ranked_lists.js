// The explorer's two lists: the documents in the order of a method, with a strip for each document, and
// keyboard navigation.

// One method's list. `placed[i]` is the document at position i, `place[j]` the position of document j.
function rankedList(d, key) {
  const body = el("tbody");
  const caption = el("caption");
  const metric = el("p", { class: "note" });
  const grid = el(
    "table",
    { class: "ranking", role: "grid" },
    caption,
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        ["rank", "label", "document", "moved", "likely", "probability by rank"].map((head) =>
          el("th", { scope: "col" }, head),
        ),
      ),
    ),
    body,
  );
  const box = el("div", { class: "list" }, grid);
  const heading = el("h4");
  const side = {
    key,
    node: el("div", { class: "side" }, heading, metric, box),
    rows: new Map(),
    placed: [],
    place: [],
    distribution: null,
  };
  side.method = () => state[key];
  side.limit = () => (state.all ? side.placed.length : Math.min(FIRST, side.placed.length));
  side.read = (query) => {
    side.placed = query.scores[side.method()] ? orderOf(query.scores[side.method()]) : [];
    side.place = [];
    side.placed.forEach((j, i) => {
      side.place[j] = i;
    });
  };
  side.fill = (query, other) => {
    heading.replaceChildren(swatch(side.method()), side.method());
    caption.textContent = `Documents in the order of ${side.method()}`;
    const value = valueOf(d, side.method(), state.metric, state.query);
    metric.textContent = side.placed.length
      ? `${metricName(state.metric)} ${fixed(value)}`
      : "This report has no scores of this method.";
    const most = query.labels.reduce((x, y) => Math.max(x, y), 1);
    side.rows = new Map(
      side.placed.slice(0, side.limit()).map((j, i) => [j, rankedRow(query, j, i, other, most)]),
    );
    body.replaceChildren(...side.rows.values());
    box.scrollTop = 0;
  };
  side.spread = (query) => {
    side.distribution = distributionOf(d, side.method(), query);
    side.paint();
  };
  side.paint = () => paintStrips(side);
  side.highlight = (j) => highlightRow(side, box, j);
  listen(side, grid);
  return side;
}

function rankedRow(query, j, i, other, most) {
  const label = query.labels[j];
  const moved = other && other.place[j] !== undefined ? other.place[j] - i : null;
  return el(
    "tr",
    { "data-document": j, tabindex: "-1", "aria-selected": "false" },
    el("td", { class: "place" }, String(i + 1)),
    el(
      "td",
      {},
      el("span", { class: "label", style: `--grade: ${Math.round((100 * label) / most)}%` }, String(label)),
    ),
    el("td", { class: "name", title: documentName(query, j) }, documentName(query, j)),
    el("td", { class: moved > 0 ? "moved better" : moved < 0 ? "moved worse" : "moved" }, movedCell(moved)),
    el("td", { class: "likely" }),
    el("td", { class: "strip" }, el("canvas", { height: 1, "aria-hidden": "true" })),
  );
}

function movedCell(moved) {
  if (moved === null) return DASH;
  if (moved === 0) return ["=", el("span", { class: "unseen" }, " same rank in the other list")];
  const [arrow, word] = moved > 0 ? ["\u2191", "higher"] : ["\u2193", "lower"];
  return [`${arrow}${Math.abs(moved)}`, el("span", { class: "unseen" }, ` ${word} than in the other list`)];
}

// The strips and likely ranks of the rows: a stronger color is more probable, on one scale per list.
function paintStrips(side) {
  const { distribution } = side;
  const ranks = Math.min(side.limit(), DRAWN);
  const shown = [...side.rows.values()];
  if (!distribution) {
    side.peak = 0;
    for (const row of shown) row.querySelector(".likely").textContent = DASH;
    for (const row of shown) row.querySelector("canvas").width = 0;
    return;
  }
  const rows = shown.map((_, i) => distribution.row(i).subarray(0, ranks));
  side.peak = rows.reduce((most, p) => Math.max(most, ...p), 0);
  const [r, g, b] = color(`method-${methodIndex(side.method()) % 8}`)
    .match(/[\d.]+/g)
    .map(Number);
  shown.forEach((row, i) => {
    const [low, high] = distribution.describe(i).likely;
    row.querySelector(".likely").textContent = low === high ? String(low) : `${low}${DASH}${high}`;
    const canvas = row.querySelector("canvas");
    canvas.width = ranks;
    const context = canvas.getContext("2d");
    const image = context.createImageData(ranks, 1);
    rows[i].forEach((p, k) => image.data.set([r, g, b, 255 * Math.cbrt(p / side.peak)], 4 * k));
    context.putImageData(image, 0, 0);
  });
}

// Mouse and keyboard of a list: pointing selects a document, arrow keys move the selection.
function listen(side, grid) {
  const documentAt = (target) => {
    const row = target.closest("tr[data-document]");
    return row ? Number(row.dataset.document) : null;
  };
  const choose = (event) => {
    const j = documentAt(event.target);
    if (j !== null && j !== state.document) change({ document: j });
  };
  grid.addEventListener("mouseover", choose);
  grid.addEventListener("focusin", choose);
  grid.addEventListener("click", (event) => event.target.closest("tr[data-document]")?.focus());
  grid.addEventListener("keydown", (event) => {
    const j = documentAt(event.target);
    if (j === null) return;
    const last = side.limit() - 1;
    const place = side.place[j];
    const to = {
      ArrowDown: place + 1,
      ArrowUp: place - 1,
      Home: 0,
      End: last,
      PageDown: place + 10,
      PageUp: place - 10,
    }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      side.rows.get(side.placed[Math.min(last, Math.max(0, to))]).focus();
    } else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      event.preventDefault();
      const lists = [...grid.closest(".lists").querySelectorAll("table.ranking")];
      const list = lists[event.key === "ArrowLeft" ? 0 : lists.length - 1];
      list.querySelector(`tr[data-document="${j}"]`)?.focus();
    }
  });
}

// Mark the selected document's row and scroll it into view in its list; Tab moves the focus to it.
function highlightRow(side, box, j) {
  for (const row of side.rows.values()) {
    row.setAttribute("aria-selected", "false");
    row.tabIndex = -1;
  }
  const row = side.rows.get(j);
  const first = row ?? side.rows.values().next().value;
  if (first) first.tabIndex = 0;
  if (!row) return;
  row.setAttribute("aria-selected", "true");
  if (state.document === null || row.matches(":hover")) return;
  const head = side.node.querySelector("thead").offsetHeight;
  const [above, below] = [
    row.offsetTop - head - box.scrollTop,
    row.offsetTop + row.offsetHeight - box.scrollTop - box.clientHeight,
  ];
  if (above < 0) box.scrollTop += above;
  else if (below > 0) box.scrollTop += below;
}
