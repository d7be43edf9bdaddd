/** Parts of the cost gap by property: Shapley values of `gpufleet sensitivity`, stored or queued on demand. */

import { ask, element, latest, plain, queryOf } from "../dom.js";
import { _ } from "../words.js";

/** @typedef {{folder: string, load: string, clients: number, gap: number, half: number | null, parts: {group: string, part: number, half: number | null}[]}} Gap */

export class Causes {
  /** @param {import("../dom.js").Shown} shown @param {() => void} onRun  called when something has been put into the queue */
  constructor(shown, onRun) {
    this.shown = shown;
    this.onRun = onRun;
    /** @type {string[]} */
    this.between = [];
    this.refresh = latest(() => this.load());
    this.told = element("p", { role: "status" });
    this.tables = element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": _("Parts of the gap by property") });
    this.compute = element("button", { type: "button" }, _("Compute them"));
    this.compute.addEventListener("click", () => this.start());
    const summary = element("summary", {}, _("By property: price, layout, memory, bandwidth, compute, power"));
    this.box = element("details", {}, summary, this.told, this.compute, this.tables);
    this.box.addEventListener("toggle", () => this.load());
  }

  /** @param {string} first @param {string} second */
  about(first, second) {
    this.between = [first, second];
    this.refresh(null);
  }

  query() {
    const { run, set } = this.shown;
    return [queryOf({ run, set }), ...this.between.map((name) => `between=${encodeURIComponent(name)}`)].join("&");
  }

  async load() {
    if (this.box.hidden || !(/** @type {HTMLDetailsElement} */ (this.box).open) || new Set(this.between).size < 2) return;
    try {
      const { gaps } = await ask(`/api/causes?${this.query()}`);
      this.show(gaps);
    } catch (error) {
      this.refuse(error);
    }
  }

  async start() {
    try {
      await ask(`/api/causes?${this.query()}`, { method: "POST" });
      this.told.textContent = _("In the queue above; its results appear here when it has ended.");
      this.onRun();
    } catch (error) {
      this.refuse(error);
    }
  }

  /** @param {unknown} error */
  refuse(error) {
    this.told.textContent = error instanceof Error ? error.message : String(error);
  }

  /** @param {Gap[]} gaps */
  show(gaps) {
    const [first, second] = this.between;
    this.compute.hidden = gaps.length > 0;
    this.told.textContent = gaps.length
      ? _("Difference per million output tokens ({first} minus {second}), from {folder}. Each part is the cost that the first fleet's property adds, averaged over all orders of exchange; the parts sum to the gap.", { first, second, folder: gaps[0].folder })
      : _("They have not been computed for {first} and {second} at these prices. The computation simulates fleets that combine properties of both, at the scenario's load and at full load.", { first, second });
    const heads = [_("part"), ...gaps.map((gap) => (gap.load === "full" ? _("at full load ({clients} clients)", { clients: gap.clients }) : _("at the scenario's load")))];
    const groups = gaps.length ? gaps[0].parts.map((one) => one.group) : [];
    const rows = groups.map((group) => [group, ...gaps.map((gap) => figure(gap.parts.find((one) => one.group === group)))]);
    if (gaps.length) rows.push([_("the gap"), ...gaps.map((gap) => figure({ part: gap.gap, half: gap.half }))]);
    const head = element("tr", {}, ...heads.map((text) => element("th", { scope: "col" }, text)));
    const body = rows.map((row, at) => element("tr", at === groups.length ? { class: "total" } : {}, ...row.map((text, i) => element(i ? "td" : "th", i ? {} : { scope: "row" }, text))));
    this.tables.replaceChildren(...(gaps.length ? [element("table", {}, element("thead", {}, head), element("tbody", {}, ...body))] : []));
  }
}

/** @param {{part: number, half: number | null} | undefined} one @returns {string} */
function figure(one) {
  if (!one) return "";
  const half = one.half ? ` ± ${plain(one.half, 2)}` : "";
  if (!one.part) return "0";
  return `${one.part < 0 ? "−" : "+"}${plain(Math.abs(one.part))}${half}`;
}
