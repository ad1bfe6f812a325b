// Timelines as SVG. The x-axis counts decisions, with times below: idle hours take no room.
// Thin line: mean of each span; strong line: mean of the last spans; rings: spans that are not
// finished; dashed line: the bound as it was, or an estimated level with its interval.

import { number, time } from "./formatting.js";

const SPACE = "http://www.w3.org/2000/svg";
const EDGE = { top: 8, right: 10, bottom: 20, left: 46 };
const MIN_BAND = 3; // pixels
const drawn = new WeakMap(); // svg -> its content, for the pointer and the arrow keys

// spans: [{at, decisions}]; means: [{each, recent}] of them, of which the first `done` are finished;
// bounds: [{start, bound}]; levels: [{name, value, low, high}]; marks: [{kind, start, end, label}].
export function draw(figure, title, { spans, means, done, bounds = [], levels = [], marks = [] }) {
  const svg = figure.querySelector("svg");
  const box = { width: svg.clientWidth, height: svg.clientHeight };
  if (!box.width) return; // hidden
  const given = (values) => values.filter((one) => one !== null);
  const values = given(means.flatMap((one) => [one.each, one.recent]));
  const known = levels.map((one, i) => ({ ...one, kind: `level${i}` })).filter((one) => one.value !== null);
  const bound = bounds.at(-1)?.bound ?? null;
  svg.setAttribute("aria-label", describe(title, means, bound, known, marks));
  if (!values.length) return svg.replaceChildren(label("no data yet", box.width / 2, box.height / 2, "middle"));
  const others = [...given(bounds.map((one) => one.bound)), ...known.map((one) => one.value)];
  const y = scale(values.concat(others), box.height - EDGE.bottom, EDGE.top);
  const x = decisions(spans, EDGE.left, box.width - EDGE.right);
  const at = spans.map((one) => one.at);
  const ends = means.map((_, i) => x(i + 1));
  const finished = (name) => means.map((one, i) => [ends[i], i >= done || one[name] === null ? null : y(one[name])]);
  const rings = means.map((one, i) => [i, one.each]).filter(([i, each]) => i >= done && each !== null);
  const hair = line("hair", 0, EDGE.top, 0, box.height - EDGE.bottom);
  hair.setAttribute("visibility", "hidden");
  svg.replaceChildren(
    ...bands(marks, x, box),
    ...rules(y, box),
    ...dates(at, ends, box),
    ...known.flatMap((one) => estimate(one, y, box)),
    ...steps(bounds, spans.length, x, y),
    ...path("each", finished("each")),
    ...rings.map(([i, each]) => create("circle", { class: "open", cx: ends[i], cy: y(each), r: 2.5 })),
    ...path("recent", finished("recent")),
    hair,
  );
  const before = drawn.get(svg);
  const output = figure.querySelector("output");
  drawn.set(svg, { at, means, done, ends, hair, bounds, marks, place: null, output });
  if (!before) listen(svg);
}

function describe(title, means, bound, levels, marks) {
  const each = means.map((one) => one.each).filter((one) => one !== null);
  if (!each.length) return `${title}: no data yet`;
  const recent = means.map((one) => one.recent).filter((one) => one !== null);
  const parts = [`${title}: ${recent.length ? `${number(recent.at(-1))} recently` : "no finished span yet"}`];
  if (bound !== null) parts.push(`bound ${number(bound)}`);
  parts.push(`spans between ${number(Math.min(...each))} and ${number(Math.max(...each))}`);
  levels.forEach((one) => parts.push(`${one.name} about ${number(one.value)}`));
  return [...parts, ...marks.map((one) => one.label)].join("; ");
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
  const { ends } = drawn.get(svg);
  let best = 0;
  ends.forEach((end, i) => {
    if (Math.abs(end - offset) < Math.abs(ends[best] - offset)) best = i;
  });
  return best;
}

function point(svg, place) {
  const shown = drawn.get(svg);
  shown.place = place;
  shown.hair.setAttribute("visibility", place === null ? "hidden" : "visible");
  if (place === null) return void (shown.output.textContent = "");
  const where = String(shown.ends[place]);
  shown.hair.setAttribute("x1", where);
  shown.hair.setAttribute("x2", where);
  const { each, recent } = shown.means[place];
  const words = [`${time(shown.at[place])}: ${number(each)}`];
  words.push(place < shown.done ? `recent mean ${number(recent)}` : "not finished");
  const bound = shown.bounds.findLast((one) => one.start <= place + 1)?.bound ?? null;
  if (bound !== null) words.push(`bound ${number(bound)}`);
  const here = shown.marks.filter((one) => one.start < place + 1 && one.end >= place);
  shown.output.textContent = [words.join(", "), ...here.map((one) => one.label)].join("; ");
}

function scale(values, low, high) {
  let [least, most] = [Math.min(...values), Math.max(...values)];
  const room = (most - least || Math.abs(most) || 1) * 0.12;
  least = least >= 0 ? Math.max(0, least - room) : least - room;
  most += room;
  const y = (value) => low + ((value - least) / (most - least)) * (high - low);
  y.ticks = ticks(least, most);
  y.clip = (value) => y(Math.min(most, Math.max(least, value)));
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

// The x-position of a place: i is the start of span i, i + 0.5 its middle.
function decisions(spans, left, right) {
  const ends = [0];
  spans.forEach((one) => ends.push(ends.at(-1) + one.decisions));
  return (place) => {
    const i = Math.min(spans.length - 1, Math.floor(place));
    const sum = ends[i] + (place - i) * (ends[i + 1] - ends[i]);
    return left + (sum / (ends.at(-1) || 1)) * (right - left);
  };
}

// Edits as lines, outages as bands of at least some pixels.
function bands(marks, x, box) {
  return marks.map(({ kind, start, end, label: words }) => {
    const [left, right] = [x(start), x(end)];
    const width = Math.max(MIN_BAND, right - left);
    const size = { x: Math.min(left, box.width - EDGE.right - width), width, y: EDGE.top, height: box.height - EDGE.bottom - EDGE.top };
    const found = kind === "edited"
      ? line("mark edited", left, EDGE.top, left, box.height - EDGE.bottom)
      : create("rect", { class: `mark ${kind}`, ...size });
    const title = create("title", {});
    title.textContent = words;
    found.append(title);
    return found;
  });
}

function rules(y, box) {
  return y.ticks.flatMap((tick) => [
    line("rule", EDGE.left, y(tick), box.width - EDGE.right, y(tick)),
    label(number(tick), EDGE.left - 6, y(tick) + 4, "end"),
  ]);
}

// An estimated level: its interval, if it has one, and its value.
function estimate({ kind, value, low, high }, y, box) {
  const [left, right] = [EDGE.left, box.width - EDGE.right];
  const found = line(`level ${kind}`, left, y(value), right, y(value));
  if (low === null) return [found];
  const [top, bottom] = [y.clip(high), y.clip(low)];
  return [create("rect", { class: `interval ${kind}`, x: left, width: right - left, y: top, height: bottom - top }), found];
}

// The bound as it was: one line for each value, joined where it changed.
function steps(bounds, end, x, y) {
  const points = bounds.flatMap(({ start, bound }, i) => {
    const until = x(bounds[i + 1]?.start ?? end);
    return bound === null ? [[x(start), null]] : [[x(i ? start : 0), y(bound)], [until, y(bound)]];
  });
  return path("bound", points);
}

// Start times of the first, the middle and the last span; the middle only if there is room.
function dates(at, ends, box) {
  const days = time(at[0]).slice(0, 10) !== time(at.at(-1)).slice(0, 10);
  const short = (one) => (days ? time(one).slice(5, 16) : time(one).slice(11, 19));
  const end = label(short(at.at(-1)), box.width - EDGE.right, box.height - 4, "end");
  if (at.length === 1 || at[0] === at.at(-1)) return [end];
  const found = [label(short(at[0]), EDGE.left, box.height - 4, "start"), end];
  const middle = Math.floor(at.length / 2);
  const there = at.length > 4 && box.width > 330;
  return there ? [...found, label(short(at[middle]), ends[middle - 1], box.height - 4, "middle")] : found;
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
