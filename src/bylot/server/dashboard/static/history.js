// What charts show besides means: bounds as they were, edits, outages, and which spans are finished.
// A place on the axis counts spans: 2.5 is the middle of the third one.

import { count, number } from "./formatting.js";

const RECENT = 8; // spans that the strong line averages
const USUAL = 0.8; // of the usual share of decisions with a reward, in a finished span
export const WORDS = { edited: "configuration edited", paused: "experts paused", unmet: "a limit could not be met" };

// The place of a time, interpolated within its span.
function place(at, timeline) {
  const time = Date.parse(at);
  const starts = timeline.map((span) => Date.parse(span.at));
  let i = starts.length - 1;
  while (i >= 0 && starts[i] > time) i -= 1;
  if (i < 0) return 0;
  const end = starts[i + 1];
  return i + (end > starts[i] ? (time - starts[i]) / (end - starts[i]) : 1);
}

// How many of the first spans are finished: not the last if it lacks decisions, nor the last ones
// that have fewer rewards than usual while rewards are waited for.
export function finished(timeline, waiting) {
  const sum = (name) => timeline.reduce((total, span) => total + span[name], 0);
  const usual = sum("rewards") / sum("decisions");
  let n = timeline.length;
  if (n && timeline[n - 1].decisions < Math.max(...timeline.map((span) => span.decisions))) n -= 1;
  while (n && waiting && timeline[n - 1].rewards < USUAL * usual * timeline[n - 1].decisions) n -= 1;
  return n;
}

// [{each, recent}]: the mean of each span, and of the last spans up to it; null if there is none.
export function means(timeline, find, weigh, done) {
  return timeline.map((span, i) => {
    const last = timeline.slice(Math.max(0, i - RECENT + 1), i + 1).filter((one) => weigh(one) && find(one) !== null);
    const weight = last.reduce((sum, one) => sum + weigh(one), 0);
    const total = last.reduce((sum, one) => sum + weigh(one) * find(one), 0);
    return { each: find(span), recent: i < done && weight ? total / weight : null };
  });
}

// [{start, bound}] of limit j, one step for each edit that changed it; null if it is not for the
// average of all decisions.
export function bounds(data, j) {
  const steps = [];
  for (const version of [...data.versions].reverse()) {
    const bound = version.bounds[j];
    if (!steps.length || steps.at(-1).bound !== bound) steps.push({ start: place(version.at, data.timeline), bound });
  }
  return steps.length ? steps : [{ start: 0, bound: data.limits[j].charts_bound ? data.limits[j].status.bound : null }];
}

// [{kind, start, end, label}]: edits, times with paused experts, decisions at which a limit could not be met.
export function marks({ timeline, versions, recent }) {
  const found = [];
  const oldest = [...versions].reverse();
  oldest.forEach((version, i) => {
    const start = place(version.at, timeline);
    const next = oldest[i + 1];
    const end = next ? place(next.at, timeline) : timeline.length;
    if (version.paused.length) found.push({ kind: "paused", start, end, label: `paused: ${version.paused.join(", ")}` });
    if (version.version === 1) return;
    found.push({ kind: "edited", start, end: start, label: `version ${version.version}: ${version.changes.join("; ")}` });
  });
  for (const { start, end, decisions } of recent.outages) {
    const label = `${WORDS.unmet} at ${count(decisions)} ${decisions === 1 ? "decision" : "decisions"}`;
    found.push({ kind: "unmet", start: place(start, timeline), end: place(end, timeline), label });
  }
  return found;
}

// The legend of the marks that there are: [{kind, text}].
export function keys(found, { recent, status }) {
  const lines = Object.entries(WORDS).map(([kind, text]) => ({ kind, text }));
  const marked = recent.outages.reduce((sum, one) => sum + one.decisions, 0);
  const earlier = (status.counters?.infeasible ?? 0) - marked;
  if (earlier > 0 && recent.decisions) lines.push({ kind: "plain", text: `${WORDS.unmet} at ${count(earlier)} more decisions, not marked` });
  return lines.filter(({ kind }) => kind === "plain" || found.some((one) => one.kind === kind));
}

// The legend of the reference levels.
export function explain({ levels, decisions }) {
  const lines = levels.map(({ name, value, low, high, reason }, i) => {
    if (value === null) return { kind: "plain", text: `${name}: no estimate, as ${reason}` };
    const interval = low === null ? "" : ` (95 % interval ${number(low)} to ${number(high)})`;
    return { kind: `level${i}`, text: `${name}: ${number(value)}${interval}` };
  });
  if (levels.every(({ low }) => low === null)) return lines;
  return [...lines, { kind: "plain", text: `estimated from the last ${count(decisions)} decisions` }];
}
