/** Numbers on an axis: where they stand, and the round ones that are marked. */

/**
 * @typedef {object} Scale
 * @property {number} low
 * @property {number} high
 * @property {(value: number) => number} at   place in pixels
 * @property {(pixel: number) => number} from value at a place
 */

/** @param {number} low @param {number} high @param {number} start @param {number} end  in pixels @returns {Scale} */
export function scale(low, high, start, end) {
  const width = high - low || 1;
  return {
    low,
    high,
    at: (value) => start + ((value - low) / width) * (end - start),
    from: (pixel) => low + ((pixel - start) / (end - start)) * width,
  };
}

/** @param {number} low @param {number} high @param {number} most @returns {number[]} round numbers between both */
export function roundMarks(low, high, most) {
  const rough = (high - low) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = ([1, 2, 5, 10].find((one) => one * power >= rough) || 10) * power;
  const marks = [];
  for (let mark = Math.ceil(low / step) * step; mark <= high + step / 1e6; mark += step) marks.push(Number(mark.toPrecision(12)));
  return marks;
}

/**
 * @param {number[]} values  those that set the range
 * @param {{anchored: boolean, share: boolean}} how  anchored: begins at zero; share: from 0 to 1
 * @returns {[number, number]}
 */
export function rangeOf(values, how) {
  if (how.share) return [0, 1.02];
  const known = values.filter(Number.isFinite);
  const high = Math.max(...known, 0);
  const low = how.anchored ? 0 : Math.min(...known);
  const room = (high - low || high || 1) * 0.06;
  return [how.anchored ? 0 : low - room, high + room];
}
