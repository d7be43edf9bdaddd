/** Texts of the scripts in the reader's language: English as they stand here, others by the words that come with the page. */

/** @type {Record<string, string>} English text -> text */
const WORDS = JSON.parse(document.querySelector('meta[name="words"]')?.getAttribute("content") || "{}");

/** @param {string} text @param {Record<string, string | number>} values @returns {string} */
const filled = (text, values) => text.replace(/\{(\w+)\}/g, (place, name) => String(values[name] ?? place));

/**
 * @param {string} text  a whole sentence, its places named: "line {number}"
 * @param {Record<string, string | number>} [values]  of its places; what they hold is shown as it is
 * @returns {string}
 */
export const _ = (text, values = {}) => filled(WORDS[text] ?? text, values);

/**
 * @param {string} one @param {string} several @param {number} count  the value of the place {count}, too
 * @param {Record<string, string | number>} [values]
 * @returns {string} *one* or *several*; a language with one form has that of *several*
 */
export const ngettext = (one, several, count, values = {}) => filled(WORDS[several] ?? (count === 1 ? one : several), { count, ...values });
