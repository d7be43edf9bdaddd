/** Figures of all fleets at one load or utilisation, interpolated between the simulated points. */

import { element, percent, plain } from "../dom.js";
import { _ } from "../words.js";

/**
 * @typedef {object} Reading
 * @property {string} fleet @property {string} setting @property {string} axis
 * @property {number[]} x @property {boolean[]} good @property {boolean[]} steady  points that are not overloaded
 * @property {string[]} keys  keys of the points
 * @property {number | null} capacity  highest load within the SLO; utilisation is the load over it
 * @property {{label: string, share: boolean, y: (number | null)[], weights: number[] | null}[]} figures
 */

const UTILISATION = "utilisation";

export class Readings {
  constructor() {
    /** @type {Reading[]} */
    this.lines = [];
    /** @type {Record<string, import("./plot.js").PointMark>} */
    this.marks = {};
    this.held = /** @type {HTMLSelectElement} */ (element("select", { id: "held" }));
    this.slider = /** @type {HTMLInputElement} */ (element("input", { type: "range", min: 0, max: 1000, step: 1, value: 500, "aria-label": _("Load or utilisation of all fleets") }));
    this.told = element("output");
    this.table = element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": _("Figures at this place") });
    const choice = element("p", { class: "choice" }, element("label", { for: "held" }, _("All fleets at the same"), " "), this.held, " ", this.slider, " ", this.told);
    this.box = element("div", { hidden: true }, element("h2", {}, _("At one load or utilisation")), choice, this.table);
    this.slider.addEventListener("input", () => this.draw());
    this.held.addEventListener("change", () => this.draw());
  }

  /** @param {Reading[]} lines */
  update(lines) {
    this.lines = lines;
    this.box.hidden = !lines.length;
    if (!lines.length) return;
    const known = lines.some((line) => line.capacity);
    const kept = this.held.value;
    this.held.replaceChildren(element("option", { value: "load" }, lines[0].axis), ...(known ? [element("option", { value: UTILISATION }, _("utilisation: load over capacity within the SLO"))] : []));
    this.held.value = known && kept === UTILISATION ? UTILISATION : "load";
    this.draw();
  }

  /** @returns {number} the load at the slider, on a logarithmic scale if all loads are positive */
  load() {
    const every = this.lines.flatMap((line) => line.x);
    const [low, high] = [Math.min(...every), Math.max(...every)];
    const share = Number(this.slider.value) / 1000;
    const at = low > 0 ? low * (high / low) ** share : low + share * (high - low);
    const near = every.find((one) => Math.abs(one - at) <= (high - low) / 400 || Math.abs(one / at - 1) < 0.01);
    return near ?? at;
  }

  /** @param {Reading} line @param {Place} place @returns {string} the mark of the neighbour that is farther from measurements */
  marked(line, place) {
    const marks = [place.low, place.high].map((i) => this.marks[line.keys[i]]).filter(Boolean);
    return marks.sort((a, b) => b.far - a.far)[0]?.name ?? "";
  }

  draw() {
    const utilised = this.held.value === UTILISATION;
    const at = utilised ? Number(this.slider.value) / 1000 : this.load();
    this.told.textContent = utilised ? percent(at) : plain(at);
    this.slider.setAttribute("aria-valuetext", this.told.textContent);
    const shown = this.lines[0].figures.map((one) => one.label);
    const front = [_("fleet"), _("basis"), _("measurements"), _("SLO"), ...(utilised ? [this.lines[0].axis] : [])];
    const head = element("tr", {}, ...[...front, ...shown].map((text) => element("th", { scope: "col" }, text)));
    const rows = this.lines.map((line) => {
      const load = utilised ? at * (line.capacity ?? NaN) : at;
      const place = placeOf(line.x, load);
      const cells = shown.map((label) => {
        const figure = line.figures.find((one) => one.label === label);
        const value = figure && place && joined(line, place) ? between(figure, place) : null;
        return element("td", {}, value === null ? "" : figure?.share ? percent(value) : plain(value));
      });
      const its = utilised ? [element("td", {}, line.capacity ? plain(load) : "")] : [];
      return element("tr", {}, element("th", { scope: "row" }, line.setting ? `${line.fleet}, ${line.setting}` : line.fleet), element("td", {}, utilised && !line.capacity ? _("no capacity within the SLO") : basis(line, place)), element("td", {}, place ? this.marked(line, place) : ""), element("td", {}, place ? judged(line, place) : ""), ...its, ...cells);
    });
    this.table.replaceChildren(element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)));
  }
}

/** @typedef {{low: number, high: number, share: number}} Place  Indices of the neighbouring points, and the fraction of the way to the upper one. */

/** @param {number[]} x @param {number} at @returns {Place | null} null beyond the simulated points */
function placeOf(x, at) {
  const exact = x.indexOf(at);
  if (exact >= 0) return { low: exact, high: exact, share: 0 };
  const high = x.findIndex((one) => one > at);
  return high < 1 ? null : { low: high - 1, high, share: (at - x[high - 1]) / (x[high] - x[high - 1]) };
}

/** @param {Reading} line @param {Place} place @returns {string} whether the SLO is met there */
function judged(line, place) {
  const [low, high] = [line.good[place.low], line.good[place.high]];
  if (low === high) return low ? _("met") : _("missed");
  const [met, missed] = low ? [place.low, place.high] : [place.high, place.low];
  return _("met at {met}, missed at {missed}", { met: plain(line.x[met]), missed: plain(line.x[missed]) });
}

/**
 * @param {Reading} line @param {Place} place
 * @returns {boolean} whether figures follow from the neighbouring points: those of an overloaded point depend on the horizon
 */
const joined = (line, place) => place.low === place.high || (line.steady[place.low] && line.steady[place.high]);

/** @param {{y: (number | null)[], weights: number[] | null}} figure @param {Place} place @returns {number | null} */
function between({ y, weights }, place) {
  const [low, high] = [y[place.low], y[place.high]];
  if (low === null || high === null) return null;
  const [one, other] = [(1 - place.share) * (weights?.[place.low] ?? 1), place.share * (weights?.[place.high] ?? 1)];
  return (one * low + other * high) / (one + other);
}

/** @param {Reading} line @param {Place | null} place @returns {string} */
function basis(line, place) {
  if (!place) return _("not simulated");
  if (place.low === place.high) return _("simulated");
  const ends = { low: plain(line.x[place.low]), high: plain(line.x[place.high]) };
  return joined(line, place) ? _("interpolated, {low} to {high}", ends) : _("not interpolated: overloaded at {high}", ends);
}
