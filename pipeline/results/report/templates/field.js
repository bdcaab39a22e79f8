// Builders in the field: their token tables, and the masks of engines.

const { page } = globalThis;
const number = (n) => (n === null ? "" : n.toLocaleString("en"));
const padded = (n) => String(n ?? 0).padStart(9, "0");

// The proof of a fault: [grammar, tokens before, verdict, ids, true bytes, claimed bytes, place].
const summary = (proof) => {
  if (!proof) return "";
  const [grammar, before, verdict, ids] = proof;
  return `${grammar}${before ? ` after ${before}` : ""}: ${verdict}${ids ? ` ${ids}` : ""}`;
};

const shown = (proof) => {
  if (!proof) return document.createTextNode("");
  const [grammar, before, verdict, ids, , , place] = proof;
  const rest = `${before ? ` after ${before}` : ""}: ${verdict}${ids ? ` ${ids}` : ""} `;
  const node = page.element("span", {}, page.element("code", { textContent: grammar }), rest);
  if (place !== null) node.append(page.element("a", { href: `#r${place}`, textContent: "reproduce" }));
  return node;
};

// The bytes of the first id: the true ones, and those that the library claims.
const bytes = (proof) => {
  const [, , , , truth, claimed] = proof || [];
  if (truth === undefined || truth === null) return document.createTextNode("");
  if (claimed === null || claimed === truth) return page.bytes(truth);
  return page.element("span", {}, page.bytes(truth, claimed), " as ", page.bytes(claimed, truth));
};

const written = (proof) => (proof && proof[4] !== null ? `${proof[4]} as ${proof[5]}` : "");

const links = (known) => {
  const node = page.element("span");
  known.forEach(([text, href], place) => {
    if (place) node.append(", ");
    node.append(href ? page.element("a", { href, textContent: text, rel: "noreferrer" }) : text);
  });
  return node;
};

const proofs = (at, links_at) => [
  { title: "smallest mask", text: (row) => summary(row[at]), node: (row) => shown(row[at]) },
  { title: "true bytes, as claimed", text: (row) => written(row[at]), node: (row) => bytes(row[at]) },
  { title: "public report", text: (row) => row[links_at].map(([text]) => text).join(", "), node: (row) => links(row[links_at]) },
];

if (document.getElementById("table")) {
  const rows = page.data("builder-rows");
  const table = page.table(
    [
      { title: "builder", text: (row) => row[0], cellType: "th", className: "nowrap" },
      { title: "release", text: (row) => row[1] },
      { title: "vocabulary", text: (row) => row[2] },
      { title: "tokens", text: (row) => number(row[3]), sort: (row) => padded(row[3]) },
      { title: "wrong", text: (row) => number(row[4]), sort: (row) => padded(row[4]) },
      { title: "status", text: (row) => (row[6] ? `${row[5]}: ${row[6]}` : row[5]) },
      ...proofs(7, 8),
    ],
    rows,
  );
  const form = document.getElementById("filters");
  const seen = (place) => [...new Set(rows.map((row) => row[place]))].sort();
  // Names are shown unchanged: their underscores are not spaces.
  for (const [select, place] of [[form.builder, 0], [form.tokenizer, 2]])
    for (const name of seen(place)) select.append(page.element("option", { value: name, textContent: name }));
  table.search.fixed(
    "filters",
    (_, row) =>
      (!form.builder.value || row[0] === form.builder.value) &&
      (!form.tokenizer.value || row[2] === form.tokenizer.value) &&
      (!form.faulty.checked || row[4] > 0 || row[5] !== "ok"),
  );
  table.draw();
  form.addEventListener("change", () => table.draw());
  form.addEventListener("reset", () => setTimeout(() => table.search("").draw()));
}

if (document.getElementById("engines")) {
  page.table(
    [
      { title: "engine", text: (row) => row[0], cellType: "th" },
      { title: "release", text: (row) => row[1] },
      { title: "vocabulary", text: (row) => row[2] },
      { title: "verdict", text: (row) => row[3] },
      { title: "kind of token", text: (row) => row[4] },
      { title: "masks", text: (row) => number(row[5]), sort: (row) => padded(row[5]) },
      { title: "tokens", text: (row) => number(row[6]), sort: (row) => padded(row[6]) },
      ...proofs(7, 8),
    ],
    page.data("engine-rows"),
    { paging: false, layout: { topStart: "info", topEnd: null, bottomStart: null, bottomEnd: null } },
    "engines",
  );
}

// A link to a reproducer opens it.
const open = () => {
  const found = /^#r\d+$/.test(location.hash) && document.querySelector(location.hash);
  if (!found) return;
  found.open = true;
  found.scrollIntoView();
};
addEventListener("hashchange", open);
document.addEventListener("click", ({ target }) => {
  if (target.matches("a") && target.getAttribute("href") === location.hash) open(); // the same link again
});
open();
