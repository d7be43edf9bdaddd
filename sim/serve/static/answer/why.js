/** Why one fleet costs more than another: the components of a token's cost, which sum to the gap. */

import { element, plain, said } from "../dom.js";

/** @typedef {{fleet: string, setting: string, at: string, good: boolean, total: number, perHour: number, tokensPerHour: number | null, parts: Record<string, number>, text: string}} Cost */

export class Why {
  /** @param {import("./causes.js").Causes} causes  asks what makes the gap, by property */
  constructor(causes) {
    this.causes = causes;
    /** @type {Cost[]} */
    this.costs = [];
    this.of = "";
    this.symbol = "";
    this.first = chooser("First fleet", () => this.draw());
    this.second = chooser("Second fleet", () => this.draw());
    this.place = chooser("At", () => this.draw());
    this.sentence = element("p", { "aria-live": "polite" });
    this.table = element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Parts of the gap" });
    const choice = element("p", { class: "choice" }, this.first.box, " ", this.second.box, " ", this.place.box);
    this.box = element("div", { hidden: true }, element("h2", {}, "Why?"), choice, this.sentence, this.table, causes.box);
  }

  /** @param {Cost[]} costs @param {string} of  what they are the cost of: per million output tokens @param {string} symbol  of the currency */
  update(costs, of, symbol) {
    this.costs = costs;
    this.of = of;
    this.symbol = symbol;
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
      this.sentence.textContent = said("Choose two fleets that answer at this load.");
      return;
    }
    this.causes.about(first.fleet, second.fleet);
    const gap = first.total - second.total;
    const names = [...new Set([...Object.keys(first.parts), ...Object.keys(second.parts)])];
    const parts = names.map((name) => ({ name, first: first.parts[name] || 0, second: second.parts[name] || 0 }));
    parts.sort((a, b) => Math.abs(b.first - b.second) - Math.abs(a.first - a.second));
    const largest = parts[0];
    const cost = gap ? `costs ${this.symbol}${plain(Math.abs(gap))} ${gap > 0 ? "more" : "less"} ${this.of} than` : `costs as much ${this.of} as`;
    const part = largest.first !== largest.second ? ` The largest part is ${words(largest.name)}: ${signed(largest.first - largest.second)}.` : "";
    const tokens = first.tokensPerHour && second.tokensPerHour ? first.tokensPerHour / second.tokensPerHour : 1;
    const made = Math.abs(tokens - 1) > 0.02 ? ` It makes ${plain(tokens)} times as many tokens per hour.` : "";
    this.sentence.textContent = `${first.at ? `At ${first.at}, ` : ""}${nameOf(first)} ${cost} ${nameOf(second)} (${first.text} against ${second.text}).${part}${made}`;
    const widest = Math.max(...parts.map((one) => Math.abs(one.first - one.second))) || 1;
    const rows = parts.map((one) => row(words(one.name), one.first, one.second, widest));
    rows.push(row("total", first.total, second.total, 0));
    const heads = [this.of, nameOf(first), nameOf(second), "difference", ""].map((text) => element("th", { scope: "col" }, text));
    this.table.append(element("table", { class: "gap" }, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows)));
  }
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
/** @param {string} name @returns {string} */
const words = (name) => name.replaceAll("_", " ").replace("gpu", "GPU");
/** @param {Cost} one @returns {string} */
const nameOf = (one) => (one.setting ? `${one.fleet}, ${one.setting}` : one.fleet);

/** @param {string} label @param {() => void} onChange */
function chooser(label, onChange) {
  const select = /** @type {HTMLSelectElement} */ (element("select"));
  select.addEventListener("change", onChange);
  return {
    box: element("label", {}, `${label} `, select),
    value: () => select.value,
    /** @param {string[]} names @param {string} usual  chosen where what was chosen is no longer there */
    fill(names, usual) {
      const before = select.value;
      select.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
      select.value = names.includes(before) ? before : usual;
    },
  };
}
