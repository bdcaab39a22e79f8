// Before and after: what changed, filtered by how.

if (document.getElementById("rows")) start();

function start() {
  const { page } = globalThis;
  const { shared, files } = page.data("data");
  const rows = page.data("rows");
  const [CHANGE, WORSE, PLACE, BEFORE, AFTER, CAUSE, , WHY, LINKS] = Array.from({ length: 9 }, (_, i) => i);

  const side = (row, place) => {
    const end = place === BEFORE ? "before" : "after";
    const verdict = row[place];
    if (verdict === 0) return document.createTextNode("–");
    const link = row[LINKS].find(([name]) => name === end);
    const node = page.element("span", {}, page.verdict(verdict, link && `${files[link[1]]}#${link[2]}`));
    const cause = shared[row[place - BEFORE + CAUSE]];
    if (cause && cause !== "none") node.append(page.element("span", { className: "cause", textContent: cause }));
    return node;
  };
  const words = (row, place) => (row[place] === 0 ? "" : `${row[place]} ${page.words(row[place])} ${shared[row[place - BEFORE + CAUSE]]}`);

  const table = page.table(
    [
      {
        title: "change",
        text: (row) => `${shared[row[CHANGE]]}${row[WORSE] && shared[row[CHANGE]] === "changed" ? ", worse" : ""}`,
        node: (row) => {
          const name = shared[row[CHANGE]];
          const group = row[WORSE] ? "broken" : name === "fixed" ? "ok" : "doubt";
          const symbol = { broken: "↓", ok: "↑", doubt: "→" }[group];
          return page.element("span", { className: `v ${group}` }, page.element("span", { textContent: symbol, ariaHidden: "true" }), row[WORSE] && name === "changed" ? "worse" : name);
        },
      },
      { title: "cell", text: (row) => row[PLACE], cellType: "th" },
      { title: "before", text: (row) => words(row, BEFORE), node: (row) => side(row, BEFORE) },
      { title: "after", text: (row) => words(row, AFTER), node: (row) => side(row, AFTER) },
      { title: "why", text: (row) => row[WHY], className: "reason" },
    ],
    rows,
  );
  let chosen = "";
  table.search.fixed("change", (_, row) => !chosen || shared[row[CHANGE]] === chosen);
  const buttons = document.querySelectorAll("[data-change]");
  buttons.forEach((button) =>
    button.addEventListener("click", () => {
      chosen = button.dataset.change;
      buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
      table.draw();
    }),
  );
}
