/** Translation of the scripts' texts: English is in the scripts, other languages in a meta element of the page. */

/** @type {Record<string, string>} English text -> translation */
const WORDS = JSON.parse(document.querySelector('meta[name="words"]')?.getAttribute("content") || "{}");

/** @param {string} text @param {Record<string, string | number>} values @returns {string} */
const filled = (text, values) => text.replace(/\{(\w+)\}/g, (place, name) => String(values[name] ?? place));

/**
 * @param {string} text  a whole sentence with named fields: "line {number}"
 * @param {Record<string, string | number>} [values]  values of the fields, which are not translated
 * @returns {string}
 */
export const _ = (text, values = {}) => filled(WORDS[text] ?? text, values);

/**
 * @param {string} one @param {string} several @param {number} count  also the value of the field {count}
 * @param {Record<string, string | number>} [values]
 * @returns {string} *one* or *several*; a language without plural forms uses *several*
 */
export const ngettext = (one, several, count, values = {}) => filled(WORDS[several] ?? (count === 1 ? one : several), { count, ...values });
