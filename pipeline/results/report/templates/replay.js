// The walks that were not right.

if (document.getElementById("rows")) start();

function start() {
  const { page } = globalThis;
  const { shared } = page.data("data");
  const rows = page.data("rows");
  const PLACES = { tokenizer: 0, builder: 1, verdict: 5, cause: 6 };
  const [TOKEN, TRUE, CLAIMED] = [8, 9, 10];
  const told = (place) => (row) => shared[row[place]];
  const token = (row) => {
    if (row[TRUE] === 0) return document.createTextNode("–");
    const id = page.element("code", { textContent: String(row[TOKEN]) });
    const made = page.element("span", {}, id, " ", page.bytes(row[TRUE], row[CLAIMED]));
    if (row[TRUE] !== row[CLAIMED]) made.append(" as ", page.bytes(row[CLAIMED], row[TRUE]));
    return made;
  };

  const table = page.table(
    [
      { title: "schema", text: told(2), cellType: "th" },
      { title: "instance", text: told(3) },
      { title: "split", text: told(4) },
      { title: "tokenizer", text: told(0) },
      { title: "builder", text: told(1) },
      { title: "verdict", text: (row) => page.words(shared[row[5]]) },
      { title: "whose fault", text: told(6) },
      { title: "token", text: (row) => (row[TRUE] === 0 ? "" : `${row[TOKEN]} ${row[TRUE]} ${row[CLAIMED]}`), node: token },
      { title: "reason", text: told(7) },
    ],
    rows,
  );

  const form = document.getElementById("filters");
  for (const [name, place] of Object.entries(PLACES)) {
    page.options(form[name], [...new Set(rows.map(told(place)))].sort());
  }
  table.search.fixed("filters", (_, row) =>
    Object.entries(PLACES).every(([name, place]) => !form[name].value || shared[row[place]] === form[name].value),
  );
  table.draw();
  form.addEventListener("change", () => table.draw());
  form.addEventListener("reset", () => setTimeout(() => table.search("").draw()));
}
