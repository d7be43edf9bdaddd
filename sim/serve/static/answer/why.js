/** Cost gap between two fleets by component of the cost; the components sum to the gap. */

import { element, plain } from "../dom.js";
import { _ } from "../words.js";

/** @typedef {{fleet: string, setting: string, at: string, good: boolean, total: number, perHour: number, tokensPerHour: number | null, parts: Record<string, number>, text: string}} Cost */

export class Why {
  /** @param {import("./causes.js").Causes} causes  parts of the gap by property */
  constructor(causes) {
    this.causes = causes;
    /** @type {Cost[]} */
    this.costs = [];
    this.of = "";
    this.symbol = "";
    /** @type {Record<string, string>} */
    this.names = {};
    this.first = chooser(_("First fleet"), () => this.draw());
    this.second = chooser(_("Second fleet"), () => this.draw());
    this.place = chooser(_("At"), () => this.draw());
    this.sentence = element("p", { "aria-live": "polite" });
    this.table = element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": _("Parts of the gap") });
    const choice = element("p", { class: "choice" }, this.first.box, " ", this.second.box, " ", this.place.box);
    this.box = element("div", { hidden: true }, element("h2", {}, _("Why?")), choice, this.sentence, this.table, causes.box);
  }

  /**
   * @param {Cost[]} costs @param {string} of  unit of the costs: per million output tokens
   * @param {string} symbol  symbol of the currency @param {Record<string, string>} names  readable names of the components
   */
  update(costs, of, symbol, names) {
    this.costs = costs;
    this.of = of;
    this.symbol = symbol;
    this.names = names;
    const fleets = [...new Set(costs.map(nameOf))];
    const places = [...new Set(costs.map((one) => one.at))];
    this.box.hidden = fleets.length < 2;
    if (this.box.hidden) return;
    this.first.fill(fleets, fleets[0]);
    this.second.fill(fleets, fleets[1]);
    const shared = places.filter((at) => fleets.slice(0, 2).every((name) => costs.some((one) => one.at === at && one.good && nameOf(one) === name)));
    this.place.fill(places, shared.at(-1) ?? places[0]);
    this.place.box.hidden = places.length < 2;
    this.draw();
  }

  draw() {
    const found = [this.first, this.second].map((chosen) => this.costs.find((one) => nameOf(one) === chosen.value() && one.at === this.place.value()));
    const [first, second] = found;
    this.table.replaceChildren();
    if (!first || !second || first === second) {
      this.sentence.textContent = _("Choose two fleets that answer at this load.");
      return;
    }
    this.causes.about(first.fleet, second.fleet);
    const names = [...new Set([...Object.keys(first.parts), ...Object.keys(second.parts)])];
    const parts = names.map((name) => ({ name, first: first.parts[name] || 0, second: second.parts[name] || 0 }));
    parts.sort((a, b) => Math.abs(b.first - b.second) - Math.abs(a.first - a.second));
    this.sentence.textContent = [this.told(first, second), ...largestPart(parts[0], this.names), ...moreTokens(first, second)].join(" ");
    const widest = Math.max(...parts.map((one) => Math.abs(one.first - one.second))) || 1;
    const rows = parts.map((one) => row(this.names[one.name] ?? one.name, one.first, one.second, widest));
    rows.push(row(_("total"), first.total, second.total, 0));
    const heads = [this.of, nameOf(first), nameOf(second), _("difference"), ""].map((text) => element("th", { scope: "col" }, text));
    this.table.append(element("table", { class: "gap" }, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows)));
  }

  /** @param {Cost} first @param {Cost} second @returns {string} a sentence on which fleet costs more */
  told(first, second) {
    const gap = first.total - second.total;
    const places = { first: nameOf(first), second: nameOf(second), of: this.of, gap: `${this.symbol}${plain(Math.abs(gap))}`, mine: first.text, theirs: second.text };
    const sentence = gap > 0
      ? _("{first} costs {gap} more {of} than {second} ({mine} against {theirs}).", places)
      : gap < 0 ? _("{first} costs {gap} less {of} than {second} ({mine} against {theirs}).", places) : _("{first} costs as much {of} as {second} ({mine}).", places);
    return first.at ? _("At {at}, {sentence}", { at: first.at, sentence }) : sentence;
  }
}

/** @typedef {{name: string, first: number, second: number}} Part */

/** @param {Part | undefined} part @param {Record<string, string>} names @returns {string[]} */
const largestPart = (part, names) =>
  part && part.first !== part.second ? [_("The largest part is {part}: {difference}.", { part: names[part.name] ?? part.name, difference: signed(part.first - part.second) })] : [];

/** @param {Cost} first @param {Cost} second @returns {string[]} */
function moreTokens(first, second) {
  const times = first.tokensPerHour && second.tokensPerHour ? first.tokensPerHour / second.tokensPerHour : 1;
  return Math.abs(times - 1) > 0.02 ? [_("{fleet} generates {times} times the tokens per hour.", { fleet: nameOf(first), times: plain(times) })] : [];
}

/** @param {string} name @param {number} first @param {number} second @param {number} widest  0: no bar @returns {HTMLElement} */
function row(name, first, second, widest) {
  const gap = first - second;
  const bar = element("span", { class: gap > 0 ? "bar more" : "bar less" });
  bar.style.width = widest ? `${(100 * Math.abs(gap)) / widest}%` : "0";
  return element("tr", widest ? {} : { class: "total" }, element("th", { scope: "row" }, name), element("td", {}, plain(first)), element("td", {}, plain(second)), element("td", {}, signed(gap)), element("td", { class: "bars" }, bar));
}

/** @param {number} value @returns {string} */
const signed = (value) => !value ? "0" : `${value < 0 ? "−" : "+"}${plain(Math.abs(value))}`;
/** @param {Cost} one @returns {string} */
const nameOf = (one) => (one.setting ? `${one.fleet}, ${one.setting}` : one.fleet);

/** @param {string} label @param {() => void} onChange */
function chooser(label, onChange) {
  const select = /** @type {HTMLSelectElement} */ (element("select"));
  select.addEventListener("change", onChange);
  return {
    box: element("label", {}, `${label} `, select),
    value: () => select.value,
    /** @param {string[]} names @param {string} usual  chosen if the previous choice is no longer offered */
    fill(names, usual) {
      const before = select.value;
      select.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
      select.value = names.includes(before) ? before : usual;
    },
  };
}
