/** A reader's own numbers as a form, and the same scenario as YAML: two tabs that are kept in step. */

import { ask, element, latest } from "../dom.js";
import { EditorView } from "./editor.js";
import { _, ngettext } from "../words.js";

/** @typedef {Record<string, any> & {fleets: Record<string, any>[]}} Values  Values of the form by field. */
/** @typedef {{field: string, message: string, where?: string}} Mistake */
/** @typedef {{model: string[], quantization: string[], gpu: string[], currency: string[], server: Record<string, string>, slots: Record<string, number>}} Choices  servers with the GPU that they take, and their number of GPUs */

const PAUSE_MS = 300;
const FORM = "form";
const YAML = "yaml";

/** @typedef {{name: string, label: string, unit?: string, choices?: string, when?: (values: Values) => boolean, kinds?: [string, string][]}} Field */

/** @type {(values: Values) => boolean} */
const people = (values) => values.load === "people";

/** @returns {[string, Field[]][]} fields of the form by group */
const groups = () => [
  [_("Load"), [
    { name: "load", label: _("The load is stated as"), kinds: [["people", _("people who use it")], ["requests", _("requests per second")]] },
    { name: "people", label: _("People at the same time"), when: people },
    { name: "think_s", label: _("Time from an answer to the next question"), unit: "s", when: people },
    { name: "rate_rps", label: _("Requests per second"), when: (values) => !people(values) },
    { name: "prompt", label: _("Prompt, mean"), unit: _("tokens") },
    { name: "answer", label: _("Answer, mean"), unit: _("tokens") },
    { name: "hours", label: _("Hours a day with this load"), unit: "h" },
  ]],
  [_("Model"), [
    { name: "model", label: _("Model"), choices: "model" },
    { name: "quantization", label: _("Precision of the weights"), choices: "quantization" },
  ]],
  [_("Limits"), [
    { name: "ttft_s", label: _("Time to first token (TTFT) at most"), unit: "s" },
    { name: "tpot_s", label: _("Time per output token (TPOT) at most"), unit: "s" },
  ]],
  [_("Money"), [
    { name: "currency", label: _("Currency"), choices: "currency" },
    { name: "rate_usd", label: _("US dollars for one unit of it"), when: (values) => values.currency !== "USD" },
    { name: "electricity", label: _("Electricity, price per kWh") },
  ]],
];

/** @type {(values: Values) => boolean} */
const bought = (values) => values.acquisition === "buy";

/** @returns {Field[]} fields of a fleet */
const ofFleet = () => [
  { name: "gpu", label: _("GPU"), choices: "gpu" },
  { name: "count", label: _("Number of GPUs") },
  { name: "per_copy", label: _("GPUs for each copy of the model") },
  { name: "acquisition", label: _("Bought or rented"), kinds: [["buy", _("bought")], ["rent", _("rented")]] },
  { name: "price", label: _("Price of a GPU"), when: bought },
  { name: "price", label: _("Rent per GPU-hour"), when: (values) => !bought(values) },
  { name: "server", label: _("Server around the GPUs"), choices: "server", when: bought },
  { name: "server_price", label: _("Price of the server without GPUs"), when: (values) => bought(values) && values.server },
];

export class NumbersView {
  /** @param {import("../dom.js").Shown} shown @param {(job: string) => void} onRun  called with the id of a run that has been put into the queue */
  constructor(shown, onRun) {
    this.editor = new EditorView(shown, onRun);
    this.editor.settled = () => this.settled();
    this.begins = (shown.template || "").startsWith("my-numbers") ? FORM : YAML;
    /** @type {Values | null} */
    this.values = null;
    /** @type {Mistake[]} */
    this.mistakes = [];
    /** @type {Choices | null} */
    this.choices = null;
    this.told = element("p", { class: "sub", role: "status" });
    this.others = element("ul", { class: "mistakes", "aria-live": "polite" });
    this.form = element("form", { class: "numbers", "aria-label": _("My numbers") });
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("input", (event) => {
      const to = /** @type {HTMLElement} */ (event.target);
      window.clearTimeout(this.pause);
      this.pause = window.setTimeout(() => this.write(null), to.tagName === "SELECT" ? 0 : PAUSE_MS);
    });
    this.form.addEventListener("change", (event) => {
      const [first, at, name] = /** @type {HTMLInputElement} */ (event.target).name.split(".");
      if (first === "fleets" && ["gpu", "per_copy"].includes(name)) this.refit(Number(at), name === "gpu");
    });
    /** @type {Record<string, HTMLElement>} tab by name */
    this.tabs = {};
    /** @type {Record<string, HTMLElement>} panel by name */
    this.panels = {
      [FORM]: element("div", { role: "tabpanel", id: "panel-form", "aria-labelledby": "tab-form" }, this.told, this.others, this.form),
      [YAML]: element("div", { role: "tabpanel", id: "panel-yaml", "aria-labelledby": "tab-yaml" }, this.editor.box),
    };
    for (const [name, label] of [[FORM, _("My numbers")], [YAML, "YAML"]]) {
      const tab = element("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}` }, label);
      tab.addEventListener("click", () => this.open(name));
      tab.addEventListener("keydown", (event) => {
        if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
        const other = name === FORM ? YAML : FORM;
        this.open(other).then(() => this.tabs[other].focus());
      });
      this.tabs[name] = tab;
    }
    this.bar = element("div", { class: "tabs", role: "tablist", "aria-label": _("Scenario as a form or as YAML"), hidden: true }, ...Object.values(this.tabs));
    this.box = element("div", {}, this.editor.bar, this.bar, ...Object.values(this.panels));
    this.write = latest(() => this.sync(() => this.sent()));
    /** Last of the exchanges of values and text: each begins after the one before. */
    this.turn = Promise.resolve();
    this.show(this.begins);
  }

  async load() {
    this.told.textContent = _("The scenario is being read …");
    await this.editor.load();
    await (this.begins === FORM ? this.open(FORM) : this.sync(() => ({})));
    this.bar.hidden = !this.values;
    if (!this.values) this.show(YAML);
    await this.editor.ready();
  }

  /** @param {string} name  Show a tab; the form is read from the text as it stands. */
  async open(name) {
    if (name === FORM) {
      this.choices ??= await ask("/api/form");
      await this.sync(() => ({}), true);
      if (!this.values) this.told.textContent = _("This scenario has parts that the form does not know: it is edited as YAML.");
      this.form.hidden = !this.values;
    }
    this.show(name);
    if (name === FORM) this.tell(this.mistakes);
  }

  /** @param {string} name */
  show(name) {
    for (const [one, tab] of Object.entries(this.tabs)) {
      tab.setAttribute("aria-selected", String(one === name));
      tab.setAttribute("tabindex", one === name ? "0" : "-1");
      this.panels[one].hidden = one !== name;
    }
  }

  /**
   * Write values into the text, or read them from it, after all earlier exchanges.
   *
   * @param {() => Values | {}} sent  the values to write; without any, they are read from the text
   * @param {boolean} anew  build the form from the values, which may have other fleets
   * @returns {Promise<void>}
   */
  sync(sent, anew = false) {
    this.turn = this.turn.then(() => this.exchange(sent, anew));
    return this.turn;
  }

  /** @param {() => Values | {}} sent @param {boolean} anew */
  async exchange(sent, anew) {
    try {
      const values = sent();
      const found = await ask("/api/form", { method: "POST", body: { ...this.editor.sent(), values } });
      this.values = found.values;
      this.mistakes = found.errors;
      if (anew && this.values) this.fill();
      if ("load" in values) this.editor.replace(found.text);
      this.told.textContent = found.errors.length
        ? ngettext("{count} mistake", "{count} mistakes", found.errors.length)
        : ngettext("No mistakes. {count} simulation to run.", "No mistakes. {count} simulations to run.", found.cases);
      this.tell(found.errors);
    } catch (error) {
      this.told.textContent = error instanceof Error ? error.message : String(error);
    }
  }

  /** @returns {Promise<boolean>} whether the text has every value of the form, where that is shown */
  async settled() {
    if (this.panels[FORM].hidden || !this.values) return true;
    window.clearTimeout(this.pause);
    await this.sync(() => this.sent());
    /** @type {HTMLElement | null} */ (this.form.querySelector("[aria-invalid]"))?.focus();
    return !this.mistakes.length;
  }

  /** @returns {Values} the values of the form as they stand in its fields */
  sent() {
    /** @type {Values} */
    const values = { ...this.values, fleets: (this.values?.fleets || []).map((one) => ({ ...one })) };
    for (const input of /** @type {NodeListOf<HTMLInputElement>} */ (this.form.querySelectorAll("[name]"))) {
      const [first, at, name] = input.name.split(".");
      if (first === "fleets") values.fleets[Number(at)][name] = input.value;
      else values[first] = input.value;
    }
    this.arrange(values);
    return values;
  }

  /** @param {Mistake[]} mistakes  Show each beside its field, and the others above the form. */
  tell(mistakes) {
    const rest = [];
    for (const place of this.form.querySelectorAll(".wrong-field")) place.textContent = "";
    for (const input of this.form.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
    for (const one of mistakes) {
      const input = one.field && this.form.querySelector(`[name="${CSS.escape(one.field)}"]`);
      if (!input) {
        rest.push(element("li", {}, [one.where, one.message].filter(Boolean).join(": ")));
        continue;
      }
      input.setAttribute("aria-invalid", "true");
      const place = /** @type {HTMLElement} */ (document.getElementById(input.getAttribute("aria-describedby") || ""));
      place.textContent = [place.textContent, one.message].filter(Boolean).join(" ");
    }
    this.others.replaceChildren(...rest);
  }

  /** Build the form anew from the values. */
  fill() {
    const values = /** @type {Values} */ (this.values);
    const parts = groups().map(([title, fields]) => element("fieldset", {}, element("legend", {}, title), ...fields.map((one) => this.field(one, one.name, values))));
    const fleets = values.fleets.map((row, at) => {
      const remove = element("button", { type: "button", "aria-label": _("Remove fleet {number}", { number: at + 1 }) }, _("Remove"));
      remove.addEventListener("click", () => this.change((rows) => rows.filter((_one, i) => i !== at)));
      const fields = ofFleet().map((one) => this.field(one, `fleets.${at}.${one.name}`, row));
      return element("fieldset", { class: "fleet" }, element("legend", {}, _("Fleet {number}", { number: at + 1 })), ...fields, ...(values.fleets.length > 1 ? [remove] : []));
    });
    const add = element("button", { type: "button" }, _("Add a fleet"));
    add.addEventListener("click", () => this.change((rows) => [...rows, { ...rows[rows.length - 1] }]));
    this.form.replaceChildren(...parts, element("h2", {}, _("GPUs to compare")), element("p", { class: "sub" }, _("All prices are in the chosen currency; without a price of its own, a bought GPU or server has that of the catalogue.")), element("div", { class: "fleets" }, ...fleets), element("p", {}, add));
    this.arrange(values);
  }

  /** @param {(rows: Record<string, any>[]) => Record<string, any>[]} to  fleets of the form -> those that it shall have */
  async change(to) {
    await this.sync(() => {
      const values = this.sent();
      return { ...values, fleets: to(values.fleets) };
    }, true);
  }

  /** @param {number} at @param {boolean} anew  Offer the servers that hold the GPUs of a copy; another GPU (`anew`) also needs another price. */
  refit(at, anew) {
    const row = this.sent().fleets[at], fits = this.fitting(row);
    const server = row.server && !fits.includes(row.server) ? fits[0] ?? "" : row.server;
    if (anew) for (const input of this.inputs(`fleets.${at}.price`)) input.value = "";
    if (server !== row.server) for (const input of this.inputs(`fleets.${at}.server_price`)) input.value = "";
    for (const input of this.inputs(`fleets.${at}.server`)) {
      input.replaceChildren(...this.chosen({ name: "server", label: "", choices: "server" }, row, server));
      input.value = server;
    }
    this.arrange(this.sent());
    window.clearTimeout(this.pause);
    this.pause = window.setTimeout(() => this.write(null), 0);
  }

  /** @param {string} of @returns {HTMLInputElement[]} inputs of a field of the form, hidden ones too */
  inputs(of) {
    const rows = [.../** @type {NodeListOf<HTMLElement>} */ (this.form.querySelectorAll(".own"))].filter((row) => this.shown.get(row)?.of === of);
    return rows.map((row) => /** @type {HTMLInputElement} */ (row.querySelector("input, select")));
  }

  /** @param {Field} field @param {Record<string, any>} values @param {string} now @returns {HTMLElement[]} options of a choice */
  chosen(field, values, now) {
    return this.options(field, values, now).map(([value, text]) => element("option", { value }, text));
  }

  /** @param {Record<string, any>} row @returns {string[]} servers that take the GPU of a fleet and hold those of a copy, the smallest first */
  fitting(row) {
    const { server, slots } = /** @type {Choices} */ (this.choices);
    const able = Object.keys(server).filter((name) => (!server[name] || server[name] === row.gpu) && slots[name] >= Number(row.per_copy || 1));
    return able.sort((a, b) => Number(!server[a]) - Number(!server[b]) || slots[a] - slots[b]);
  }

  /** @param {Field} field @param {string} name @param {Record<string, any>} values @returns {HTMLElement} */
  field(field, name, values) {
    const id = `own-${name}-${field.label}`.replace(/\W+/g, "-");
    const now = String(values[field.name] ?? "");
    const shown = { id, name, "aria-describedby": `${id}-wrong` };
    const input = /** @type {HTMLInputElement} */ (field.kinds || field.choices
      ? element("select", shown, ...this.chosen(field, values, now))
      : element("input", { ...shown, type: "text", inputmode: "decimal", autocomplete: "off" }));
    input.value = now;
    const label = element("label", { for: id }, field.label, ...(field.unit ? [" ", element("span", { class: "unit" }, `[${field.unit}]`)] : []));
    const row = element("div", { class: "own" }, label, input, element("span", { class: "wrong-field", id: `${id}-wrong`, role: "alert" }));
    this.shown.set(row, { when: field.when, of: name });
    return row;
  }

  /** @type {WeakMap<HTMLElement, {when?: (values: Values) => boolean, of: string}>} when a row of the form is shown */
  shown = new WeakMap();

  /** @param {Field} field @param {Record<string, any>} values @param {string} now @returns {[string, string][]} value and text of each choice */
  options(field, values, now) {
    if (field.kinds) return field.kinds;
    const known = /** @type {Choices} */ (this.choices);
    if (field.choices === "server") {
      return [["", _("none: only the GPUs are paid")], .../** @type {[string, string][]} */ ([...new Set([...this.fitting(values), now].filter(Boolean))].map((one) => [one, one]))];
    }
    const every = known[/** @type {"gpu"} */ (field.choices)];
    return [...new Set([...every, now])].map((one) => [one, one]);
  }

  /** @param {Values} values  Show the fields that belong to the chosen kinds, and disable the others. */
  arrange(values) {
    for (const row of /** @type {NodeListOf<HTMLElement>} */ (this.form.querySelectorAll(".own"))) {
      const { when, of } = this.shown.get(row) ?? { of: "" };
      const [first, at] = of.split(".");
      row.hidden = Boolean(when) && !when?.(first === "fleets" ? /** @type {Values} */ (values.fleets[Number(at)]) : values);
      const input = /** @type {HTMLInputElement} */ (row.querySelector("input, select"));
      input.name = row.hidden ? "" : of;
      if (row.hidden) input.removeAttribute("name");
    }
  }
}
