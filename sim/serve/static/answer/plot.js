/** A chart of an answer: a Vega-Lite specification of the server, whose data is replaced as prices and limits move. */

import { element } from "../dom.js";
import { _ } from "../words.js";

/** @typedef {{path: string, percentile: string, scale: number}} Way  Input that a drag of the limit sets, and the chart's unit of it. */
/**
 * @typedef {object} ChartData
 * @property {string} title @property {string} subtitle @property {string} description
 * @property {{at: number, text: string, upright: boolean} | null} line  limit that the chart shows
 * @property {any} spec @property {Way | null} limit
 */
/** @typedef {{mark: string, far: number, name: string, text: string}} PointMark  For programs, how far from what was measured, for people, and with the reasons. */
/** @typedef {{judged: boolean, themes: Record<string, Record<string, any>>}} Look  Whether points meet or miss an SLO; colours by theme. */

/** @type {Record<string, number[]>} Mark of a point -> dashes of the ring around it. */
const RINGS = { interpolated: [1, 0], extrapolated: [1.5, 2] };
const NARROW_PX = 425;
const WIDE_PX = 525;
const REACH_PX = 9;
const OPTIONS = { mode: "vega-lite", renderer: "svg", actions: false, tooltip: false, defaultStyle: false, hover: false, ast: true, config: { aria: false } };
const dark = window.matchMedia("(prefers-color-scheme: dark)");

/** @type {Promise<any> | undefined} */
let program;

/** @returns {Promise<any>} vegaEmbed, which is loaded at the first call */
export function vegaEmbed() {
  program ??= new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = "/vega.js";
    script.addEventListener("load", () => done(/** @type {any} */ (window).vegaEmbed));
    script.addEventListener("error", () => failed(new Error(_("the script that draws charts cannot be loaded"))));
    document.head.append(script);
  });
  return program;
}

/** @param {any} spec @returns {string} what a drawn chart cannot change: all but data and values of parameters */
const fixed = (spec) => JSON.stringify(spec, (key, value) => (["values", "params"].includes(key) && Array.isArray(value) ? value.length && value[0]?.name ? value.map((/** @type {any} */ one) => one.name) : 0 : key === "usermeta" ? 0 : value));

export class Chart {
  /**
   * @param {(way: Way, value: number) => void} onLimit  told of a dragged limit, in base units
   * @param {(fleet: string) => void} onPick  told which fleet was clicked
   */
  constructor(onLimit, onPick) {
    this.onLimit = onLimit;
    this.onPick = onPick;
    this.picked = "";
    /** @type {(() => void) | null} what ends the drag under way */
    this.dragging = null;
    /** @type {Record<string, PointMark>} key of a point -> how near it is to what was measured */
    this.marks = {};
    /** @type {any} */
    this.view = null;
    this.shape = "";
    /** @type {Map<string, string>} rows of each layer, as drawn */
    this.filled = new Map();
    /** @type {any[]} rows of the points */
    this.rows = [];
    this.at = -1;
    this.heading = element("h3");
    this.subtitle = element("p", { class: "sub" });
    this.plot = element("div", { class: "plot", role: "img", tabindex: 0 });
    this.handle = element("div", { class: "limit", role: "slider", tabindex: 0, hidden: true, "aria-valuemin": 0 });
    this.tip = element("div", { class: "tip", role: "status", hidden: true });
    this.box = element("figure", { class: "chart" }, this.heading, this.subtitle, element("div", { class: "frame" }, this.plot, this.handle, this.tip));
    this.listen();
  }

  /** @param {ChartData} data @param {Look} look */
  async update(data, look) {
    this.data = data;
    this.look = look;
    this.heading.textContent = data.title;
    this.subtitle.textContent = data.subtitle;
    this.plot.setAttribute("aria-label", [`${data.title}.`, data.description, _("Arrow keys step through the points.")].join(" "));
    this.rows = data.spec.layer.flatMap((/** @type {any} */ layer) => (layer.params ? layer.data.values : []));
    const shape = fixed(data.spec);
    if (this.view && shape === this.shape) return this.draw();
    const embed = await vegaEmbed();
    if (this.data !== data) return; // a later answer has come meanwhile
    const plot = element("div", { class: "vega" });
    this.plot.append(plot);
    const { view } = await embed(plot, data.spec, OPTIONS);
    for (const old of [...this.plot.children]) if (old !== plot) old.remove();
    this.view?.finalize();
    [this.view, this.shape] = [view, shape];
    this.filled = new Map(data.spec.layer.map((/** @type {any} */ layer) => [layer.data.name, JSON.stringify(layer.data.values)]));
    view.addEventListener("pointermove", (/** @type {any} */ _event, /** @type {any} */ item) => this.show(item?.datum?.key ? item.datum : null));
    view.addEventListener("click", (/** @type {any} */ _event, /** @type {any} */ item) => this.onPick(item?.datum?.fleet || this.picked));
    view.addResizeListener(() => window.requestAnimationFrame(() => this.draw()));
    this.draw();
  }

  /** Bring the drawing up to date with the data, the picked fleet, the marks and the colours of the page. */
  draw() {
    const { view, data } = this;
    if (!view || !data) return;
    const inDark = dark.matches && !this.printing;
    for (const [name, value] of Object.entries(this.look?.themes[inDark ? "dark" : "light"] ?? {})) view.signal(name, value);
    view.signal("picked", this.picked).signal("layout", this.plot.clientWidth < NARROW_PX ? "narrow" : this.plot.clientWidth < WIDE_PX ? "middle" : "wide");
    for (const { name, value } of data.spec.params) {
      if (/^[xy](Low|High|Ticks)$/.test(name) && !this.dragging) view.signal(name, value);
    }
    for (const { data: rows } of data.spec.layer) this.fill(rows.name, rows.name === "rings" ? this.rings() : rows.values);
    view.run();
    this.placeLimit();
  }

  /** @param {string} name @param {any[]} rows  Replace the rows of a layer, where they differ from those drawn. */
  fill(name, rows) {
    const text = JSON.stringify(rows);
    if (this.filled.get(name) === text) return;
    this.filled.set(name, text);
    this.view.data(name, rows.map((row) => ({ ...row })));
  }

  /** @returns {any[]} rows of the rings around points that are far from measurements */
  rings() {
    return this.rows.flatMap((row) => {
      const dash = RINGS[this.marks[row.key]?.mark];
      return dash ? [{ x: row.x, y: row.y, fleet: row.fleet, color: row.color, dash }] : [];
    });
  }

  /** @returns {[number, number]} the upper left corner of the plot area, within the frame */
  corner() {
    const [[left, top], margin] = [this.view.origin(), this.view.padding()];
    return [left + margin.left, top + margin.top];
  }

  /** Put the handle of the limit over its line. */
  placeLimit() {
    const line = this.data?.line;
    this.handle.hidden = !line || !this.data?.limit;
    if (!line || !this.view || this.handle.hidden) return;
    const [left, top] = this.corner();
    const [width, height] = [this.view.signal("width"), this.view.signal("height")];
    const at = Math.max(0, Math.min(line.upright ? width : height, this.view.scale(line.upright ? "x" : "y")(line.at)));
    this.handle.className = line.upright ? "limit across" : "limit updown";
    const [x, y, w, h] = line.upright ? [left + at - REACH_PX, top, 2 * REACH_PX, height] : [left, top + at - REACH_PX, width, 2 * REACH_PX];
    for (const [name, value] of Object.entries({ left: x, top: y, width: w, height: h })) this.handle.style.setProperty(name, `${value}px`);
    const words = { "aria-label": _("{title}: limit", { title: this.data?.title ?? "" }), "aria-valuenow": line.at, "aria-valuetext": line.text, "aria-valuemax": this.highest(line) };
    for (const [name, value] of Object.entries(words)) this.handle.setAttribute(name, String(value));
  }

  /** @param {{upright: boolean}} line @returns {number} the largest value that the limit can be dragged to */
  highest(line) {
    return line.upright ? this.view.signal("xHigh") : Math.min(this.view.signal("yHigh"), this.data?.limit?.path === "slo.attainment" ? 1 : Infinity);
  }

  /** @param {number} pixel  Move the limit to this place, from the upper left corner of the plot area. */
  moveLimit(pixel) {
    const { line, limit } = /** @type {ChartData} */ (this.data);
    if (!line || !limit) return;
    const most = this.highest(line);
    const value = this.view.scale(line.upright ? "x" : "y").invert(pixel);
    this.onLimit(limit, Number((Math.min(most, Math.max(most / 1000, value)) / limit.scale).toPrecision(3)));
  }

  /** @param {any} row  Tell what is known of a point, beside it; null: hide it. */
  show(row) {
    this.view?.signal("hovered", row?.key ?? "").run();
    this.tip.hidden = !row;
    if (!row) return;
    const known = [_("{name} at {place}: {value}", { name: row.name || row.fleet, place: row.said[0], value: row.said[1] })];
    if (this.look?.judged) known.push(row.good ? _("meets the SLO") : _("misses the SLO"), _("simulated"));
    const mark = this.marks[row.key];
    if (mark) known.push(mark.text);
    this.tip.textContent = known.join(_("; "));
    const [left, top] = this.corner();
    const [x, y] = ["x", "y"].map((axis) => this.view.scale(axis)(row[axis]));
    this.tip.style.left = `${Math.max(0, Math.min(left + x + 12, this.plot.clientWidth - this.tip.offsetWidth - 4))}px`;
    this.tip.style.top = `${top + y + 14}px`;
  }

  /** @param {number} step  Show the next point, or the one before. */
  walk(step) {
    const count = this.rows.length;
    if (!count || !this.view) return;
    this.at = this.at < 0 && step < 0 ? count - 1 : (this.at + step + count) % count;
    this.show(this.rows[this.at]);
  }

  listen() {
    this.plot.addEventListener("pointerleave", () => this.show(null));
    this.plot.addEventListener("blur", () => this.show(null));
    this.plot.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) this.walk(step);
      else if (event.key === "Enter" && this.at >= 0) this.onPick(this.rows[this.at].fleet);
      else if (event.key === "Escape") this.show(null);
      else return;
      event.preventDefault();
    });
    this.handle.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      this.handle.focus();
      const follow = (/** @type {PointerEvent} */ at) => {
        const frame = this.plot.getBoundingClientRect();
        const [left, top] = this.corner();
        this.moveLimit(this.data?.line?.upright ? at.clientX - frame.left - left : at.clientY - frame.top - top);
      };
      this.dragging = () => {
        window.removeEventListener("pointermove", follow);
        this.dragging = null;
        this.draw();
      };
      window.addEventListener("pointermove", follow);
      window.addEventListener("pointerup", () => this.dragging?.(), { once: true });
    });
    this.handle.addEventListener("keydown", (event) => {
      const step = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1, PageUp: 5, PageDown: -5 }[event.key];
      const line = this.data?.line;
      if (!step || !line) return;
      event.preventDefault();
      const along = this.view.signal(line.upright ? "width" : "height") / 50;
      this.moveLimit(this.view.scale(line.upright ? "x" : "y")(line.at) + (line.upright ? step : -step) * along);
    });
    dark.addEventListener("change", () => this.draw());
    for (const [name, printing] of /** @type {const} */ ([["beforeprint", true], ["afterprint", false]])) {
      window.addEventListener(name, () => {
        this.printing = printing;
        this.draw();
      });
    }
  }
}
