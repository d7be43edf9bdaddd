/** Scales of axes: positions of values, and round numbers for ticks. */

/**
 * @typedef {object} Scale
 * @property {number} low
 * @property {number} high
 * @property {boolean} log   whether the scale is logarithmic
 * @property {(value: number) => number} at   position of a value in pixels
 * @property {(pixel: number) => number} from value at a position
 * @property {(value: number, share: number) => number} moved  value moved by a fraction of the axis
 */

const DECADE = 10;

/** @param {{low: number, high: number, log: boolean}} range @param {number} start @param {number} end  in pixels @returns {Scale} */
export function scale({ low, high, log }, start, end) {
  const way = (/** @type {number} */ value) => (log ? Math.log(Math.max(value, low / DECADE)) : value);
  const back = (/** @type {number} */ place) => (log ? Math.exp(place) : place);
  const [first, width] = [way(low), way(high) - way(low) || 1];
  return {
    low,
    high,
    log,
    at: (value) => start + ((way(value) - first) / width) * (end - start),
    from: (pixel) => back(first + ((pixel - start) / (end - start)) * width),
    moved: (value, share) => back(way(value) + share * width),
  };
}

/** @param {Scale} axis @param {number} most @returns {number[]} round numbers within the range */
export function roundMarks(axis, most) {
  const { low, high } = axis;
  if (axis.log) return decadeMarks(low, high, most);
  const rough = (high - low) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = ([1, 2, 5, 10].find((one) => one * power >= rough) || 10) * power;
  const marks = [];
  for (let mark = Math.ceil(low / step) * step; mark <= high + step / 1e6; mark += step) marks.push(Number(mark.toPrecision(12)));
  return marks;
}

/** @param {number} low @param {number} high @param {number} most @returns {number[]} 1, 2 and 5 of every decade; only 1 if these are too many */
function decadeMarks(low, high, most) {
  const decades = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) decades.push(10 ** power);
  const within = (/** @type {number} */ mark) => mark >= low && mark <= high;
  const fine = decades.flatMap((one) => [one, 2 * one, 5 * one]).filter(within);
  const coarse = decades.filter(within);
  return (fine.length <= most + 2 || coarse.length < 2 ? fine : coarse).map((mark) => Number(mark.toPrecision(12)));
}

/**
 * @param {number[]} values  values that set the range
 * @param {{anchored: boolean, share: boolean}} how  anchored: a linear range begins at zero; share: from 0 to 1
 * @returns {{low: number, high: number, log: boolean}} range, logarithmic where values span more than a decade
 */
export function rangeOf(values, how) {
  if (how.share) return { low: 0, high: 1.02, log: false };
  const known = values.filter(Number.isFinite);
  const [least, high] = [Math.min(...known), Math.max(...known, 0)];
  if (least > 0 && high > DECADE * least) {
    const factor = high / least;
    return { low: least / factor ** 0.06, high: high * factor ** 0.06, log: true };
  }
  const low = how.anchored ? 0 : least;
  const room = (high - low || high || 1) * 0.06;
  return { low: how.anchored ? 0 : low - room, high: high + room, log: false };
}
