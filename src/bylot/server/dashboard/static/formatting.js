// Formats of values: the same as in `formatting.py`, under the same names.

export const MISSING = "–";
const STEPS = [1e3, 1e2, 1e1, 1, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6];

export function number(x) {
  if (x === null || x === undefined || !Number.isFinite(x)) return MISSING;
  const size = Math.abs(x);
  if (size === 0) return "0";
  if (size >= 1e15 || size < STEPS.at(-1)) return x.toExponential(1).replace("e+", "e");
  const text = grouped(x.toFixed(STEPS.findIndex((least) => size >= least)));
  return text.includes(".") ? text.replace(/0+$/, "").replace(/\.$/, "") : text;
}

export function count(n) {
  return n === null || n === undefined ? MISSING : grouped(String(n));
}

export function percent(part) {
  if (part === null || part === undefined || !Number.isFinite(part)) return MISSING;
  if (part > 0 && part < 0.0005) return "<0.1%";
  return (100 * part).toFixed(1).replace(/\.0$/, "") + "%";
}

export function hundredths(x) {
  return x === null || x === undefined || !Number.isFinite(x) ? MISSING : x.toFixed(2);
}

export function propensity(part) {
  return part ? number(part) : MISSING;
}

export function time(at) {
  return at ? at.slice(0, 19).replace("T", " ") : MISSING;
}

export function level(part) {
  if (part === null || part === undefined) return "0";
  return String(Math.min(9, Math.ceil(9 * Math.sqrt(Math.max(0, part)))));
}

export function width(part) {
  if (part === null || part === undefined) return "0%";
  return (100 * Math.min(1, Math.max(0, part))).toFixed(2) + "%";
}

export function router(name) {
  return "/routers/" + encodeURIComponent(name ?? "");
}

export function plain(text) {
  return text === null || text === undefined || text === "" ? MISSING : String(text);
}

function grouped(digits) {
  const [whole, rest] = digits.split(".");
  const parted = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return rest === undefined ? parted : `${parted}.${rest}`;
}

export const FORMATS = { number, count, percent, hundredths, propensity, time, level, width, router, plain };
