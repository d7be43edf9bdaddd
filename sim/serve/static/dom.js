/** Helpers of the other modules: elements, the page's address, and requests to the server. */

import { _ } from "./words.js";

const MOST_TRIES = 3;
const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {string} tag
 * @param {Record<string, string | number | boolean | undefined>} [attributes]  attributes with the value false or undefined are left out
 * @param {...(Node | string)} children  texts are never parsed as HTML
 * @returns {HTMLElement}
 */
export function element(tag, attributes = {}, ...children) {
  return /** @type {HTMLElement} */ (filled(document.createElement(tag), attributes, children));
}

/** @param {string} tag @param {Record<string, any>} [attributes] @param {...(Node | string)} children @returns {SVGElement} */
export function drawn(tag, attributes = {}, ...children) {
  return /** @type {SVGElement} */ (filled(document.createElementNS(SVG, tag), attributes, children));
}

/** @param {Element} made @param {Record<string, any>} attributes @param {(Node | string)[]} children */
function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children);
  return made;
}

/** @param {HTMLElement | SVGElement} made @param {{color: string, dark: string}} fleet  Colours the element as its fleet, on a light and on a dark page. */
export function tint(made, fleet) {
  made.classList.add("tint");
  made.style.setProperty("--light", fleet.color);
  made.style.setProperty("--dark", fleet.dark);
}

/** Refusal by the server, with a sentence for each problem. */
export class Refusal extends Error {
  /** @param {number} status @param {{message: string, line?: number, where?: string, path?: string}[]} errors */
  constructor(status, errors) {
    super(errors.map((one) => [one.where, one.message].filter(Boolean).join(": ")).join("\n"));
    this.status = status;
    this.errors = errors;
  }
}

/**
 * @param {string} address
 * @param {{method?: string, body?: any}} [options]  a body is sent as JSON
 * @returns {Promise<any>} the JSON of the response; the request is repeated while the server is too busy. Throws Refusal.
 */
export async function ask(address, options = {}) {
  const token = document.querySelector('meta[name="change-token"]')?.getAttribute("content") || "";
  const changes = options.method ? { "X-CSRF-Token": token, "Content-Type": "application/json" } : undefined;
  let answer;
  for (let again = 0; !answer; again++) {
    try {
      answer = await fetch(address, { method: options.method, headers: changes, body: options.body && JSON.stringify(options.body) });
    } catch {
      throw new Refusal(0, [{ message: _("the server does not answer; start gpufleet serve again") }]);
    }
    const wait_s = Number(answer.headers.get("Retry-After"));
    if (wait_s && again < MOST_TRIES) {
      await new Promise((done) => window.setTimeout(done, 1000 * wait_s));
      answer = undefined;
    }
  }
  const text = await answer.text();
  let data;
  try {
    data = JSON.parse(text);
  } catch {
    data = { errors: [{ message: text.trim() || answer.statusText }] };
  }
  if (!answer.ok) throw new Refusal(answer.status, data.errors || [{ message: text }]);
  return data;
}

/** @typedef {{run?: string, scenario?: string, template?: string, set: Record<string, string>}} Shown  State of the page, as in its address. */

/** @returns {Shown} */
export function shownInAddress() {
  const query = new URLSearchParams(window.location.search);
  /** @type {Shown} */
  const shown = { set: {} };
  for (const key of /** @type {const} */ (["run", "scenario", "template"])) {
    const value = query.get(key);
    if (value) shown[key] = value;
  }
  for (const item of query.getAll("set")) {
    const at = item.indexOf("=");
    if (at > 0) shown.set[item.slice(0, at)] = item.slice(at + 1);
  }
  return shown;
}

/** @param {Shown} shown @returns {string} the query of an address with that state */
export function queryOf(shown) {
  const query = new URLSearchParams();
  for (const key of /** @type {const} */ (["run", "scenario", "template"])) {
    if (shown[key]) query.set(key, /** @type {string} */ (shown[key]));
  }
  for (const [path, value] of Object.entries(shown.set)) query.append("set", `${path}=${value}`);
  return query.toString().replaceAll("%2F", "/");
}

/** Remove the token from the address, where it would stay in the history and in copied links; the cookie has it. */
export function takeTokenOutOfAddress() {
  const query = window.location.search.slice(1).split("&").filter((part) => !part.startsWith("token=")).join("&");
  window.history.replaceState(null, "", `${window.location.pathname}${query && `?${query}`}`);
}

/** @param {Shown} shown  State to write into the address, without loading the page again. */
export function keepInAddress(shown) {
  window.history.replaceState(null, "", `/?${queryOf(shown)}`);
}

/**
 * @param {number} value @param {number} [digits]
 * @returns {string} the number with *digits* significant digits, thousands separated
 */
export function plain(value, digits = 3) {
  if (!Number.isFinite(value)) return "inf";
  const whole = Math.abs(value) >= 10 ** digits;
  return value.toLocaleString("en-US", whole ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: digits });
}

/** @param {number} value @returns {string} the fraction in percent */
export const percent = (value) => `${plain(100 * value)}\u00a0%`;

/**
 * @template T
 * @param {(given: T) => Promise<void>} work
 * @returns {(given: T) => void} a function that calls *work* with its latest value once the previous call has ended
 */
export function latest(work) {
  let busy = false;
  /** @type {{given: T} | null} */
  let waiting = null;
  return async (given) => {
    waiting = { given };
    if (busy) return;
    busy = true;
    while (waiting) {
      const next = /** @type {{given: T}} */ (waiting);
      waiting = null;
      await work(next.given);
    }
    busy = false;
  };
}
