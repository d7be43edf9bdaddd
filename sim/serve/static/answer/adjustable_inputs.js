/** Adjustable inputs: a slider and a number field for each limit, price and term. */

import { element, plain } from "../dom.js";
import { _ } from "../words.js";

/** @typedef {{path: string, label: string, unit: string, value: number | null, least: number, most: number}} AdjustableInput */

const STEPS = 200;

export class AdjustableInputs {
  /** @param {(path: string, value: string | null) => void} onMove  called with the new value; null: the scenario's own */
  constructor(onMove) {
    this.onMove = onMove;
    this.box = element("form", { class: "adjustables", "aria-label": _("Limits, prices and terms") });
    this.box.addEventListener("submit", (event) => event.preventDefault());
    /** @type {Map<string, {row: HTMLElement, slider: HTMLInputElement, field: HTMLInputElement, base: number | null}>} */
    this.rows = new Map();
  }

  /** @param {AdjustableInput[]} inputs @param {Record<string, string>} set  overrides of the address */
  update(inputs, set) {
    const paths = inputs.map((one) => one.path);
    if (paths.join() !== [...this.rows.keys()].join()) {
      this.rows.clear();
      this.box.replaceChildren();
      for (const group of [[_("Service level"), "slo."], [_("Prices and terms"), ""]]) {
        const members = inputs.filter((one) => (group[1] ? one.path.startsWith(group[1]) : !one.path.startsWith("slo.")));
        if (members.length) this.box.append(element("fieldset", {}, element("legend", {}, group[0]), ...members.map((one) => this.row(one))));
      }
    }
    for (const input of inputs) {
      const held = this.rows.get(input.path);
      if (!held) continue;
      const moved = input.path in set;
      held.row.classList.toggle("moved", moved);
      if (document.activeElement !== held.field) held.field.value = input.value === null ? "" : String(Number(input.value.toPrecision(6)));
      if (document.activeElement !== held.slider) held.slider.value = String(input.value ?? held.slider.min);
      held.slider.setAttribute("aria-valuetext", input.value === null ? _("none") : `${plain(input.value)} ${input.unit}`);
    }
  }

  /** @param {AdjustableInput} input @returns {HTMLElement} */
  row(input) {
    const id = `input-${this.rows.size}`;
    const step = (input.most - input.least) / STEPS;
    const slider = /** @type {HTMLInputElement} */ (element("input", { type: "range", min: input.least, max: input.most, step: "any", "aria-label": input.label }));
    const field = /** @type {HTMLInputElement} */ (element("input", { type: "text", inputmode: "decimal", id, autocomplete: "off", size: 7 }));
    const back = element("button", { type: "button", class: "back", title: _("reset to the scenario's value"), "aria-label": _("{label}: reset to the scenario's value", { label: input.label }) }, "↺");
    const row = element("div", { class: "adjustable" }, element("label", { for: id }, input.label, " ", element("span", { class: "unit" }, input.unit)), field, back, slider);
    slider.addEventListener("input", () => this.onMove(input.path, String(Number(Number(slider.value).toPrecision(step < 0.01 ? 3 : 4)))));
    slider.addEventListener("keydown", (event) => {
      const way = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
      if (!way) return;
      event.preventDefault();
      slider.value = String(Number(slider.value) + way * step);
      slider.dispatchEvent(new Event("input"));
    });
    field.addEventListener("change", () => this.onMove(input.path, field.value.trim() || null));
    back.addEventListener("click", () => this.onMove(input.path, null));
    this.rows.set(input.path, { row, slider, field, base: input.value });
    return row;
  }
}
