/** Examples of the home by question, each with a line and a sketch of the picture that answers it. */

import { drawn, element, queryOf } from "./dom.js";

/** @typedef {{group: string, name: string, title: string}} Template */

const [FIRST, SECOND, GREY] = ["sketch first", "sketch second", "sketch axes"];

/** @param {string} look @param {string} d @returns {SVGElement} */
const line = (look, d) => drawn("path", { class: look, d });
/** @param {string} look @param {number} x @param {number} y @param {number} height @returns {SVGElement} */
const bar = (look, x, y, height) => drawn("rect", { class: `${look} full`, x, y: y - height, width: 9, height });
/** @param {string} look @param {...[number, number]} places @returns {SVGElement[]} */
const dots = (look, ...places) => places.map(([cx, cy]) => drawn("circle", { class: `${look} full`, cx, cy, r: 2.6 }));
const axes = () => line(GREY, "M8 4V46H88");

/** @type {Record<string, () => SVGElement[]>} sketches by what a chart shows, on a field of 96 by 54 */
const SKETCHES = {
  curves: () => [line(FIRST, "M16 10L24 26L42 36L70 39"), line(SECOND, "M22 8L40 20L60 26L82 29"), ...dots(FIRST, [16, 10], [24, 26], [42, 36], [70, 39]), ...dots(SECOND, [22, 8], [40, 20], [60, 26], [82, 29])],
  bars: () => [bar(FIRST, 16, 46, 14), bar(SECOND, 30, 46, 20), bar(SECOND, 44, 46, 26), bar(SECOND, 58, 46, 31), bar(SECOND, 72, 46, 37), line(GREY, "M8 20H88")],
  crossing: () => [line(FIRST, "M12 26L84 18"), line(SECOND, "M12 44L84 6"), ...dots(SECOND, [52, 22])],
  steps: () => [line(FIRST, "M10 40H28V30H50V20H68V10H86"), line(SECOND, "M10 44C34 40 58 26 86 8")],
  day: () => [line(SECOND, "M10 42C26 42 26 12 46 12S66 42 86 40"), line(FIRST, "M10 36H22V22H30V8H62V22H72V36H86")],
  spread: () => [line(FIRST, "M12 44C28 44 28 12 40 12S52 44 64 44"), line(SECOND, "M30 44C46 44 50 20 60 20S74 44 86 44")],
  blocks: () => [bar(FIRST, 12, 20, 10), bar(FIRST, 24, 20, 10), bar(SECOND, 36, 20, 10), bar(FIRST, 12, 33, 10), bar(SECOND, 24, 33, 10), bar(SECOND, 36, 33, 10), bar(FIRST, 12, 46, 10), bar(FIRST, 48, 33, 10), bar(SECOND, 60, 46, 10), bar(FIRST, 72, 20, 10)],
};
/** @type {Record<string, string>} sketch of each example; another one has that of curves */
const OF = {
  "energy-mac-vs-4090": "bars", "futures-4x4090-vs-2xa100": "spread", "size-72b-chat": "bars", "size-documents-8b": "bars", "failures-n-plus-k": "bars",
  "autoscale-day": "day", "plan-grow-72b": "steps", "breakeven-4x4090-vs-2xa100": "crossing", "rent-by-day": "day", "spot-mix": "day", "mig-recommender": "blocks",
  "services-on-one-card": "blocks", "kv-tiers": "bars", "offload-70b-on-4090": "bars", "training-4090-vs-a100": "bars", "training-gpt3-175b": "bars",
  "jobs-on-a-cluster": "blocks", "jobs-beside-serving": "blocks", "tenants": "spread", "chat-from-a-trace": "day",
};

/** @param {string} name @returns {SVGElement} */
const sketch = (name) => drawn("svg", { viewBox: "0 0 96 54", width: 96, height: 54, "aria-hidden": "true" }, axes(), ...SKETCHES[OF[name] ?? "curves"]());

/** @param {Template[]} templates @returns {HTMLElement[]} a list for each question */
export function examples(templates) {
  const groups = [...new Set(templates.map((one) => one.group))];
  return groups.flatMap((group) => {
    const mine = templates.filter((one) => one.group === group);
    const cards = mine.map((one) => element("li", {}, element("a", { href: `/?${queryOf({ template: one.name, set: {} })}`, title: one.name }, sketch(one.name), element("span", {}, one.title))));
    return [...(group ? [element("h3", {}, group)] : []), element("ul", { class: "cards" }, ...cards)];
  });
}
