/** Completion of keys and values in a scenario, from its JSON schema and the indentation above the cursor. */

/** @typedef {{text: string, insert: string, about: string}} Option */

/**
 * @param {string} before  text up to the cursor
 * @param {any} schema  schema of the whole scenario
 * @returns {{typed: string, options: Option[]}} typed beginning of the key or value, and its completions
 */
export function completions(before, schema) {
  const lines = before.split("\n");
  const line = lines.pop() || "";
  const key = line.match(/^(\s*(?:- +)*)([\w-]*)$/);
  const value = line.match(/^(\s*(?:- +)*)([\w.-]+):\s+([\w.-]*)$/);
  if (key) {
    const typed = key[2];
    const parts = at(schema, above(lines, key[1].length), schema);
    const found = parts.flatMap((part) => Object.entries(part.properties || {}));
    const options = [...new Map(found)].filter(([name]) => name.startsWith(typed));
    return { typed, options: options.map(([name, part]) => ({ text: name, insert: `${name}: `, about: about(part, schema) })) };
  }
  if (value) {
    const typed = value[3];
    const parts = at(schema, [...above(lines, value[1].length), value[2]], schema);
    const choices = new Map(parts.flatMap((part) => part.enum?.map((/** @type {any} */ one) => [String(one), ""]) || (part.const === undefined ? [] : [[String(part.const), part.description || ""]])));
    const options = [...choices].filter(([one]) => one.startsWith(typed));
    return { typed, options: options.map(([one, meaning]) => ({ text: one, insert: one, about: meaning })) };
  }
  return { typed: "", options: [] };
}

/** @param {string[]} lines @param {number} indent @returns {string[]} the keys above a line with that indentation; "*" for an item of a list */
function above(lines, indent) {
  const path = [];
  let deep = indent;
  for (const line of [...lines].reverse()) {
    const found = line.match(/^(\s*)((?:- +)*)([\w.-]+):/);
    if (!found || line.trimStart().startsWith("#")) continue;
    const [own, whole] = [found[1].length, found[1].length + found[2].length];
    if (whole < deep) {
      path.unshift(found[3]);
      deep = whole;
    }
    if (found[2] && own < deep) {
      path.unshift("*");
      deep = own;
    }
  }
  return path;
}

/** @param {any} part @param {string[]} path @param {any} schema @returns {any[]} every schema allowed at *path* */
function at(part, path, schema) {
  const forms = formsOf(part, schema);
  if (!path.length) return forms;
  const [step, ...rest] = path;
  return forms.flatMap((form) => {
    const item = form.items || (form.prefixItems || [])[0];
    const below = step === "*" ? item : form.properties?.[step] || (form.additionalProperties !== true && form.additionalProperties);
    return below ? at(below, rest, schema) : [];
  });
}

/** @param {any} part @param {any} schema @returns {any[]} schemas, with references and alternatives resolved */
function formsOf(part, schema) {
  if (!part || typeof part !== "object") return [];
  if (part.$ref) return formsOf(schema.$defs?.[part.$ref.replace("#/$defs/", "")], schema);
  const choices = part.anyOf || part.oneOf || part.allOf;
  return choices ? choices.flatMap((/** @type {any} */ one) => formsOf(one, schema)) : [part];
}

/** @param {any} part @param {any} schema @returns {string} meaning of a key; empty where each form's value has a meaning of its own */
function about(part, schema) {
  if (part.const !== undefined) return "";
  return part.description || formsOf(part, schema).map((one) => one.description).find(Boolean) || "";
}
