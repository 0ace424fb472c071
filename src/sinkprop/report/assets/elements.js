// Elements. Text from the data is always set as text, never read as HTML.

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  return put(node, ...children);
}

// Append children to a node: lists are flattened; null, undefined and false are left out.
function put(node, ...children) {
  node.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return node;
}

let lastId = 0;

function newId(word) {
  lastId += 1;
  return `${word}-${lastId}`;
}

// A labeled select of [value, text] pairs; `set` selects a value without calling `onchoose`.
function choice(label, options, selected, onchoose) {
  const id = newId("choice");
  const select = el("select", { id, onchange: () => onchoose(select.value) });
  const node = el("div", { class: "control" }, el("label", { for: id }, label), select);
  const control = {
    node,
    select,
    set(value) {
      select.value = value;
    },
    fill(pairs, value) {
      select.replaceChildren(...pairs.map(([key, text]) => el("option", { value: key }, text)));
      select.value = value;
    },
  };
  control.fill(options, selected);
  return control;
}

function checkbox(label, checked, onchoose) {
  const box = el("input", { type: "checkbox", checked, onchange: () => onchoose(box.checked) });
  return el("label", { class: "check" }, box, label);
}

function section(id, title, ...children) {
  const heading = el("h2", { id: `${id}-title`, tabindex: "-1" }, title);
  return el("section", { id, "aria-labelledby": `${id}-title` }, heading, ...children);
}

function reading(...children) {
  return el(
    "aside",
    { class: "reading" },
    el("h3", {}, "How to read this"),
    children.map((child) => (typeof child === "string" ? el("p", {}, child) : child)),
  );
}

function beside(main, aside) {
  return el("div", { class: "beside" }, el("div", { class: "figure" }, main), aside);
}

function empty(text) {
  return el("p", { class: "empty" }, text);
}

// A box for content that may be wider than the page: it scrolls separately, also by keyboard.
function scrolling(label, child, name = "scroll") {
  return el("div", { class: name, tabindex: "0", role: "region", "aria-label": label }, child);
}

// A plain table: heads, and rows of cells; the first cell of a row names it. A cell is text, a number or an
// element.
function table(caption, heads, rows, name = "") {
  return el(
    "table",
    { class: `numbers ${name}` },
    el("caption", {}, caption),
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        heads.map((head) => el("th", { scope: "col" }, head)),
      ),
    ),
    el(
      "tbody",
      {},
      rows.map((row) =>
        el(
          "tr",
          {},
          row.map((cell, i) => (i ? el("td", {}, cell) : el("th", { scope: "row" }, cell))),
        ),
      ),
    ),
  );
}

// The numbers of a chart as a table, which is made when it is opened and updated while it is open.
function numbersOf(summary, make) {
  const body = el("div");
  const node = el("details", { class: "beneath" }, el("summary", {}, summary), body);
  const fill = () => {
    if (node.open) body.replaceChildren(scrolling(summary, make()));
  };
  node.addEventListener("toggle", fill);
  return { node, update: fill };
}
