// Keeps a page up to date: fetches its JSON while the page is visible, and updates what changed.

import { fill } from "./bind.js";
import { draw } from "./chart.js";
import { filter } from "./filter.js";
import * as history from "./history.js";

const REFRESH_MS = 2000;
const MAX_RETRY_MS = 60000; // between two attempts while the server does not answer

const live = document.getElementById("live");
const link = document.getElementById("link");
const announcement = document.getElementById("announcement");
const pause = document.getElementById("pause");

let data = JSON.parse(document.getElementById("data").textContent);
let text = null; // the last response, to skip updates without changes
let failures = 0;
let timer = null;

function show() {
  fill(document.getElementById("main"), data);
  charts();
  filter(data);
  hint();
}

function charts() {
  const { timeline: spans, limits, status, recent } = data;
  if (!spans) return;
  const done = history.finished(spans, status.waiting);
  const marks = history.marks(data);
  const { levels } = recent;
  const means = history.means(spans, (span) => span.reward, (span) => span.rewards, done);
  draw(document.querySelector('[data-chart="reward"]'), "Mean reward", { spans, means, done, levels, marks });
  document.querySelectorAll('[data-chart="limit"]').forEach((figure, i) => {
    const title = limits[i].charts_bound ? name(limits[i], ",") : `${limits[i].status.cost} per decision`;
    const costs = history.means(spans, (span) => span.costs[i], (span) => span.decisions, done);
    draw(figure, title, { spans, means: costs, done, bounds: history.bounds(data, i), marks });
  });
  const lines = history.keys(marks, data);
  if (done < spans.length) lines.unshift({ kind: "open", text: "not finished: decisions or rewards are still to come" });
  if (!recent.decisions && status.decisions) lines.push({ kind: "plain", text: "the log is being read for estimates and outages" });
  const texts = history.explain(recent);
  document.querySelectorAll(".marks").forEach((list) => legend(list, list.matches(".levels") ? [...texts, ...lines] : lines));
}

function legend(list, lines) {
  const items = lines.map(({ kind, text: words }) => {
    const item = document.createElement("li");
    item.className = `key ${kind}`;
    item.textContent = words;
    return item;
  });
  list.hidden = !lines.length;
  list.replaceChildren(...items);
}

// Marks what continues beyond its edge, as a phone shows no scroll bars.
function hint() {
  for (const box of document.querySelectorAll(".scroll")) {
    const [wide, tall] = [box.scrollWidth > box.clientWidth + 1, box.scrollHeight > box.clientHeight + 1];
    const words = [wide && "sideways", tall && "down"].filter(Boolean).join(" and ");
    if (words) box.dataset.more = `scroll ${words} for more`;
    else delete box.dataset.more;
  }
}

async function refresh() {
  try {
    const answer = await fetch(live.dataset.json, { cache: "no-store", signal: AbortSignal.timeout(10000) });
    if (answer.status === 401) return location.reload(); // the session has ended: go to the sign-in page
    if (!answer.ok) throw new Error(await reason(answer));
    take(await answer.text());
    state("live", "live");
    failures = 0;
  } catch (error) {
    failures += 1;
    const why = error.name === "Error" ? error.message : "connection lost";
    state("lost", `${why}, retry in ${Math.round(delay() / 1000)} s`);
  }
  next();
}

// The message of an error response: every error has one shape.
async function reason(answer) {
  const body = await answer.json().catch(() => null);
  return body?.error?.message ?? `status ${answer.status}`;
}

function take(answer) {
  if (answer === text) return;
  const before = data;
  [text, data] = [answer, JSON.parse(answer)];
  show();
  announce(before, data);
}

// Announces changes to screen readers, only those worth an interruption.
function announce(before, after) {
  const changed = (after.limits ?? []).filter((limit, i) => {
    const old = before.limits[i];
    const same = old && old.status.cost === limit.status.cost && old.side === limit.side && old.per === limit.per;
    return same && old.status.verdict !== limit.status.verdict;
  });
  if (changed.length) say(changed.map((one) => `${name(one)}: now ${one.status.verdict}`).join("; "));
}

// A limit in words: usd at most 500 per day.
function name({ status, side, per }, comma = "") {
  return `${status.cost}${comma} ${side} ${status.bound}${per && ` ${per}`}`;
}

function state(name, words) {
  if (live.dataset.link !== name && (name === "lost" || live.dataset.link === "lost")) {
    say(name === "lost" ? "Connection lost" : "Connection restored");
  }
  live.dataset.link = name;
  if (link.textContent !== words) link.textContent = words;
}

function say(words) {
  announcement.textContent = words;
}

function delay() {
  return Math.min(MAX_RETRY_MS, REFRESH_MS * 2 ** failures);
}

function next() {
  clearTimeout(timer);
  const paused = pause.getAttribute("aria-pressed") === "true";
  if (paused) state("paused", "paused");
  else if (!document.hidden) timer = setTimeout(refresh, delay());
}

pause.addEventListener("click", () => {
  pause.setAttribute("aria-pressed", String(pause.getAttribute("aria-pressed") !== "true"));
  if (pause.getAttribute("aria-pressed") === "true") next();
  else refresh();
});
document.addEventListener("visibilitychange", () => {
  clearTimeout(timer);
  if (!document.hidden && pause.getAttribute("aria-pressed") !== "true") refresh();
});
new ResizeObserver(() => {
  charts();
  hint();
}).observe(document.getElementById("main"));

document.addEventListener("toggle", hint, true); // a section was opened

live.hidden = false;
show();
state("live", "live");
next();
