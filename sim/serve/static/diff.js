/** Comparison of two runs: changed inputs, and differences in the results. */

import { ask, element, plain } from "./dom.js";
import { _ } from "./words.js";

export class DiffView {
  /** @param {string} a @param {string} b */
  constructor(a, b) {
    this.query = `a=${encodeURIComponent(a)}&b=${encodeURIComponent(b)}`;
    this.box = element("section", { "aria-label": _("Comparison of two runs") });
  }

  async load() {
    const data = await ask(`/api/diff?${this.query}`);
    const heads = ["", _("first"), _("second")];
    const changes = data.changes.map((/** @type {any} */ one) => [one.path, said(one.before), said(one.after)]);
    const rows = data.points.map((/** @type {any} */ one) => [
      one.fleet, ...Object.keys(data.axes).map((axis) => said(one.axes[axis])), one.words,
      figure(one.first), figure(one.second), difference(one), one.verdict]);
    const only = [];
    if (data.only_first.length) only.push(_("Only the first run has {points}.", { points: data.only_first.join("; ") }));
    if (data.only_second.length) only.push(_("Only the second run has {points}.", { points: data.only_second.join("; ") }));
    this.box.replaceChildren(
      element("h2", {}, _("First")), element("p", { class: "sub" }, data.first.folder), element("p", { class: "verdict" }, data.first.verdict),
      element("h2", {}, _("Second")), element("p", { class: "sub" }, data.second.folder), element("p", { class: "verdict" }, data.second.verdict),
      element("h2", {}, _("Changed inputs")),
      changes.length ? table(heads, changes, true) : element("p", {}, _("The two runs have the same inputs.")),
      element("h2", {}, _("Differences")),
      element("p", { class: "sub" }, _("Second minus first; ±: half of the 95 % interval over pairs of replications with the same seed.")),
      table([_("fleet"), .../** @type {string[]} */ (Object.values(data.axes)), _("figure"), _("first"), _("second"), _("difference"), ""], rows, true),
      ...only.map((text) => element("p", {}, text)));
  }
}

/** @param {any} value @returns {string} */
const said = (value) => (value === null || value === undefined ? _("(not stated)") : typeof value === "object" ? JSON.stringify(value) : String(value));

/** @param {number | string | null} value @returns {string} */
const figure = (value) => (typeof value !== "number" ? String(value ?? "") : plain(value));

/** @param {any} one @returns {string} */
function difference(one) {
  if (typeof one.difference !== "number") return "";
  const half = typeof one.difference_ci95 === "number" && one.difference_ci95 ? ` ± ${figure(one.difference_ci95)}` : "";
  return `${one.difference > 0 ? "+" : ""}${figure(one.difference)}${half}`;
}

/** @param {string[]} heads @param {string[][]} rows @param {boolean} texts @returns {HTMLElement} */
function table(heads, rows, texts) {
  const head = element("tr", {}, ...heads.map((text) => element("th", { scope: "col" }, text)));
  const body = rows.map((row) => element("tr", {}, ...row.map((text) => element("td", {}, text))));
  return element("div", { class: "scroll", tabindex: 0 }, element("table", { class: texts ? "texts" : "" }, element("thead", {}, head), element("tbody", {}, ...body)));
}
