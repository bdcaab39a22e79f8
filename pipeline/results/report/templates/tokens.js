// The wrong tokens of one vocabulary.

const { page } = globalThis;
const { shared } = page.data("data");
const rows = page.data("rows");
const claimed = (row) => (row[3] === 0 ? row[2] : row[3]);

const table = page.table(
  [
    { title: "id", text: (row) => String(row[0]), sort: (row) => String(row[0]).padStart(9, "0"), cellType: "th" },
    { title: "true bytes", text: (row) => row[2], node: (row) => page.bytes(row[2], claimed(row)) },
    { title: "claimed bytes", text: claimed, node: (row) => page.bytes(claimed(row), row[2]) },
    { title: "damage", text: (row) => shared[row[4]] },
    { title: "attribute", text: (row) => shared[row[1]] },
    { title: "builders", text: (row) => shared[row[5]] },
  ],
  rows,
);

const form = document.getElementById("filters");
const seen = (place) => [...new Set(rows.map((row) => shared[row[place]]))].sort();
page.options(form.damage, seen(4));
page.options(form.attribute, seen(1));
page.options(form.builder, page.data("builders"));
form.builder.value = decodeURIComponent(location.hash.slice(1));
if (form.builder.selectedIndex < 0) form.builder.value = "";

const lists = new Map(shared.map((names) => [names, new Set(names.split(", "))]));
table.search.fixed(
  "filters",
  (_, row) =>
    (!form.damage.value || shared[row[4]] === form.damage.value) &&
    (!form.attribute.value || shared[row[1]] === form.attribute.value) &&
    (!form.builder.value || lists.get(shared[row[5]]).has(form.builder.value)),
);
table.draw();
form.addEventListener("change", () => table.draw());
form.addEventListener("reset", () => setTimeout(() => table.search("").draw()));
