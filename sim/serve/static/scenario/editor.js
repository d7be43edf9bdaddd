/** Editor of a scenario: text with mistakes marked by line, a form of common fields, and a button that runs it. */

import { completions } from "./complete.js";
import { ask, element, keepInAddress, latest } from "../dom.js";
import { _, ngettext } from "../words.js";

/** @typedef {import("../dom.js").Shown} Shown */
/** @typedef {{message: string, line?: number, where?: string, path?: string}} Mistake */

const PAUSE_MS = 350;

export class EditorView {
  /** @param {Shown} shown @param {(job: string) => void} onRun  called with the id of a run that has been put into the queue */
  constructor(shown, onRun) {
    this.shown = shown;
    this.onRun = onRun;
    this.digest = "";
    this.schema = null;
    /** Whether the text is what the page shows; false where a form has mistakes. */
    this.settled = () => Promise.resolve(true);
    this.name = /** @type {HTMLInputElement} */ (element("input", { type: "text", id: "file-name", size: 34, spellcheck: "false" }));
    this.text = /** @type {HTMLTextAreaElement} */ (element("textarea", { class: "yaml", spellcheck: "false", wrap: "off", "aria-label": _("Scenario as YAML"), rows: 30, autocapitalize: "off" }));
    this.gutter = element("div", { class: "gutter", "aria-hidden": "true" });
    this.mistakes = element("ol", { class: "mistakes", "aria-live": "polite" });
    this.told = element("p", { class: "sub", role: "status" });
    this.form = element("form", { class: "adjustables", "aria-label": _("The usual fields") });
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.keys = element("div", { class: "keys", "aria-label": _("Allowed here") });
    this.changes = element("p", { class: "changes" });
    const save = element("button", { type: "button" }, _("Save"));
    const run = element("button", { type: "button", class: "main" }, _("Save and run"));
    save.addEventListener("click", () => this.save());
    run.addEventListener("click", () => this.run());
    this.bar = element("p", { class: "choice" }, element("label", { for: "file-name" }, _("File"), " "), this.name, " ", save, " ", run);
    const frame = element("div", { class: "editor" }, this.gutter, this.text);
    const main = element("div", {}, this.bar, this.told, this.mistakes, frame, this.keys);
    const side = element("aside", {}, element("h2", {}, _("The usual fields")), element("p", { class: "sub" }, _("Changes made here override the file, as --set does, and are kept in the address.")), this.changes, this.form);
    this.box = element("section", { class: "with-side", "aria-label": _("Scenario") }, main, side);
    this.check = latest(async () => void (await this.checkNow()));
    this.text.addEventListener("input", () => this.edited());
    this.text.addEventListener("scroll", () => (this.gutter.scrollTop = this.text.scrollTop));
    for (const event of ["keyup", "click"]) this.text.addEventListener(event, () => this.complete());
  }

  /** Read the file or the template. */
  async load() {
    const query = this.shown.scenario ? `path=${encodeURIComponent(this.shown.scenario)}` : `template=${encodeURIComponent(this.shown.template || "new")}`;
    const found = await ask(`/api/scenario?${query}`);
    this.text.value = found.text;
    this.digest = found.digest;
    this.name.value = found.path || `${found.name}.yaml`;
    document.title = `${this.name.value} · gpufleet`;
    this.number([]);
  }

  /** Check the text that was read, and load what completes it. */
  async ready() {
    await this.checkNow();
    this.schema = await ask("/api/schema");
    this.complete();
  }

  /** @param {string} text  Text that another part of the page has written. */
  replace(text) {
    if (text === this.text.value) return;
    this.text.value = text;
    this.number([]);
    this.check(null);
  }

  edited() {
    this.number([]);
    window.clearTimeout(this.pause);
    this.pause = window.setTimeout(() => this.check(null), PAUSE_MS);
    this.complete();
  }

  /** @returns {{path: string, text: string, set: string[], digest: string}} */
  sent() {
    return { path: this.name.value.trim(), text: this.text.value, set: Object.entries(this.shown.set).map(([path, value]) => `${path}=${value}`), digest: this.digest };
  }

  async checkNow() {
    try {
      const found = await ask("/api/check", { method: "POST", body: this.sent() });
      this.tell(found.errors);
      this.told.textContent = found.errors.length
        ? ngettext("{count} mistake", "{count} mistakes", found.errors.length)
        : found.cases ? ngettext("No mistakes. {count} simulation to run.", "No mistakes. {count} simulations to run.", found.cases) : _("No mistakes.");
      this.fill(found.fields);
      return found.errors.length === 0;
    } catch (error) {
      this.refuse(error);
      return false;
    }
  }

  /** @param {Mistake[]} errors */
  tell(errors) {
    this.mistakes.replaceChildren(...errors.map((one) => {
      const place = one.line ? element("button", { type: "button" }, _("line {line}", { line: one.line })) : element("span", {}, one.path?.startsWith("--set") ? one.path : "");
      if (one.line) place.addEventListener("click", () => this.goTo(Number(one.line)));
      return element("li", {}, place, " ", [one.where, one.message].filter(Boolean).join(": "));
    }));
    this.number(errors.map((one) => one.line || 0));
  }

  /** @param {unknown} error */
  refuse(error) {
    this.mistakes.replaceChildren(element("li", {}, error instanceof Error ? error.message : String(error)));
  }

  /** @param {number[]} wrong  Numbers of the lines with mistakes, which are marked beside the text. */
  number(wrong) {
    const count = this.text.value.split("\n").length;
    this.gutter.replaceChildren(...Array.from({ length: count }, (_, i) => element("span", wrong.includes(i + 1) ? { class: "wrong" } : {}, String(i + 1))));
    this.gutter.scrollTop = this.text.scrollTop;
  }

  /** @param {number} line  Puts the cursor there. */
  goTo(line) {
    const lines = this.text.value.split("\n");
    const start = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
    this.text.focus();
    this.text.setSelectionRange(start, start + (lines[line - 1] || "").length);
    this.text.scrollTop = Math.max(0, (line - 8) * (this.text.scrollHeight / lines.length));
  }

  complete() {
    if (!this.schema) return;
    const { value, selectionStart } = this.text;
    const { typed, options } = completions(value.slice(0, selectionStart), this.schema);
    this.keys.replaceChildren(...options.slice(0, 40).map((one) => {
      const button = element("button", { type: "button", title: one.about, lang: "en" }, one.text);
      button.addEventListener("click", () => {
        this.text.focus();
        this.text.setRangeText(one.insert.slice(typed.length), selectionStart, this.text.selectionEnd, "end");
        this.edited();
      });
      return button;
    }));
  }

  /** @param {{path: string, label: string, value: any, choices: string[]}[]} fields */
  fill(fields) {
    if (this.form.contains(document.activeElement)) return;
    this.form.replaceChildren(...fields.map((one, i) => {
      const id = `field-${i}`;
      const now = this.shown.set[one.path] ?? (Array.isArray(one.value) ? JSON.stringify(one.value) : String(one.value));
      const input = one.choices.length
        ? element("select", { id }, ...[...new Set([now, ...one.choices])].map((choice) => element("option", { value: choice }, choice)))
        : element("input", { id, type: "text", autocomplete: "off" });
      const field = /** @type {HTMLInputElement} */ (input);
      field.value = now;
      const changed = one.path in this.shown.set;
      const back = element("button", { type: "button", class: "back", "aria-label": _("{label}: reset to the file's value", { label: one.label }), title: _("reset to the file's value") }, "↺");
      back.addEventListener("click", () => this.set(one.path, null));
      field.addEventListener("change", () => this.set(one.path, field.value.trim() || null));
      return element("div", { class: changed ? "field moved" : "field" }, element("label", { for: id }, one.label), back, field);
    }));
    const paths = Object.entries(this.shown.set).map(([path, value]) => `${path}=${value}`);
    this.changes.textContent = paths.length ? _("Values set over the file: {paths}", { paths: paths.join(", ") }) : "";
  }

  /** @param {string} path @param {string | null} value */
  set(path, value) {
    if (value === null) delete this.shown.set[path];
    else this.shown.set[path] = value;
    keepInAddress(this.shown);
    /** @type {HTMLElement | null} */ (document.activeElement)?.blur();
    this.check(null);
  }

  async save() {
    if (!(await this.settled())) return false;
    try {
      const kept = await ask("/api/scenario", { method: "PUT", body: this.sent() });
      this.digest = kept.digest;
      this.shown = { scenario: kept.path, set: this.shown.set };
      keepInAddress(this.shown);
      this.told.textContent = _("Saved as {path}.", { path: kept.path });
      return true;
    } catch (error) {
      this.refuse(error);
      return false;
    }
  }

  async run() {
    if (!(await this.settled()) || !(await this.checkNow()) || !(await this.save())) return;
    try {
      const { job } = await ask("/api/jobs", { method: "POST", body: { path: this.shown.scenario, set: this.sent().set } });
      this.onRun(job.id);
    } catch (error) {
      this.refuse(error);
    }
  }
}
