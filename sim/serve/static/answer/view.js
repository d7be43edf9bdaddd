/** View of a finished run: verdict, charts, adjustable inputs, and the cost gap between fleets. */

import { Causes } from "./causes.js";
import { Chart, vegaEmbed } from "./plot.js";
import { Refusal, ask, element, keepInAddress, latest, queryOf, tint } from "../dom.js";
import { AdjustableInputs } from "./adjustable_inputs.js";
import { Readings } from "./readings.js";
import { Why } from "./why.js";
import { _ } from "../words.js";

/** @typedef {import("../dom.js").Shown} Shown */

export class AnswerView {
  /** @param {Shown} shown @param {() => void} onRun  called when something has been put into the queue */
  constructor(shown, onRun) {
    this.shown = shown;
    this.verdict = element("p", { class: "verdict", "aria-live": "polite" });
    this.question = element("p", { class: "question" }, _("Reading the run …"));
    this.problem = element("p", { class: "problem", role: "alert", hidden: true });
    this.findings = element("ul");
    this.capacity = element("ul", { class: "capacity" });
    this.charts = element("div", { class: "charts" });
    this.table = element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": _("Figures of every point") });
    this.tables = element("div");
    this.beside = element("div");
    this.legend = element("p", { class: "legend" });
    this.rings = element("p", { class: "legend", hidden: true });
    /** @type {Record<string, import("./plot.js").PointMark>} */
    this.marks = {};
    this.marked = false;
    /** @type {Chart[]} */
    this.drawn = [];
    this.picked = "";
    this.inputs = new AdjustableInputs((path, value) => this.set(path, value));
    this.readings = new Readings();
    this.causes = new Causes(this.shown, onRun);
    this.why = new Why(this.causes);
    this.refresh = latest(() => this.load());
    const reset = element("button", { type: "button" }, _("Reset all"));
    reset.addEventListener("click", () => {
      this.shown.set = {};
      this.moved();
    });
    this.unmoved = "";
    this.changes = element("p", { class: "changes" });
    /** @type {{format: string, name: string}[]} */
    this.forms = [];
    this.exports = element("ul", { class: "exports" });
    const side = element("aside", { hidden: true }, element("h2", {}, _("What if")), this.changes, reset, this.inputs.box);
    const more = element("details", {}, element("summary", {}, _("Notes on the verdict")), this.findings);
    const rest = element("div", { hidden: true },
      this.beside, this.capacity, more, this.legend, this.rings, this.charts, this.readings.box, this.why.box,
      element("h2", {}, _("Figures")), this.table, this.tables, element("div", { class: "take" }, element("h2", {}, _("Export")), this.exports));
    this.read = [rest, side];
    const head = element("div", { class: "answer" }, this.question, this.verdict, this.problem);
    this.box = element("section", { class: "with-side read", "aria-label": _("Answer") }, head, side, rest);
  }

  /** @param {string} path @param {string | null} value  null removes the override */
  set(path, value) {
    if (value === null) delete this.shown.set[path];
    else this.shown.set[path] = value;
    this.moved();
  }

  moved() {
    keepInAddress(this.shown);
    this.refresh(null);
  }

  async load() {
    vegaEmbed().catch(() => {}); // the script loads while the server computes; its error is shown with the first chart
    let data;
    try {
      data = await ask(`/api/answer?${queryOf({ run: this.shown.run, set: this.shown.set })}`);
    } catch (error) {
      this.refuse(error);
      if (!this.verdict.textContent) this.question.textContent = "";
      return;
    }
    this.problem.hidden = true;
    for (const part of this.read) part.hidden = false; // charts are as wide as what is seen
    document.title = `${data.name} · gpufleet`;
    this.question.textContent = data.question;
    this.verdict.textContent = data.verdict.headline;
    this.findings.replaceChildren(...data.verdict.findings.map((/** @type {string} */ text) => element("li", {}, text)));
    this.capacity.replaceChildren(...data.capacity.map(capacityLine));
    this.inputs.update(data.inputs, this.shown.set);
    this.drawCharts(data);
    this.readings.update(data.readings);
    this.causes.box.hidden = !data.judged;
    this.why.update(data.gap, data.gapOf, data.symbol, data.partNames);
    this.unmoved = data.judged ? _("Nothing is simulated again: prices are billed anew, limits are compared with the stored requests.") : _("The simulated work stays as it is and is billed again.");
    this.table.replaceChildren(tableOf(data.table));
    this.tables.replaceChildren(...data.tables.flatMap(folded));
    this.beside.replaceChildren(...(data.beside ?? []).flatMap(opened));
    this.tellChanges();
    if (!this.marked) void this.mark();
  }

  /** @param {unknown} error  Refusal of a value, shown at its input; any other is shown under the verdict. */
  refuse(error) {
    if (error instanceof Refusal && this.inputs.refuse(error.errors)) return;
    this.problem.textContent = error instanceof Error ? error.message : String(error);
    this.problem.hidden = false;
  }

  /** @param {any} data */
  drawCharts(data) {
    while (this.drawn.length < data.charts.length) {
      const chart = new Chart((way, value) => this.set(way.percentile ? `${way.path}.${way.percentile}` : way.path, String(value)), (fleet) => this.pick(fleet));
      chart.marks = this.marks;
      this.drawn.push(chart);
      this.charts.append(chart.box);
    }
    for (const extra of this.drawn.splice(data.charts.length)) extra.box.remove();
    this.drawn.forEach((chart, i) => void chart.update(data.charts[i], data).catch((error) => this.refuse(error)));
    const buttons = data.fleets.map((/** @type {{name: string, glyph: string, color: string, dark: string}} */ fleet) => {
      const glyph = element("span", { "aria-hidden": "true" }, `${fleet.glyph} `);
      tint(glyph, fleet);
      const button = element("button", { type: "button", "aria-pressed": String(this.picked === fleet.name) }, glyph, fleet.name);
      button.addEventListener("click", () => this.pick(fleet.name));
      return button;
    });
    this.legend.replaceChildren(...buttons, " ", data.judged ? _("Filled points meet the SLO, hollow ones miss it; every point is simulated. Drag the line of a limit, or move it with the arrow keys.") : "");
  }

  /** @param {string} fleet  Fleet to highlight; all are shown again if it is highlighted already. */
  pick(fleet) {
    this.picked = this.picked === fleet ? "" : fleet;
    for (const chart of this.drawn) {
      chart.picked = this.picked;
      chart.draw();
    }
    for (const button of this.legend.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(this.picked !== "" && button.textContent?.endsWith(this.picked)));
    }
  }

  /** Load the marks of the points (distance to measurements), which prices and limits do not change. */
  async mark() {
    const found = await ask(`/api/marks?${queryOf({ run: this.shown.run, set: this.shown.set })}`).catch(() => null);
    if (!found) return;
    this.marked = true;
    this.marks = found.marks;
    this.rings.textContent = found.key.join(" · ");
    this.rings.hidden = !found.key.length;
    for (const chart of this.drawn) {
      chart.marks = this.marks;
      chart.draw();
    }
    this.readings.marks = this.marks;
    this.readings.update(this.readings.lines);
  }

  tellChanges() {
    const paths = Object.entries(this.shown.set).map(([path, value]) => `${path}=${value}`);
    this.linkExports();
    this.changes.textContent = paths.length ? _("Changed: {paths}. The address keeps the changes.", { paths: paths.join(", ") }) : this.unmoved;
  }

  async listExports() {
    const found = await ask(`/api/exports?run=${encodeURIComponent(this.shown.run || "")}`).catch(() => ({ exports: [] }));
    this.forms = found.exports;
    this.linkExports();
  }

  /** Link the exports of the answer at the prices and limits of the address. */
  linkExports() {
    const query = queryOf({ run: this.shown.run, set: this.shown.set });
    const links = this.forms.map((one) => element("li", {}, element("a", { href: `/export?${query}&format=${one.format}`, download: "" }, one.name)));
    this.exports.replaceChildren(...links);
  }
}

/** @param {{fleet: string, setting: string, text: string}} one @returns {HTMLElement} */
const capacityLine = (one) => element("li", {}, `${one.setting ? `${one.fleet}, ${one.setting}` : one.fleet}: ${one.text}`);

/** @param {{title: string, note: string, heads: string[], rows: string[][]}} data @returns {HTMLElement[]} a table under its title */
function opened(data) {
  const table = element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": data.title }, tableOf(data));
  return [element("h2", {}, data.title), element("p", { class: "sub" }, data.note), table];
}

/** @param {{title: string, note: string, heads: string[], rows: string[][]}} data @returns {HTMLElement[]} a table that is shown on demand */
function folded(data) {
  const table = element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": data.title }, tableOf(data));
  const note = data.note ? [element("p", { class: "sub" }, data.note)] : [];
  return [element("details", {}, element("summary", {}, `${data.title} (${data.rows.length})`), ...note, table)];
}

/** @param {{heads: string[], rows: string[][]}} data @returns {HTMLElement} */
export function tableOf(data) {
  const head = element("tr", {}, ...data.heads.map((text) => element("th", { scope: "col" }, text)));
  const rows = data.rows.map((row, i) => {
    const again = row[0] === data.rows[i - 1]?.[0]; // the same fleet at another load
    const first = element("th", again ? { scope: "row", "aria-label": row[0] } : { scope: "row" }, again ? "" : row[0]);
    return element("tr", {}, first, ...row.slice(1).map((text) => element("td", {}, text)));
  });
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
}
