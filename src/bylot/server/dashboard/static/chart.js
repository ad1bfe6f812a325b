// Timelines as SVG. The x-axis counts decisions, with times below: idle hours take no room.
// Thin line: mean of each span; strong line: mean since the first decision; dashed line: bound.

import { number, time } from "./formatting.js";

const SPACE = "http://www.w3.org/2000/svg";
const EDGE = { top: 8, right: 10, bottom: 20, left: 46 };
const drawn = new WeakMap(); // svg -> its content, for the pointer and the arrow keys

// means: [{each, so_far}] of spans [{at, decisions}]; bound: a number or null.
export function draw(figure, title, spans, means, bound) {
  const svg = figure.querySelector("svg");
  const box = { width: svg.clientWidth, height: svg.clientHeight };
  if (!box.width) return; // hidden
  const values = means.flatMap((one) => [one.each, one.so_far]).filter((one) => one !== null);
  svg.setAttribute("aria-label", describe(title, means, bound));
  if (!values.length) return svg.replaceChildren(label("no data yet", box.width / 2, box.height / 2, "middle"));
  const y = scale(values.concat(bound ?? []), box.height - EDGE.bottom, EDGE.top);
  const x = decisions(spans, EDGE.left, box.width - EDGE.right);
  const at = spans.map((one) => one.at);
  const parts = [...rules(y, box), ...dates(at, x, box)];
  if (bound !== null) parts.push(line("bound", EDGE.left, y(bound), box.width - EDGE.right, y(bound)));
  for (const name of ["each", "so_far"]) {
    parts.push(...path(name, means.map((one, i) => [x(i), one[name] === null ? null : y(one[name])])));
  }
  const hair = line("hair", 0, EDGE.top, 0, box.height - EDGE.bottom);
  hair.setAttribute("visibility", "hidden");
  svg.replaceChildren(...parts, hair);
  const before = drawn.get(svg);
  drawn.set(svg, { at, means, x, hair, place: null, output: figure.querySelector("output") });
  if (!before) listen(svg);
}

function describe(title, means, bound) {
  const each = means.map((one) => one.each).filter((one) => one !== null);
  if (!each.length) return `${title}: no data yet`;
  const limit = bound === null ? "" : `, bound ${number(bound)}`;
  return (
    `${title}: ${number(means.at(-1).so_far)} since the first decision${limit}; spans between ` +
    `${number(Math.min(...each))} and ${number(Math.max(...each))}, the last ${number(each.at(-1))}`
  );
}

function listen(svg) {
  svg.addEventListener("pointermove", (event) => point(svg, nearest(svg, event.offsetX)));
  svg.addEventListener("pointerleave", () => point(svg, null));
  svg.addEventListener("blur", () => point(svg, null));
  svg.addEventListener("keydown", (event) => {
    const { place, means } = drawn.get(svg);
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = place === null ? means.length - 1 : place + step;
    point(svg, Math.min(means.length - 1, Math.max(0, next)));
  });
}

function nearest(svg, offset) {
  const { at, x } = drawn.get(svg);
  let best = 0;
  at.forEach((_, i) => {
    if (Math.abs(x(i) - offset) < Math.abs(x(best) - offset)) best = i;
  });
  return best;
}

function point(svg, place) {
  const shown = drawn.get(svg);
  shown.place = place;
  shown.hair.setAttribute("visibility", place === null ? "hidden" : "visible");
  if (place === null) return void (shown.output.textContent = "");
  const where = String(shown.x(place));
  shown.hair.setAttribute("x1", where);
  shown.hair.setAttribute("x2", where);
  const { each, so_far } = shown.means[place];
  shown.output.textContent = `${time(shown.at[place])}: ${number(each)}, since the first decision ${number(so_far)}`;
}

function scale(values, low, high) {
  let [least, most] = [Math.min(...values), Math.max(...values)];
  const room = (most - least || Math.abs(most) || 1) * 0.12;
  least = least >= 0 ? Math.max(0, least - room) : least - room;
  most += room;
  const y = (value) => low + ((value - least) / (most - least)) * (high - low);
  y.ticks = ticks(least, most);
  return y;
}

// Round numbers within [least, most], usually two to four.
export function ticks(least, most) {
  const rough = (most - least) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((one) => one * power >= rough);
  const found = [];
  for (let i = Math.ceil(least / step); i * step <= most; i++) found.push(i * step);
  return found;
}

// The x-position of the end of each span; the first span ends at the left edge.
function decisions(spans, left, right) {
  let sum = 0;
  const ends = spans.map((one) => (sum += one.decisions));
  const [first, last] = [ends[0], ends.at(-1)];
  return (i) => (last > first ? left + ((ends[i] - first) / (last - first)) * (right - left) : right);
}

function rules(y, box) {
  return y.ticks.flatMap((tick) => [
    line("rule", EDGE.left, y(tick), box.width - EDGE.right, y(tick)),
    label(number(tick), EDGE.left - 6, y(tick) + 4, "end"),
  ]);
}

// Start times of the first, the middle and the last span; the middle only if there is room.
function dates(at, x, box) {
  const days = time(at[0]).slice(0, 10) !== time(at.at(-1)).slice(0, 10);
  const short = (one) => (days ? time(one).slice(5, 16) : time(one).slice(11, 19));
  const end = label(short(at.at(-1)), box.width - EDGE.right, box.height - 4, "end");
  if (at.length === 1 || at[0] === at.at(-1)) return [end];
  const found = [label(short(at[0]), EDGE.left, box.height - 4, "start"), end];
  const middle = Math.floor(at.length / 2);
  const there = at.length > 4 && box.width > 330;
  return there ? [...found, label(short(at[middle]), x(middle), box.height - 4, "middle")] : found;
}

// Lines through the points, interrupted at gaps; a single point is a dot.
function path(name, points) {
  const runs = [[]];
  for (const [x, y] of points) {
    if (y === null) runs.push([]);
    else runs.at(-1).push([x, y]);
  }
  return runs.filter((run) => run.length).map((run) => (run.length > 1 ? polyline(name, run) : dot(name, run[0])));
}

function polyline(name, run) {
  const points = run.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
  return create("polyline", { class: `timeline ${name}`, points });
}

function dot(name, [cx, cy]) {
  return create("circle", { class: `dot ${name}`, cx, cy, r: name === "each" ? 2 : 3 });
}

function line(name, x1, y1, x2, y2) {
  return create("line", { class: name, x1, y1, x2, y2 });
}

function label(text, x, y, anchor) {
  const element = create("text", { x, y, "text-anchor": anchor });
  element.textContent = text;
  return element;
}

function create(tag, attributes) {
  const element = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}
