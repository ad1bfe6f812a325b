// Keeps a page up to date: fetches its JSON while the page is visible, and updates what changed.

import { fill } from "./bind.js";
import { draw } from "./chart.js";
import { filter } from "./filter.js";

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
}

function charts() {
  const { timeline, limits } = data;
  if (!timeline) return;
  const reward = document.querySelector('[data-chart="reward"]');
  draw(reward, "Mean reward", timeline, timeline.map((span) => span.reward), null);
  document.querySelectorAll('[data-chart="limit"]').forEach((figure, i) => {
    const { cost, bound } = limits[i].status;
    const title = `${cost}, ${limits[i].side} ${bound}`;
    draw(figure, title, timeline, timeline.map((span) => span.costs[i]), bound);
  });
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
    return old && old.status.cost === limit.status.cost && old.state !== limit.state;
  });
  if (changed.length) say(changed.map((one) => `${one.status.cost} ${one.side} ${one.status.bound}: now ${one.state}`).join("; "));
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
new ResizeObserver(charts).observe(document.getElementById("main"));

live.hidden = false;
show();
state("live", "live");
next();
