/**
 * Interaction of report pages: charts respond to pointer and keyboard; tables sort, filter and copy. Nothing is fetched.
 * Charts are Vega-Lite specifications in <script type="application/json"> elements.
 */

/** @typedef {{title?: string, rows: [string, string][]}} Details  Tooltip of a point. */
/** @typedef {{view: any, rows: any[], box: HTMLElement, heads: string[]}} Chart  Drawn chart, the rows of its points, and the headings of their figures. */

(() => {
  "use strict";
  /** @type {[string, number][]} Layouts of texts, and the least width of a chart for each: its plot area and its axis. */
  const LAYOUTS = [["wide", 525], ["middle", 425], ["narrow", 0]];
  const MANY_ROWS = 8;
  /** Patterns of texts that a spreadsheet would run as formulas, as in sim/csvio.py, and of numbers among these. */
  const FORMULA = /^\x27*(?:[\t\r\n]|[\s\u200b\ufeff]*[=+\-@＝＋－＠﹦﹢﹣﹫])/;
  const NUMBER = /^[-+]?\d[\d,.]*(?:e[-+]?\d+)?%?$/i;
  /** @type {Chart[]} */
  const charts = [];
  let picked = "";

  /** @param {string} id @returns {any} JSON data in the element with that id */
  const carried = (id) => JSON.parse(document.getElementById(id)?.textContent || "{}");
  /** @type {Record<string, string>} */
  const words = carried("words");
  /** @param {string} text @returns {string} *text* in the language of the page */
  const _ = (text) => words[text] || text;
  const themes = carried("themes");
  /** @type {Record<string, Details>} */
  const details = carried("details");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  /** @param {string} tag @param {Record<string, string>} attributes @param {string} [text] @returns {HTMLElement} */
  function element(tag, attributes, text) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  const tip = element("div", { class: "tip", role: "status", hidden: "" });

  /** @param {any} row @param {string[]} heads @returns {[string, string][]} tooltip from the chart's own data */
  const own = (row, heads) =>
    Array.isArray(row.said) ? row.said.map((/** @type {any} */ value, /** @type {number} */ at) => [heads[at], value]) : Object.entries(row.said || {});

  /** @param {Chart} chart @param {any} row @param {number} x @param {number} y  Show the tooltip of a point beside (x, y). */
  function tell(chart, row, x, y) {
    const known = details[row.key];
    const list = element("dl", {});
    for (const [name, value] of known ? known.rows : own(row, chart.heads)) {
      list.append(element("dt", {}, name), element("dd", {}, String(value)));
    }
    tip.replaceChildren(element("strong", {}, (known && known.title) || row.name || row.fleet), list);
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const left = x + 16 + width < window.innerWidth ? x + 16 : x - 16 - width;
    const top = Math.min(Math.max(8, y - height / 2), window.innerHeight - height - 8);
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${top}px`;
  }

  /** @param {string} name @param {any} value  Set a parameter of every chart. */
  function setAll(name, value) {
    for (const { view } of charts) view.signal(name, value).run();
  }

  /** @param {string} key  Highlight the points with this key in all charts; "" highlights none. */
  function hover(key) {
    setAll("hovered", key);
    if (!key) tip.hidden = true;
  }

  /** @param {string} fleet  Highlight it in all charts; show all again if it is highlighted already. */
  function pick(fleet) {
    picked = fleet === picked ? "" : fleet;
    setAll("picked", picked);
    for (const button of document.querySelectorAll("button[data-fleet]")) {
      button.setAttribute("aria-pressed", String(button.getAttribute("data-fleet") === picked));
    }
  }

  /** @param {any} view @param {boolean} inDark  Set the colours of a chart. */
  function paint(view, inDark) {
    for (const [name, value] of Object.entries(themes[inDark ? "dark" : "light"])) view.signal(name, value);
    view.run();
  }

  /** @param {Chart} chart @param {number} step  Select the next or the previous point, for the keyboard. */
  function walk(chart, step) {
    const count = chart.rows.length;
    const at = (Number(chart.box.dataset.at ?? (step > 0 ? -1 : count)) + step + count) % count;
    chart.box.dataset.at = String(at);
    const row = chart.rows[at];
    hover(row.key);
    const [[left, top], margin] = [chart.view.origin(), chart.view.padding()];
    const frame = chart.box.getBoundingClientRect();
    const [x, y] = ["x", "y"].map((axis) => chart.view.scale(axis)(row[axis]));
    tell(chart, row, frame.left + left + margin.left + x, frame.top + top + margin.top + y);
  }

  /** @param {Chart} chart  Make it respond to pointer and keyboard. */
  function listen(chart) {
    const { view, box } = chart;
    view.addEventListener("pointermove", (/** @type {any} */ event, /** @type {any} */ item) => {
      const row = item?.datum;
      if (!row?.key) return hover("");
      hover(row.key);
      tell(chart, row, event.clientX, event.clientY);
    });
    view.addEventListener("click", (/** @type {any} */ _event, /** @type {any} */ item) => {
      if (item?.datum?.fleet) pick(item.datum.fleet);
      else if (picked) pick(picked);
    });
    box.addEventListener("pointerleave", () => hover(""));
    box.addEventListener("blur", () => hover(""));
    box.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) walk(chart, step);
      else if (event.key === "Enter" && box.dataset.at) pick(chart.rows[Number(box.dataset.at)].fleet);
      else if (event.key === "Escape") hover("");
      else return;
      event.preventDefault();
    });
  }

  /** @param {HTMLElement} holder  Element with the specification; the chart is drawn beside it. */
  async function draw(holder) {
    const spec = JSON.parse(holder.textContent || "{}");
    const box = /** @type {HTMLElement} */ (holder.parentElement?.querySelector(".plot"));
    const options = { mode: "vega-lite", renderer: "svg", actions: false, tooltip: false, defaultStyle: false, hover: false };
    const { view } = await /** @type {any} */ (window).vegaEmbed(box, spec, options);
    /** @type {any[]} */
    const layers = spec.layer || [];
    const rows = layers.flatMap((layer) => layer.data?.values || []).filter((row) => row.key);
    const chart = { view, box, rows, heads: spec.usermeta?.said || [] };
    const names = new Set((spec.params || []).map((/** @type {any} */ one) => one.name));
    if (names.has("layout")) {
      const size = () => view.signal("layout", (LAYOUTS.find(([, least]) => box.clientWidth >= least) || ["narrow"])[0]).run();
      size();
      window.addEventListener("resize", size);
    }
    charts.push(chart);
    paint(view, dark.matches);
    listen(chart);
  }

  /** @param {HTMLTableCellElement | undefined} cell @returns {number | string} sort key of a cell */
  function worth(cell) {
    const small = cell?.querySelector("small")?.textContent || "";
    const text = (cell?.textContent || "").slice(0, (cell?.textContent || "").length - small.length).trim();
    const found = text.replace(/[\u00a0,]/g, "").replace("\u2212", "-").match(/^[^\d\w-]*(-?\d+(\.\d+)?(e[-+]?\d+)?)/i);
    return found ? Number(found[1]) : text === "inf" ? Infinity : text.toLowerCase();
  }

  /** @param {HTMLTableElement} table @param {number} column @param {boolean} down */
  function sort(table, column, down) {
    const body = table.tBodies[0];
    const rows = [...body.rows].filter((row) => !row.classList.contains("total"));
    const totals = [...body.rows].filter((row) => row.classList.contains("total"));
    const sign = down ? -1 : 1;
    rows.sort((a, b) => {
      const [one, other] = [worth(a.cells[column]), worth(b.cells[column])];
      if (one === "" || other === "") return Number(one === "") - Number(other === "");
      if (typeof one === "number" && typeof other === "number") return sign * (one - other);
      return sign * String(one).localeCompare(String(other), undefined, { numeric: true });
    });
    body.append(...rows, ...totals);
    table.classList.add("sorted");
  }

  /** @param {HTMLTableElement} table @returns {string} its shown rows as comma-separated values */
  function csv(table) {
    const quoted = (/** @type {string} */ text) => {
      const safe = FORMULA.test(text) && !NUMBER.test(text) ? `'${text}` : text;
      return /[\x22,\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
    };
    const rows = [...table.rows].filter((row) => !row.hidden);
    return rows
      .map((row) => [...row.cells].map((cell) => {
        const parts = [...cell.childNodes].map((node) => (node.textContent || "").replace(/\s+/g, " ").trim());
        return quoted(parts.filter(Boolean).join(" ").replaceAll("\u00a0", " "));
      }).join(","))
      .join("\n");
  }

  /** @param {string} text  Copy it to the clipboard, also where the clipboard API is not allowed. */
  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = /** @type {HTMLTextAreaElement} */ (element("textarea", { style: "position:fixed;opacity:0" }));
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  }

  /** @param {HTMLTableElement} table  Make its headings sort, its rows filter and its figures copy. */
  function equip(table) {
    const heads = [...(table.tHead?.rows[0]?.cells || [])];
    if (!heads.length || !table.tBodies.length) return;
    const tools = element("div", { class: "tools" });
    const button = element("button", { type: "button" }, _("Copy as CSV"));
    button.addEventListener("click", async () => {
      await copy(csv(table));
      button.textContent = _("Copied");
      setTimeout(() => (button.textContent = _("Copy as CSV")), 1500);
    });
    if (table.tBodies[0].rows.length >= MANY_ROWS && !table.matches(".facts, .glance")) {
      const filter = /** @type {HTMLInputElement} */ (
        element("input", { type: "search", placeholder: _("Filter rows"), "aria-label": _("Filter rows") }));
      filter.addEventListener("input", () => {
        const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
        for (const row of table.tBodies[0].rows) {
          const text = (row.textContent || "").toLowerCase();
          row.hidden = !words.every((word) => text.includes(word));
        }
      });
      tools.append(filter);
    }
    tools.append(button);
    const holder = table.closest(".scroll") || table;
    holder.before(tools);
    if (table.tBodies[0].rows.length < 3 || table.matches(".facts, .glance")) return;
    for (const [column, head] of heads.entries()) {
      if (!head.textContent?.trim()) continue;
      const press = element("button", { type: "button", class: "sort" });
      press.append(...head.childNodes);
      head.append(press);
      press.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        sort(table, column, down);
      });
    }
  }

  document.body.append(tip);
  for (const button of document.querySelectorAll("button[data-fleet]")) {
    button.addEventListener("click", () => pick(button.getAttribute("data-fleet") || ""));
  }
  for (const table of document.querySelectorAll("table")) equip(table);
  for (const holder of document.querySelectorAll("script.chart")) draw(/** @type {HTMLElement} */ (holder));
  dark.addEventListener("change", () => charts.forEach(({ view }) => paint(view, dark.matches)));
  /** @type {HTMLDetailsElement[]} Elements that are open only while the page is printed. */
  let unfolded = [];
  window.addEventListener("beforeprint", () => {
    charts.forEach(({ view }) => paint(view, false));
    unfolded = [...document.querySelectorAll("details")].filter((one) => !one.open);
    for (const one of unfolded) one.open = true;
  });
  window.addEventListener("afterprint", () => {
    charts.forEach(({ view }) => paint(view, dark.matches));
    for (const one of unfolded) one.open = false;
  });
})();
