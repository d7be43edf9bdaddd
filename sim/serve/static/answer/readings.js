/** Every fleet at one load or at one utilisation, also between the simulated points: how fast it is, and what a token costs. */

import { element, percent, plain } from "../dom.js";

/**
 * @typedef {object} Reading
 * @property {string} fleet @property {string} setting @property {string} axis
 * @property {number[]} x @property {boolean[]} good
 * @property {{column: string, label: string, share: boolean, y: (number | null)[]}[]} figures
 */

const BUSY = "gpu_busy_fraction";

export class Readings {
  constructor() {
    /** @type {Reading[]} */
    this.lines = [];
    this.held = /** @type {HTMLSelectElement} */ (element("select", { id: "held" }));
    this.slider = /** @type {HTMLInputElement} */ (element("input", { type: "range", min: 0, max: 1000, step: 1, value: 500, "aria-label": "Load or utilisation of all fleets" }));
    this.told = element("output");
    this.table = element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Figures at this place" });
    const choice = element("p", { class: "choice" }, element("label", { for: "held" }, "All fleets at the same "), this.held, " ", this.slider, " ", this.told);
    this.box = element("div", { hidden: true }, element("h2", {}, "At one load or utilisation"), choice, this.table);
    this.slider.addEventListener("input", () => this.draw());
    this.held.addEventListener("change", () => this.draw());
  }

  /** @param {Reading[]} lines */
  update(lines) {
    this.lines = lines;
    this.box.hidden = !lines.length;
    if (!lines.length) return;
    const known = lines.some((line) => line.figures.some((one) => one.column === BUSY));
    const kept = this.held.value;
    this.held.replaceChildren(element("option", { value: "load" }, lines[0].axis), ...(known ? [element("option", { value: BUSY }, "utilisation")] : []));
    this.held.value = known && kept === BUSY ? BUSY : "load";
    this.draw();
  }

  /** @param {Reading} line @returns {(number | null)[]} what is held equal, along the simulated points */
  along(line) {
    return this.held.value === BUSY ? line.figures.find((one) => one.column === BUSY)?.y ?? [] : line.x;
  }

  /** @returns {number} what the slider stands for; equal steps of the load are equal factors where the loads allow it */
  at() {
    const every = this.lines.flatMap((line) => this.along(line)).filter((one) => one !== null);
    const [low, high] = this.held.value === BUSY ? [0, 1] : [Math.min(...every), Math.max(...every)];
    const share = Number(this.slider.value) / 1000;
    const at = low > 0 ? low * (high / low) ** share : low + share * (high - low);
    const near = every.find((one) => Math.abs(one - at) <= (high - low) / 400 || Math.abs(one / at - 1) < 0.01);
    return near ?? at;
  }

  draw() {
    const at = this.at();
    const busy = this.held.value === BUSY;
    this.told.textContent = busy ? percent(at) : plain(at);
    this.slider.setAttribute("aria-valuetext", this.told.textContent);
    const shown = this.lines[0].figures.filter((one) => !busy || one.column !== BUSY);
    const front = ["fleet", "basis", "SLO", ...(busy ? [this.lines[0].axis] : [])];
    const head = element("tr", {}, ...[...front, ...shown.map((one) => one.label)].map((text) => element("th", { scope: "col" }, text)));
    const rows = this.lines.map((line) => {
      const place = placeOf(this.along(line), at);
      const cells = shown.map((one) => {
        const figure = line.figures.find((other) => other.column === one.column);
        const value = figure && place && between(figure.y, place);
        return element("td", {}, value === null || value === undefined ? "" : figure?.share ? percent(value) : plain(value));
      });
      const load = busy ? [element("td", {}, place ? plain(between(line.x, place) ?? NaN) : "")] : [];
      const met = place ? [...new Set([line.good[place.low], line.good[place.high]])] : [];
      const slo = met.length > 1 ? "between" : met.length ? (met[0] ? "meets" : "misses") : "";
      return element("tr", {}, element("th", { scope: "row" }, line.setting ? `${line.fleet}, ${line.setting}` : line.fleet), element("td", {}, basis(line.x, place)), element("td", {}, slo), ...load, ...cells);
    });
    this.table.replaceChildren(element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)));
  }
}

/** @typedef {{low: number, high: number, share: number}} Place  Indices of the neighbours, and how far it is to the upper one. */

/** @param {(number | null)[]} x @param {number} at @returns {Place | null} the first place that has it; null beyond what was simulated */
function placeOf(x, at) {
  const exact = x.indexOf(at);
  if (exact >= 0) return { low: exact, high: exact, share: 0 };
  for (let high = 1; high < x.length; high++) {
    const [one, other] = [x[high - 1], x[high]];
    if (one !== null && other !== null && (one - at) * (other - at) < 0) return { low: high - 1, high, share: (at - one) / (other - one) };
  }
  return null;
}

/** @param {(number | null)[]} y @param {Place} place @returns {number | null} */
function between(y, place) {
  const [low, high] = [y[place.low], y[place.high]];
  return low === null || high === null ? null : low + place.share * (high - low);
}

/** @param {number[]} x @param {Place | null} place @returns {string} */
function basis(x, place) {
  if (!place) return "not simulated";
  return place.low === place.high ? "simulated" : `interpolated, ${plain(x[place.low])} to ${plain(x[place.high])}`;
}
