/** Two runs beside each other: what was asked otherwise, and what came of it. */

import { ask, element, percent, plain } from "./dom.js";

export class DiffView {
  /** @param {string} a @param {string} b */
  constructor(a, b) {
    this.query = `a=${encodeURIComponent(a)}&b=${encodeURIComponent(b)}`;
    this.box = element("section", { "aria-label": "Comparison of two runs" });
  }

  async load() {
    const data = await ask(`/api/diff?${this.query}`);
    const heads = ["", "first", "second"];
    const changes = data.changes.map((/** @type {any} */ one) => [one.path, said(one.before), said(one.after)]);
    const axes = [...new Set(data.points.flatMap((/** @type {any} */ one) => Object.keys(one.axes)))];
    const rows = data.points.map((/** @type {any} */ one) => [
      one.fleet, ...axes.map((axis) => said(one.axes[/** @type {string} */ (axis)])), one.words,
      figure(one, one.first), figure(one, one.second), difference(one), one.verdict]);
    const only = [["first", data.only_first], ["second", data.only_second]].filter(([, points]) => points.length);
    this.box.replaceChildren(
      element("h2", {}, "First"), element("p", { class: "sub" }, data.first.folder), element("p", { class: "verdict" }, data.first.verdict),
      element("h2", {}, "Second"), element("p", { class: "sub" }, data.second.folder), element("p", { class: "verdict" }, data.second.verdict),
      element("h2", {}, "Changed inputs"),
      changes.length ? table(heads, changes, true) : element("p", {}, "The two runs were asked the same."),
      element("h2", {}, "Differences"),
      element("p", { class: "sub" }, "Second less first, with half of the 95 % interval over replications paired by seed."),
      table(["fleet", .../** @type {string[]} */ (axes), "figure", "first", "second", "difference", ""], rows, true),
      ...only.map(([name, points]) => element("p", {}, `Only the ${name} run has ${points.join("; ")}.`)));
  }
}

/** @param {any} value @returns {string} */
const said = (value) => (value === null || value === undefined ? "(not said)" : typeof value === "object" ? JSON.stringify(value) : String(value));

/** @param {any} one @param {number | string | null} value @returns {string} */
const figure = (one, value) => (typeof value !== "number" ? String(value ?? "") : one.metric === "slo_attainment" ? percent(value).replace("\u00a0%", "") : plain(value));

/** @param {any} one @returns {string} */
function difference(one) {
  if (typeof one.difference !== "number") return "";
  const half = typeof one.difference_ci95 === "number" && one.difference_ci95 ? ` ± ${figure(one, one.difference_ci95)}` : "";
  return `${one.difference > 0 ? "+" : ""}${figure(one, one.difference)}${half}`;
}

/** @param {string[]} heads @param {string[][]} rows @param {boolean} texts @returns {HTMLElement} */
function table(heads, rows, texts) {
  const head = element("tr", {}, ...heads.map((text) => element("th", { scope: "col" }, text)));
  const body = rows.map((row) => element("tr", {}, ...row.map((text) => element("td", {}, text))));
  return element("div", { class: "scroll", tabindex: 0 }, element("table", { class: texts ? "texts" : "" }, element("thead", {}, head), element("tbody", {}, ...body)));
}
