/** A chart as SVG: curves with intervals, hollow marks where the SLO is missed, and a limit that can be dragged. */

import { drawn, element, percent, plain, tint } from "../dom.js";
import { _ } from "../words.js";
import { rangeOf, roundMarks, scale } from "./scale.js";

/**
 * @typedef {object} Curve
 * @property {string} name @property {string} fleet @property {string} color @property {string} dark @property {string} marker
 * @property {boolean} dashed @property {boolean} filled @property {(number | null)[]} x @property {(number | null)[]} y
 * @property {(number[] | null)[]} band  ends of the 95 % interval at each point; empty for a curve without any
 * @property {boolean[]} good @property {boolean[]} steady
 * @property {string[]} keys @property {string[]} tags
 */
/**
 * @typedef {object} ChartData
 * @property {string} title @property {string} subtitle @property {string} xLabel
 * @property {string} symbol  of the currency, empty where y is no money
 * @property {boolean} judged  whether points meet or miss an SLO
 * @property {boolean} share @property {boolean} anchored
 * @property {number[]} ticks @property {string[]} tickNames
 * @property {{at: number, text: string} | null} xLimit @property {{at: number, text: string} | null} yLimit
 * @property {Curve[]} curves @property {{path: string, percentile: string, scale: number} | null} limit
 */

/** @typedef {{low: number, high: number, log: boolean}} Range */
/** @typedef {{mark: string, far: number, name: string, text: string}} PointMark  For programs, how far from what was measured, for people, and with the reasons. */

const MARKS = {
  o: "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",
  s: "M-4 -4h8v8h-8z",
  "^": "M0 -5l5 9h-10z",
  D: "M0 -5.5l5.5 5.5l-5.5 5.5l-5.5 -5.5z",
  v: "M0 5l5 -9h-10z",
  P: "M-1.7 -5h3.4v3.3h3.3v3.4h-3.3v3.3h-3.4v-3.3h-3.3v-3.4h3.3z",
  X: "M-5 -3l2 -2l3 3l3 -3l2 2l-3 3l3 3l-2 2l-3 -3l-3 3l-2 -2l3 -3z",
};
/** @type {Record<string, string>} Mark of a point -> look of the ring around it. */
const RINGS = { interpolated: "between", extrapolated: "beyond" };
const LONGEST_NAME = 28;
const HEIGHT = 250;
const ROOM = { left: 52, right: 14, top: 10, bottom: 40 };

/** @param {number} value @param {import("./scale.js").Scale} axis @returns {number} the nearest value that the axis has */
const held = (value, axis) => Math.max(axis.low, Math.min(value, axis.high));

export class Chart {
  /**
   * @param {(way: {path: string, percentile: string}, value: number) => void} onLimit  told of a dragged limit, in base units
   * @param {(fleet: string) => void} onPick  told which fleet was clicked
   */
  constructor(onLimit, onPick) {
    this.onLimit = onLimit;
    this.onPick = onPick;
    this.picked = "";
    /** @type {string | null} key of the point where Tab stops */
    this.stop = null;
    /** @type {(() => void) | null} what ends the drag under way */
    this.dragging = null;
    /** @type {{y: number, left: number, right: number}[]} where names of curves stand already */
    this.names = [];
    /** @type {Record<string, PointMark>} key of a point -> how near it is to what was measured */
    this.marks = {};
    this.heading = element("h3");
    this.subtitle = element("p", { class: "sub" });
    this.plot = element("div", { class: "plot" });
    this.tip = element("div", { class: "tip", role: "status", hidden: true });
    this.box = element("figure", { class: "chart" }, this.heading, this.subtitle, this.plot, this.tip);
    new ResizeObserver(() => this.data && this.draw()).observe(this.plot);
  }

  /** @param {ChartData} data */
  update(data) {
    this.data = data;
    this.draw();
  }

  /** @param {number} value @returns {string} */
  told(value) {
    if (this.data?.share) return percent(value);
    return `${this.data?.symbol || ""}${plain(value)}`;
  }

  draw() {
    const data = /** @type {ChartData} */ (this.data);
    const width = Math.max(260, this.plot.clientWidth);
    this.heading.textContent = data.title;
    this.subtitle.textContent = data.subtitle;
    if (!this.dragging) this.range = this.ranges(data);
    const [across, upwards] = /** @type {Range[]} */ (this.range);
    this.x = scale(across, ROOM.left, width - ROOM.right);
    this.y = scale(upwards, HEIGHT - ROOM.bottom, ROOM.top);
    const svg = drawn("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "group", "aria-label": `${data.title}, ${data.subtitle}` });
    svg.append(...this.axes(data, width));
    this.names = [];
    for (const curve of data.curves) svg.append(this.curve(curve, width));
    for (const line of this.limits(data, width)) svg.append(line);
    const focused = this.plot.contains(document.activeElement) && document.activeElement?.getAttribute("data-key");
    this.plot.replaceChildren(svg);
    this.stopAt(this.stop);
    if (focused) /** @type {SVGElement | null} */ (this.plot.querySelector(`[data-key="${CSS.escape(focused)}"]`))?.focus();
  }

  /** @param {ChartData} data @returns {Range[]} of x and y: overloaded points do not stretch the chart */
  ranges(data) {
    const [xs, ys] = /** @type {[number[], number[]]} */ ([[], []]);
    for (const curve of data.curves) {
      curve.x.forEach((x, i) => {
        const y = curve.y[i];
        if (x === null || y === null || curve.steady[i] === false) return;
        xs.push(x);
        ys.push(y, curve.band[i]?.[1] ?? y);
      });
    }
    const dragged = data.limit !== null;
    const room = dragged ? [1, 1.1] : [1];
    if (data.xLimit) xs.push(...room.map((one) => one * (data.xLimit?.at ?? 1)));
    if (data.yLimit && !data.share) ys.push(...room.map((one) => one * (data.yLimit?.at ?? 1)));
    return [rangeOf([...xs, ...data.ticks], { anchored: data.anchored, share: false }), rangeOf(ys, { anchored: true, share: data.share })];
  }

  /** @param {ChartData} data @param {number} width @returns {SVGElement[]} grid, marks and their numbers */
  axes(data, width) {
    const bottom = HEIGHT - ROOM.bottom;
    const [x, y] = [this.x, this.y];
    if (!x || !y) return [];
    const found = [];
    for (const mark of roundMarks(y, 5)) {
      const at = y.at(mark);
      found.push(drawn("line", { class: "grid", x1: ROOM.left, x2: width - ROOM.right, y1: at, y2: at }));
      found.push(drawn("text", { class: "mark", x: ROOM.left - 6, y: at + 4, "text-anchor": "end" }, this.told(mark)));
    }
    const marks = data.ticks.length ? data.ticks : roundMarks(x, width < 420 ? 4 : 7);
    let free = -Infinity;
    marks.forEach((mark, i) => {
      const [at, text] = [x.at(mark), data.tickNames[i] ?? plain(mark)];
      found.push(drawn("line", { class: "tick", x1: at, x2: at, y1: bottom, y2: bottom + 4 }));
      if (at - text.length * 3.5 < free) return;
      free = at + text.length * 3.5 + 6;
      found.push(drawn("text", { class: "mark", x: at, y: bottom + 16, "text-anchor": "middle" }, text));
    });
    found.push(drawn("line", { class: "axis", x1: ROOM.left, x2: width - ROOM.right, y1: bottom, y2: bottom }));
    found.push(drawn("text", { class: "mark", x: (ROOM.left + width - ROOM.right) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, width < 420 ? data.xLabel.split(";")[0] : data.xLabel));
    return found;
  }

  /** @param {Curve} curve @param {number} width @returns {SVGElement} */
  curve(curve, width) {
    const { x, y } = this;
    const group = drawn("g", { class: this.picked && this.picked !== curve.fleet ? "curve aside" : "curve" });
    if (!x || !y) return group;
    tint(group, curve);
    const inside = curve.x.map((value, i) => {
      const other = curve.y[i];
      if (value === null || other === null) return null;
      const off = value > x.high ? `▸ ${plain(value)}` : value < x.low ? `◂ ${plain(value)}` : other > y.high ? `▲ ${this.told(other)}` : other < y.low ? `▼ ${this.told(other)}` : "";
      return { x: x.at(held(value, x)), y: y.at(held(other, y)), off, i };
    });
    const known = inside.filter((one) => one !== null);
    const edges = known.flatMap((one) => {
      const band = curve.band[one.i];
      return band ? [band.map((end) => `${one.x},${y.at(held(end, y))}`)] : [];
    });
    if (edges.length) group.append(drawn("polygon", { class: "band", points: [...edges.map(([low]) => low), ...edges.map(([, high]) => high).reverse()].join(" ") }));
    const settled = known.filter((one) => !one.off && curve.steady[one.i] !== false);
    for (const [i, one] of known.slice(1).entries()) {
      const firm = settled.includes(one) && settled.includes(known[i]);
      const ends = { x1: known[i].x, y1: known[i].y, x2: one.x, y2: one.y };
      group.append(drawn("line", { class: curve.dashed ? "line dashed" : firm ? "line" : "line loose", ...ends }));
    }
    if (curve.filled && known.length) {
      const floor = y.at(Math.max(0, y.low));
      const outline = [`${known[0].x},${floor}`, ...known.map((one) => `${one.x},${one.y}`), `${known[known.length - 1].x},${floor}`];
      group.append(drawn("polygon", { class: "band", points: outline.join(" ") }));
    }
    for (const one of curve.marker ? known : []) {
      group.append(this.point(curve, one));
      if (curve.tags[one.i]) group.append(drawn("text", { class: "tag", x: one.x + 7, y: one.y - 6 }, curve.tags[one.i]));
    }
    const last = settled.at(-1) ?? known.at(-1);
    if (last) group.append(...this.nameAt(last, curve.name, width));
    return group;
  }

  /** @param {{x: number, y: number}} end @param {string} whole  name @param {number} width @returns {SVGElement[]} beside the last point that is steady, where there is room */
  nameAt(end, whole, width) {
    const name = whole.length > LONGEST_NAME ? `${whole.slice(0, LONGEST_NAME - 1)}…` : whole;
    const ends = end.x > width * 0.6;
    const left = ends ? end.x - 8 - name.length * 7 : end.x + 10;
    if (left < ROOM.left || left + name.length * 7 > width) return []; // the pointer and the key name it
    const free = (/** @type {number} */ y) => this.names.every((one) => Math.abs(one.y - y) > 13 || one.left > left + name.length * 7 || left > one.right);
    const y = [end.y - 10, end.y + 18, end.y - 24, end.y + 32].find((one) => one > ROOM.top + 8 && one < HEIGHT - ROOM.bottom && free(one));
    if (y === undefined) return [];
    this.names.push({ y, left, right: left + name.length * 7 });
    return [drawn("text", { class: "name", x: end.x + (ends ? -8 : 10), y, "text-anchor": ends ? "end" : "start" }, name)];
  }

  /** @param {Curve} curve @param {{x: number, y: number, off: string, i: number}} one @returns {SVGElement} */
  point(curve, one) {
    const { i } = one;
    const value = this.told(/** @type {number} */ (curve.y[i]));
    const [low, high] = (curve.band[i] ?? []).map((end) => this.told(end));
    const interval = low === high ? "" : ` (${_("{low} to {high}", { low, high })})`;
    const at = this.data?.tickNames[this.data.ticks.indexOf(/** @type {number} */ (curve.x[i]))] ?? plain(/** @type {number} */ (curve.x[i]));
    const where = curve.tags[i] ? `${curve.tags[i]}, ${at}` : at;
    const known = [_("{name} at {place}: {value}", { name: curve.name, place: where, value: `${value}${interval}` })];
    if (one.off) known.push(_("off the chart"));
    if (this.data?.judged) known.push(curve.good[i] ? _("meets the SLO") : _("misses the SLO"), _("simulated"));
    const mark = this.marks[curve.keys[i]];
    if (mark) known.push(mark.text);
    const text = known.join(_("; "));
    const made = drawn("g", { class: curve.good[i] ? "point" : "point missed", transform: `translate(${one.x} ${one.y})`, tabindex: -1, role: "img", "aria-label": text, "data-key": curve.keys[i] ?? `${curve.name}/${i}` });
    made.append(drawn("circle", { class: "reach", r: 11 }), ...(mark && RINGS[mark.mark] ? [drawn("circle", { class: `ring ${RINGS[mark.mark]}`, r: 8 })] : []), drawn("path", { d: MARKS[/** @type {keyof MARKS} */ (curve.marker)] || MARKS.o }));
    const right = one.x > 0.8 * this.plot.clientWidth;
    if (one.off) made.append(drawn("text", { class: "name", x: right ? -9 : 8, y: 4, "text-anchor": right ? "end" : "start" }, one.off));
    const show = () => this.tell(text, one.x, one.y);
    made.addEventListener("pointerenter", show);
    made.addEventListener("focus", () => {
      this.stopAt(made.getAttribute("data-key"));
      show();
    });
    made.addEventListener("pointerleave", () => (this.tip.hidden = true));
    made.addEventListener("blur", () => (this.tip.hidden = true));
    made.addEventListener("click", () => this.onPick(curve.fleet));
    made.addEventListener("keydown", (event) => {
      const { key } = /** @type {KeyboardEvent} */ (event);
      const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
      if (step) this.walk(made, step);
      else if (key === "Enter") this.onPick(curve.fleet);
      else if (key === "Escape") this.tip.hidden = true;
      else return;
      event.preventDefault();
    });
    return made;
  }

  /** @param {string | null} key  Of all points the one where Tab stops; the arrow keys lead to the others. */
  stopAt(key) {
    const points = [...this.plot.querySelectorAll(".point")];
    const stop = points.find((one) => one.getAttribute("data-key") === key) ?? points[0];
    for (const one of points) one.setAttribute("tabindex", one === stop ? "0" : "-1");
    this.stop = stop?.getAttribute("data-key") ?? null;
  }

  /** @param {SVGElement} from @param {number} step  Focuses the next point, or the one before. */
  walk(from, step) {
    const points = /** @type {SVGElement[]} */ ([...this.plot.querySelectorAll(".point")]);
    points[(points.indexOf(from) + step + points.length) % points.length].focus();
  }

  /** @param {string} text @param {number} x @param {number} y  Shows what is known of a point, beside it. */
  tell(text, x, y) {
    this.tip.textContent = text;
    this.tip.hidden = false;
    const left = Math.min(x + 12, this.plot.clientWidth - this.tip.offsetWidth - 4);
    this.tip.style.left = `${Math.max(0, left)}px`;
    this.tip.style.top = `${this.plot.offsetTop + y + 14}px`;
  }

  /** @param {ChartData} data @param {number} width @returns {SVGElement[]} the forbidden side and the line */
  limits(data, width) {
    const limit = data.xLimit || data.yLimit;
    const { x, y } = this;
    if (!limit || !x || !y) return [];
    const [right, bottom] = [width - ROOM.right, HEIGHT - ROOM.bottom];
    const upright = Boolean(data.xLimit);
    const at = upright ? Math.max(ROOM.left, Math.min(right, x.at(limit.at))) : Math.min(bottom, Math.max(ROOM.top, y.at(limit.at)));
    const over = !data.share;
    const side = upright
      ? { x: at, y: ROOM.top, width: Math.max(0, right - at), height: bottom - ROOM.top }
      : { x: ROOM.left, y: over ? ROOM.top : at, width: right - ROOM.left, height: Math.max(0, over ? at - ROOM.top : bottom - at) };
    const ends = upright ? { x1: at, x2: at, y1: ROOM.top, y2: bottom } : { x1: ROOM.left, x2: right, y1: at, y2: at };
    const label = upright
      ? drawn("text", { class: "limit-name", x: at + (at > width * 0.7 ? -5 : 5), y: bottom - 7, "text-anchor": at > width * 0.7 ? "end" : "start" }, limit.text)
      : drawn("text", { class: "limit-name", x: ROOM.left + 5, y: at - 5 < ROOM.top + 8 ? at + 13 : at - 5 }, limit.text);
    const line = drawn("g", { class: data.limit ? `limit drag ${upright ? "across" : "updown"}` : "limit" }, drawn("line", { class: "reach", ...ends }), drawn("line", ends), label);
    if (data.limit) this.dragged(line, limit.at, upright, data);
    return [drawn("rect", { class: "forbidden", ...side }), line];
  }

  /** @param {SVGElement} line @param {number} now @param {boolean} upright @param {ChartData} data  Lets pointer and keyboard move it. */
  dragged(line, now, upright, data) {
    const way = /** @type {{path: string, percentile: string, scale: number}} */ (data.limit);
    const axis = /** @type {import("./scale.js").Scale} */ (upright ? this.x : this.y);
    const most = data.share ? 1 : axis.high * 0.999;
    const kept = (/** @type {number} */ value) => Math.min(most, Math.max(axis.high / 1000, value));
    const move = (/** @type {number} */ value) => this.onLimit(way, Number((kept(value) / way.scale).toPrecision(3)));
    const words = { role: "slider", tabindex: 0, "data-key": "limit", "aria-label": _("{title}: limit", { title: data.title }), "aria-valuenow": now, "aria-valuetext": (data.xLimit || data.yLimit)?.text, "aria-valuemin": 0, "aria-valuemax": most };
    for (const [name, value] of Object.entries(words)) line.setAttribute(name, String(value));
    line.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      const frame = this.plot.getBoundingClientRect();
      const follow = (/** @type {PointerEvent} */ at) => move(axis.from(upright ? at.clientX - frame.left : at.clientY - frame.top));
      this.dragging = () => {
        window.removeEventListener("pointermove", follow);
        this.dragging = null;
        this.draw();
      };
      window.addEventListener("pointermove", follow);
      window.addEventListener("pointerup", () => this.dragging?.(), { once: true });
    });
    line.addEventListener("keydown", (event) => {
      const { key } = /** @type {KeyboardEvent} */ (event);
      const steps = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1, PageUp: 5, PageDown: -5 };
      const step = steps[/** @type {keyof steps} */ (key)];
      if (!step) return;
      event.preventDefault();
      move(axis.moved(now, step / 50));
    });
  }
}
