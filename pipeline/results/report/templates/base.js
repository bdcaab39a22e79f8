// Shared by all pages: readable bytes, copying, plots, the keyboard.

export {};
const page = (globalThis.page = {});

page.data = (id) => JSON.parse(document.getElementById(id).textContent);
page.looks = page.data("looks");

page.element = (name, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};

// Visible text (see system/text.py) → its units: a space, an escape, or a run of plain characters.
const UNIT = /( )|(\\(?:\\|[nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}))|([^ \\]|\\)/gu;

const units = (text) => text.match(UNIT) ?? [];

const unit = (text) =>
  text === " "
    ? page.element("b", { textContent: text })
    : text.length > 1 && text[0] === "\\"
      ? page.element("i", { textContent: text })
      : text;

// Append units to a node; neighbouring plain characters become one text.
const append = (node, parts) => {
  let plain = "";
  for (const part of parts) {
    if (part !== " " && !(part.length > 1 && part[0] === "\\")) {
      plain += part;
      continue;
    }
    node.append(plain, unit(part));
    plain = "";
  }
  node.append(plain);
  return node;
};

// Fill a node with bytes. If `other` is given, the difference from it is marked.
page.fill = (node, text, other) => {
  const parts = units(text);
  if (other === undefined || other === text) {
    append(node, parts);
  } else {
    const against = units(other);
    // From the end first: builders most often lose the beginning.
    let start = 0;
    let end = 0;
    const least = Math.min(parts.length, against.length);
    while (end < least && parts.at(-1 - end) === against.at(-1 - end)) end++;
    while (start < least - end && parts[start] === against[start]) start++;
    append(node, parts.slice(0, start));
    const middle = parts.slice(start, parts.length - end);
    if (middle.length) node.append(append(document.createElement("mark"), middle));
    append(node, end ? parts.slice(-end) : []);
  }
  if (!parts.length) node.append(page.element("span", { className: "none", textContent: "empty" }));
  return node;
};

page.bytes = (text, other) => page.fill(page.element("code", { className: "bytes", dir: "ltr" }), text, other);

page.words = (name) => name.replaceAll("_", " ");

page.verdict = (name, href) => {
  const [symbol, group, , when] = page.looks[name];
  const shape = page.element("span", { textContent: symbol, ariaHidden: "true" });
  const properties = { className: `v ${group}`, title: when };
  if (href) properties.href = href;
  return page.element(href ? "a" : "span", properties, shape, " ", page.words(name));
};

// Plain text where DataTables expects markup: titles, and search keys.
page.escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");

// A table over rows; every cell is made as a node, never as markup.
page.table = (columns, rows, options = {}, id = "table") => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const scheme = () => document.documentElement.classList.toggle("dark", dark.matches);
  dark.addEventListener("change", scheme);
  scheme();
  const table = new DataTable(`#${id}`, {
    data: rows,
    columns: columns.map(({ title, text, node, sort, className, cellType, orderable = true }) => ({
      title: page.escaped(title),
      className,
      cellType,
      orderable,
      type: "string",
      createdCell: (cell) => (cell.dataset.label = title),
      data: null,
      render: (_, kind, row) => {
        if (kind === "display") return node ? node(row) : document.createTextNode(text(row));
        if (kind === "filter") return page.escaped(text(row));
        return sort ? sort(row) : text(row);
      },
    })),
    order: [],
    autoWidth: false,
    deferRender: true,
    pageLength: 50,
    lengthMenu: [50, 200, 1000],
    layout: { topStart: "info", topEnd: "search", bottomStart: "pageLength", bottomEnd: "paging" },
    language: { search: "Search", info: "_START_–_END_ of _TOTAL_", infoFiltered: "(of _MAX_)", infoEmpty: "none", zeroRecords: "No rows match these filters.", lengthMenu: "_MENU_ a page" },
    ...options,
  });
  const box = table.table().container().querySelector(".dt-layout-table");
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", document.getElementById(id).getAttribute("aria-label"));
  return table;
};

page.options = (select, names) => {
  for (const name of names) select.append(page.element("option", { value: name, textContent: page.words(name) }));
};

document.querySelectorAll("[data-bytes]").forEach((node) => {
  const text = node.textContent;
  node.textContent = "";
  page.fill(node, text);
});

document.addEventListener("click", async ({ target }) => {
  if (!target.matches("[data-copy]")) return;
  const source = target.previousElementSibling;
  try {
    await navigator.clipboard.writeText(source.textContent);
    target.textContent = "Copied";
    setTimeout(() => (target.textContent = "Copy"), 1500);
  } catch {
    getSelection().selectAllChildren(source); // the browser allows no clipboard access
  }
});

document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  const search = document.querySelector(".dt-search input");
  if (event.key === "/" && search) {
    event.preventDefault();
    search.focus();
  }
});

const chart = document.getElementById("chart");
if (chart && document.getElementById("chart-data")) {
  const plot = page.data("chart-data");
  const room = chart.clientWidth - 190; // beside the names of the rows
  if (plot.spec.width > room) plot.spec.width = Math.max(room, 120); // facets take no "container"
  await vegaEmbed(chart, plot, { ast: true, renderer: "svg", actions: false });
  chart.dataset.drawn = "";
}
