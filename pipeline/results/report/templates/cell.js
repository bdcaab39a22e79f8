// One cell at a time: its output, its steps, and the command that repeats it.

const { page } = globalThis;
const cells = page.data("cells");
const others = page.data("others-data");
const at = (id) => document.getElementById(id);

const list = at("cases");
for (const cell of cells) {
  const [symbol, group] = page.looks[cell.verdict];
  const shape = page.element("span", { className: group, textContent: symbol, ariaHidden: "true" });
  const link = page.element("a", { href: `#${encodeURIComponent(cell.name)}`, title: page.words(cell.verdict) }, shape, cell.name);
  list.append(page.element("li", {}, link));
}
if (matchMedia("(max-width: 860px)").matches) list.closest("details").open = cells.length <= 6;

const show = (cell, focus) => {
  const [, , , when, advice] = page.looks[cell.verdict];
  document.title = document.title.replace(/^(.*? \| )?/, `${cell.name} | `);
  at("name").textContent = cell.name;
  at("verdict").replaceChildren(page.verdict(cell.verdict));
  at("cause").textContent = cell.cause && cell.cause !== "none" ? cell.cause : "";
  const luck = cell.valid && cell.verdict !== "ok" ? " The text is right by chance." : "";
  at("when").textContent = `${when}${luck} ${advice}`;
  at("reason").textContent = cell.reason;
  const beside = others[cell.name] ?? [];
  at("others").replaceChildren(
    ...(beside.length ? ["Under other builders:"] : []),
    ...beside.map(([builder, verdict, href]) => page.element("span", {}, `${builder} `, page.verdict(verdict, href))),
  );
  output(cell);
  steps(cell);
  document.querySelector("#cell .copied pre").textContent = cell.command;
  at("facts").replaceChildren(
    ...cell.facts.map(([name, value]) => page.element("div", {}, page.element("dt", { textContent: page.words(name) }), page.element("dd", { textContent: value }))),
  );
  list.querySelectorAll("a").forEach((link, place) => {
    if (cells[place] === cell) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  });
  if (focus) at("name").focus({ preventScroll: true });
};

const output = (cell) => {
  const node = at("output");
  node.replaceChildren();
  if (cell.output === null) {
    at("output-note").textContent = "There is no output: the cell ended before it produced any.";
    return;
  }
  const [legal, rest] = cell.output;
  at("output-note").textContent = rest
    ? `${cell.size} bytes; the output leaves the grammar at byte ${cell.legal}; the rest is marked.`
    : `${cell.size} bytes${cell.legal === null ? "; it is not known where the output leaves the grammar" : ", all of them legal so far"}.`;
  if (legal || !rest) page.fill(node, legal);
  if (rest) node.append(page.fill(document.createElement("mark"), rest));
};

const steps = (cell) => {
  const body = at("steps").tBodies[0];
  const made = document.createDocumentFragment();
  const none = !cell.steps.length;
  at("no-steps").hidden = !none;
  at("steps-scroll").hidden = none;
  const wrong = cell.steps.filter((step) => typeof step[4] === "string").length;
  const known = cell.steps.some((step) => step[4] !== null);
  at("steps-note").textContent = none
    ? ""
    : known
      ? `${cell.steps.length} steps; ${wrong || "no"} ${wrong === 1 ? "token has" : "tokens have"} claimed bytes that differ from the true ones.`
      : `${cell.steps.length} steps; the claimed bytes are not known, because a server shows no token table and no masks.`;
  const lost = page.element("tr", { className: "lost" }, page.element("td", { colSpan: 8, textContent: `✕ The constraint was lost here${cell.error ? `: ${cell.error}` : "."}` }));
  for (const step of cell.steps) {
    if (step[0] === cell.lost) made.append(lost);
    made.append(row(cell, step));
  }
  if (cell.lost !== null && !lost.parentNode) made.append(lost);
  body.replaceChildren(made);
};

const row = (cell, [number, token, attribute, shown, claimed, rendered, allowed, how, oracle, ids, why]) => {
  const tr = document.createElement("tr");
  if (number === cell.culprit) tr.className = "culprit";
  else if (cell.lost !== null && number > cell.lost) tr.className = "after";
  const td = (...children) => tr.append(page.element("td", {}, ...children));
  tr.append(page.element("th", { scope: "row", textContent: number === cell.culprit ? `${number} ◀` : number, title: number === cell.culprit ? "the token at fault" : "" }));
  td(page.element("code", { textContent: token }), attribute === "NORMAL" ? "" : page.element("small", { textContent: attribute ?? "" }));
  if (typeof claimed !== "string") {
    td(page.bytes(shown));
    td(page.element("span", { className: "note", textContent: claimed === 0 ? "the same" : "not known" }));
  } else {
    td(page.bytes(shown, claimed));
    td(page.bytes(claimed, shown));
  }
  if (typeof rendered !== "string") td(page.element("span", { className: "note", textContent: rendered === 0 ? "same as true" : "not known" }));
  else td(rendered === "" ? page.element("span", { textContent: "not rendered" }) : page.bytes(rendered, shown));
  tr.append(page.element("td", { className: "num", textContent: allowed === null ? (how ? "any" : "–") : allowed.toLocaleString("en") }));
  td(how ?? "–");
  const finding = page.element("td");
  if (oracle && oracle !== "exact") {
    const bad = !["incomplete_forced", "no_oracle", "over_budget", "after_divergence"].includes(oracle);
    const shape = page.element("span", { textContent: bad ? "✕" : "◆", ariaHidden: "true" });
    finding.append(page.element("span", { className: bad ? "v broken" : "note", title: why ?? "" }, shape, " ", page.words(oracle)));
    if (ids?.length && bad) finding.append(page.element("small", { textContent: `such as ${ids.slice(0, 4).join(", ")}` }));
  } else finding.append(page.element("span", { className: "note", textContent: oracle ? "✓ exact" : "–" }));
  tr.append(finding);
  return tr;
};

const chosen = () => {
  const wanted = decodeURIComponent(location.hash.slice(1));
  return cells.find((cell) => cell.name === wanted) ?? cells[0];
};
addEventListener("hashchange", () => show(chosen(), true));
document.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1, j: 1, k: -1 }[event.key];
  if (!step || event.target.matches("input, pre, .scroll") || event.ctrlKey || event.metaKey || event.altKey) return;
  const next = cells[cells.indexOf(chosen()) + step];
  if (next) location.hash = encodeURIComponent(next.name);
});
show(chosen(), false);
