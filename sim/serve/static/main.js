/** Reads the address and shows what it says: a run, or the list of what there is. */

import { AnswerView } from "./answer.js";
import { ask, element, queryOf, shownInAddress } from "./dom.js";

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const shown = shownInAddress();

/** @param {{path: string, scenario: string, command: string, started_at: string, finished: boolean}} run @returns {HTMLElement} */
function runLine(run) {
  const opens = run.finished && ["run", "price"].includes(run.command);
  const name = opens ? element("a", { href: `/?${queryOf({ run: run.path, set: {} })}` }, run.path) : element("span", {}, run.path);
  const state = run.finished ? run.command : "unfinished";
  return element("li", {}, name, ` ${run.scenario}, ${state}, ${run.started_at.slice(0, 16).replace("T", " ")}`);
}

async function list() {
  const found = await ask("/api/workspace");
  const runs = element("ul", {}, ...found.runs.map(runLine));
  const none = element("p", {}, "No answers yet: gpufleet run leaves them below outputs/.");
  main.replaceChildren(element("h2", {}, "Answers in this workspace"), found.runs.length ? runs : none, element("p", { class: "sub" }, found.folder));
}

async function start() {
  if (shown.run) {
    const view = new AnswerView(shown);
    main.replaceChildren(view.box);
    await Promise.all([view.load(), view.listExports()]);
  } else await list();
}

start().catch((error) => main.replaceChildren(element("p", { class: "problem", role: "alert" }, String(error.message || error))));
