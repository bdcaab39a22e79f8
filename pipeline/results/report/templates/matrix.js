// The matrix: filters for all cells, and keyboard navigation.

if (document.getElementById("rows")) start();

function start() {
  const { page } = globalThis;
  const { builders, names, causes, files } = page.data("data");
  const rows = page.data("rows");
  const CASE = 4;
  const SIDES = 5;

  const link = (row, [verdict, cause, file]) => {
    const made = page.verdict(verdict, `${files[file]}#${encodeURIComponent(row[CASE])}`);
    const node = page.element("span", {}, made);
    if (causes[cause] && causes[cause] !== "none") node.append(page.element("span", { className: "cause", textContent: causes[cause] }));
    return node;
  };
  const varied = (place) => new Set(rows.map((row) => row[place])).size > 1;
  const columns = ["target", "model", "tokenizer", "suite"]
    .map((title, place) => ({ title, text: (row) => names[row[place]], place }))
    .filter(({ place }) => place === 3 || varied(place));
  columns.push({ title: "case", text: (row) => row[CASE], cellType: "th" });
  builders.forEach((title, place) => {
    const side = (row) => row[SIDES][place];
    columns.push({
      title,
      text: (row) => (side(row) ? `${page.words(side(row)[0])} ${side(row)[0]} ${causes[side(row)[1]]}` : ""),
      sort: (row) => String(side(row) ? page.looks[side(row)[0]][2] : 0).padStart(3, "0"),
      node: (row) => (side(row) ? link(row, side(row)) : document.createTextNode("–")),
    });
  });

  const form = document.getElementById("filters");
  const seen = (pick) => [...new Set(rows.flatMap(pick))].sort();
  const verdicts = seen((row) => row[SIDES].filter(Boolean).map(([verdict]) => verdict));
  page.options(form.verdict, verdicts.sort((a, b) => page.looks[b][2] - page.looks[a][2]));
  page.options(form.tokenizer, seen((row) => [names[row[2]]]));
  page.options(form.suite, seen((row) => [names[row[3]]]));
  page.options(form.cause, seen((row) => row[SIDES].filter(Boolean).map(([, cause]) => causes[cause])).filter((cause) => cause && cause !== "none"));
  form.differ.closest("label").hidden = builders.length < 2;
  let who = null; // a target, model and tokenizer chosen in the grid

  const table = page.table(columns, rows);
  table.search.fixed("filters", (_, row) => {
    const sides = row[SIDES].filter(Boolean);
    const { verdict, tokenizer, suite, cause, differ } = form;
    return (
      (!verdict.value || sides.some(([name]) => (verdict.value === "-ok" ? name !== "ok" : name === verdict.value))) &&
      (!tokenizer.value || names[row[2]] === tokenizer.value) &&
      (!suite.value || names[row[3]] === suite.value) &&
      (!cause.value || sides.some(([, which]) => causes[which] === cause.value)) &&
      (!who || who.every((name, place) => names[row[place]] === name)) &&
      (!differ.checked || new Set(row[SIDES].map((side) => side && side[0])).size > 1)
    );
  });
  table.draw(); // reads every row once, so that the first filter answers at once
  form.addEventListener("change", () => {
    who = null;
    table.draw();
  });
  form.addEventListener("reset", () => setTimeout(() => ((who = null), table.search("").draw())));
  document.querySelectorAll(".grid button").forEach((button) => {
    button.addEventListener("click", () => {
      who = JSON.parse(button.dataset.who);
      form.tokenizer.value = who[2];
      form.suite.value = button.dataset.suite;
      table.draw();
      document.getElementById("cells").scrollIntoView();
      document.querySelector("#table tbody a")?.focus({ preventScroll: true });
    });
  });

  document.addEventListener("keydown", (event) => {
    const step = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key];
    const inTable = document.activeElement.closest?.("#table tbody");
    const inSearch = document.activeElement.matches(".dt-search input");
    if (!step || (inSearch && event.key !== "ArrowDown")) return;
    if (!inTable) {
      if (!inSearch && document.activeElement !== document.body) return;
      event.preventDefault();
      document.querySelector("#table tbody a")?.focus();
      return;
    }
    event.preventDefault();
    const row = document.activeElement.closest("tr");
    const across = [...row.querySelectorAll("a")];
    const at = across.indexOf(document.activeElement);
    const next = step[0] ? (step[0] > 0 ? row.nextElementSibling : row.previousElementSibling) : row;
    const links = next ? [...next.querySelectorAll("a")] : [];
    links[Math.min(Math.max(at + step[1], 0), links.length - 1)]?.focus();
  });
}
