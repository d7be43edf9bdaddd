/** Entry point: shows what the address names, which is a run, a scenario, a comparison of two runs, or the workspace. */

import { AnswerView } from "./answer/view.js";
import { DiffView } from "./diff.js";
import { examples } from "./examples.js";
import { ask, element, queryOf, shownInAddress, takeTokenOutOfAddress } from "./dom.js";
import { QueueView } from "./queue.js";
import { NumbersView } from "./scenario/numbers.js";
import { _ } from "./words.js";

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
takeTokenOutOfAddress();
const shown = shownInAddress();

/** @typedef {{path: string, scenario: string, command: string, started_at: string, finished: boolean, page: boolean}} Run */

/** Longest list of scenarios that is shown open. */
const MOST_OPEN = 10;

/** @param {Run} run @returns {boolean} */
const compares = (run) => run.finished && ["run", "price"].includes(run.command);

/** @param {Run} run @returns {boolean} */
const opens = (run) => compares(run) || (run.finished && ["breakeven", "plan"].includes(run.command));

/** @param {Run} run @param {boolean} checked @returns {HTMLElement} */
function runRow(run, checked) {
  const query = queryOf({ run: run.path, set: {} });
  const page = element("a", { href: `/export?${query}&format=html`, download: "" }, _("Page, HTML"));
  const name = opens(run) ? element("a", { href: `/?${query}` }, run.path) : element("span", {}, run.path, ...(run.finished && run.page ? [" · ", page] : []));
  const box = element("input", { type: "checkbox", value: run.path, "aria-label": _("Compare {name}", { name: run.path }), disabled: !compares(run), checked });
  const state = run.finished ? run.command : _("unfinished; the same run continues from the finished points");
  const cells = [box, name, run.scenario, state, run.started_at.slice(0, 16).replace("T", " ")];
  return element("tr", {}, ...cells.map((cell) => element("td", {}, cell)));
}

/** @param {ParentNode} place @returns {string[]} paths of the answers that are ticked there */
const tickedIn = (place) => [...place.querySelectorAll("tbody input:checked")].map((one) => /** @type {HTMLInputElement} */ (one).value);

/** @param {Run[]} runs @param {string[]} ticked  paths of runs to tick @returns {HTMLElement[]} */
function answers(runs, ticked) {
  if (!runs.length) return [element("p", {}, _("No answers yet: run a scenario, here or with gpufleet run."))];
  const compare = /** @type {HTMLButtonElement} */ (element("button", { type: "button", disabled: ticked.length !== 2 }, _("Compare the two that are ticked")));
  const body = element("tbody", {}, ...runs.map((run) => runRow(run, ticked.includes(run.path))));
  body.addEventListener("change", () => (compare.disabled = tickedIn(table).length !== 2));
  compare.addEventListener("click", () => {
    const [b, a] = tickedIn(table); // the older one first
    window.location.search = `a=${encodeURIComponent(a)}&b=${encodeURIComponent(b)}`;
  });
  const heads = ["", _("answer"), _("scenario"), _("command"), _("started")].map((text) => element("th", { scope: "col" }, text));
  const table = element("table", { class: "texts" }, element("thead", {}, element("tr", {}, ...heads)), body);
  return [element("div", { class: "scroll" }, table), element("p", {}, compare)];
}

/** @param {HTMLElement[]} files @returns {HTMLElement} */
function scenarios(files) {
  if (!files.length) return element("p", {}, _("No scenarios yet: start from my numbers, or from an example."));
  const every = element("ul", {}, ...files);
  return files.length <= MOST_OPEN ? every : element("details", {}, element("summary", {}, _("{count} scenarios in this folder", { count: files.length })), every);
}

async function list() {
  const [found, known] = await Promise.all([ask("/api/workspace"), ask("/api/templates")]);
  const files = found.scenarios.map((/** @type {string} */ path) => element("li", {}, element("a", { href: `/?${queryOf({ scenario: path, set: {} })}` }, path)));
  const more = found.complete ? [] : [element("p", { class: "sub" }, _("The folder has too many files, and some were not read: name a smaller folder with --workspace."))];
  const start = element("p", { class: "start" }, element("a", { class: "main", href: `/?${queryOf({ template: "my-numbers", set: {} })}` }, _("Start from my numbers")));
  const questions = [element("h2", {}, _("Examples by question")), ...examples(known.templates)];
  const kept = [
    element("h2", {}, _("Answers")), ...answers(found.runs, tickedIn(main)), // a run that ended meanwhile takes no tick away
    element("h2", {}, _("Scenarios")), scenarios(files),
  ];
  const empty = !found.runs.length && !files.length;
  main.replaceChildren(
    element("p", { class: "lead" }, _("gpufleet simulates GPU fleets that serve language models: which fleet answers fast enough, how much load it carries, and what a million tokens cost. Every number has a source.")),
    start, queue.box, ...(empty ? questions : [...kept, ...questions]), element("p", { class: "sub" }, _("Folder: {folder}", { folder: found.folder })), ...more);
}

/** @type {string | null} id of the run that this page has started, whose answer it opens */
let awaited = null;
let news = () => {};
const queue = new QueueView((job) => {
  news();
  if (job.id === awaited) window.location.search = queryOf({ run: job.folder, set: {} });
  else if (!shown.run && !shown.scenario && !shown.template) list();
  else queue.list.querySelector("a")?.focus();
  document.title = _("done: {scenario}", { scenario: job.scenario });
});

async function start() {
  const query = new URLSearchParams(window.location.search);
  if (query.get("a") && query.get("b")) {
    const view = new DiffView(/** @type {string} */ (query.get("a")), /** @type {string} */ (query.get("b")));
    main.replaceChildren(view.box);
    await view.load();
  } else if (shown.run) {
    const view = new AnswerView(shown, () => queue.watch());
    news = () => view.causes.load();
    main.replaceChildren(queue.box, view.box);
    await Promise.all([view.load(), view.listExports()]);
  } else if (shown.scenario || shown.template) {
    const view = new NumbersView(shown, (job) => {
      awaited = job;
      queue.watch();
      queue.box.scrollIntoView();
    });
    main.replaceChildren(queue.box, view.box);
    await view.load();
  } else await list();
  if (!shown.run && !query.get("a")) queue.watch();
}

start().catch((error) => main.replaceChildren(element("p", { class: "problem", role: "alert" }, String(error.message || error))));
