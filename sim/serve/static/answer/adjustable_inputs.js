/** Adjustable inputs: a slider and a number field for each limit, price and term. */

import { element, plain } from "../dom.js";
import { _ } from "../words.js";

/** @typedef {{path: string, label: string, unit: string, value: number | null, least: number, most: number, group?: string, choices?: number[]}} AdjustableInput */

const STEPS = 200;

export class AdjustableInputs {
  /** @param {(path: string, value: string | null) => void} onMove  called with the new value; null: the scenario's own */
  constructor(onMove) {
    this.onMove = onMove;
    this.box = element("form", { class: "adjustables", "aria-label": _("Limits, prices and terms") });
    this.box.addEventListener("submit", (event) => event.preventDefault());
    /** @type {Map<string, {row: HTMLElement, slider: HTMLInputElement, field: HTMLInputElement, problem: HTMLElement, choices: number[] | undefined}>} */
    this.rows = new Map();
  }

  /** @param {AdjustableInput[]} inputs @param {Record<string, string>} set  overrides of the address */
  update(inputs, set) {
    const paths = inputs.map((one) => one.path);
    if (paths.join() !== [...this.rows.keys()].join()) {
      this.rows.clear();
      this.box.replaceChildren();
      for (const group of new Set(inputs.map(groupOf))) {
        const members = inputs.filter((one) => groupOf(one) === group);
        this.box.append(element("fieldset", {}, element("legend", {}, group), ...members.map((one) => this.row(one))));
      }
    }
    for (const input of inputs) {
      const held = this.rows.get(input.path);
      if (!held) continue;
      const moved = input.path in set;
      held.row.classList.toggle("moved", moved);
      tell(held, "");
      if (document.activeElement !== held.field) held.field.value = input.value === null ? "" : String(Number(input.value.toPrecision(6)));
      if (document.activeElement !== held.slider) held.slider.value = String(placeOf(input.value ?? input.least, held.choices));
      held.slider.setAttribute("aria-valuetext", input.value === null ? _("none") : `${plain(input.value)} ${input.unit}`);
    }
  }

  /**
   * @param {{message: string, path?: string}[]} errors
   * @returns {boolean} whether each of the *errors* belongs to an input, which shows it
   */
  refuse(errors) {
    const places = errors.map((one) => [...this.rows].find(([path]) => one.path === `--set ${path}`)?.[1]);
    places.forEach((held, i) => {
      held?.row.classList.add("moved");
      if (held) tell(held, errors[i].message);
    });
    return places.every(Boolean);
  }

  /** @param {AdjustableInput} input @returns {HTMLElement} */
  row(input) {
    const id = `input-${this.rows.size}`;
    const { choices } = input;
    const step = choices ? 1 : (input.most - input.least) / STEPS;
    const [min, max] = choices ? [0, choices.length - 1] : [input.least, input.most];
    const slider = /** @type {HTMLInputElement} */ (element("input", { type: "range", min, max, step: choices ? 1 : "any", "aria-label": input.label }));
    const field = /** @type {HTMLInputElement} */ (element("input", { type: "text", inputmode: "decimal", id, autocomplete: "off", size: 7 }));
    const back = element("button", { type: "button", class: "back", title: _("reset to the scenario's value"), "aria-label": _("{label}: reset to the scenario's value", { label: input.label }) }, "↺");
    const problem = element("p", { class: "problem", role: "alert", id: `${id}-problem`, hidden: true });
    const row = element("div", { class: "adjustable" }, element("label", { for: id }, input.label, " ", element("span", { class: "unit" }, input.unit)), field, back, slider, problem);
    const moved = () => (choices ? choices[Number(slider.value)] : Number(Number(slider.value).toPrecision(step < 0.01 ? 3 : 4)));
    slider.addEventListener("input", () => this.onMove(input.path, String(moved())));
    slider.addEventListener("keydown", (event) => {
      const way = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
      if (!way) return;
      event.preventDefault();
      slider.value = String(Number(slider.value) + way * step);
      slider.dispatchEvent(new Event("input"));
    });
    field.addEventListener("change", () => this.onMove(input.path, field.value.trim() || null));
    back.addEventListener("click", () => this.onMove(input.path, null));
    this.rows.set(input.path, { row, slider, field, problem, choices });
    return row;
  }
}

/** @param {AdjustableInput} input @returns {string} heading of its group */
const groupOf = (input) => input.group ?? (input.path.startsWith("slo.") ? _("Service level") : _("Prices and terms"));

/** @param {number} value @param {number[] | undefined} choices @returns {number} place of the slider: the nearest of the *choices* */
function placeOf(value, choices) {
  if (!choices) return value;
  const gaps = choices.map((one) => Math.abs(one - value));
  return gaps.indexOf(Math.min(...gaps));
}

/** @param {{field: HTMLInputElement, problem: HTMLElement}} held @param {string} message  why the value is refused; empty if it is not */
function tell({ field, problem }, message) {
  problem.textContent = message;
  problem.hidden = !message;
  field.toggleAttribute("aria-invalid", Boolean(message));
  if (message) field.setAttribute("aria-describedby", problem.id);
  else field.removeAttribute("aria-describedby");
}
