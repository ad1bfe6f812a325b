// Keeps a page up to date: asks for its twin while it is looked at, and renews what has changed.

import { fill } from "./bind.js";
import { draw } from "./chart.js";
import { filter } from "./filter.js";

const EVERY = 2000; // milliseconds
const LONGEST = 60000; // between two tries when the server does not answer

const live = document.getElementById("live");
const link = document.getElementById("link");
const said = document.getElementById("said");
const pause = document.getElementById("pause");

let data = JSON.parse(document.getElementById("data").textContent);
let text = null; // the last answer, to leave a page alone that need not change
let failures = 0;
let timer = null;

function show() {
  fill(document.getElementById("main"), data);
  charts();
  filter(data);
}

function charts() {
  const { course, limits } = data;
  if (!course) return;
  const reward = document.querySelector('[data-chart="reward"]');
  draw(reward, "Mean reward", course, course.map((span) => span.reward), null);
  document.querySelectorAll('[data-chart="limit"]').forEach((figure, i) => {
    const { cost, side, bound } = limits[i];
    draw(figure, `${cost}, ${side} ${bound}`, course, course.map((span) => span.costs[i]), bound);
  });
}

async function renew() {
  try {
    const answer = await fetch(live.dataset.twin, { cache: "no-store", signal: AbortSignal.timeout(10000) });
    if (answer.status === 401) return location.reload(); // the session is over: to the sign-in page
    if (!answer.ok) throw new Error(await reason(answer));
    take(await answer.text());
    state("live", "live");
    failures = 0;
  } catch (error) {
    failures += 1;
    const why = error.name === "Error" ? error.message : "connection lost";
    state("lost", `${why}, next try in ${Math.round(delay() / 1000)} s`);
  }
  next();
}

// What the server says of an answer that is none: every error has one shape.
async function reason(answer) {
  const body = await answer.json().catch(() => null);
  return body?.error?.message ?? `the server answers ${answer.status}`;
}

function take(answer) {
  if (answer === text) return;
  const before = data;
  [text, data] = [answer, JSON.parse(answer)];
  show();
  announce(before, data);
}

// Only what somebody who cannot see the page would want to be interrupted for.
function announce(before, after) {
  const changed = (after.limits ?? []).filter((limit, i) => {
    const old = before.limits[i];
    return old && old.cost === limit.cost && old.state !== limit.state;
  });
  if (changed.length) say(changed.map((one) => `${one.cost} ${one.side} ${one.bound}: now ${one.state}`).join("; "));
}

function state(name, words) {
  if (live.dataset.link !== name && (name === "lost" || live.dataset.link === "lost")) {
    say(name === "lost" ? "Connection lost" : "Connection restored");
  }
  live.dataset.link = name;
  if (link.textContent !== words) link.textContent = words;
}

function say(words) {
  said.textContent = words;
}

function delay() {
  return Math.min(LONGEST, EVERY * 2 ** failures);
}

function next() {
  clearTimeout(timer);
  const paused = pause.getAttribute("aria-pressed") === "true";
  if (paused) state("paused", "paused");
  else if (!document.hidden) timer = setTimeout(renew, delay());
}

pause.addEventListener("click", () => {
  pause.setAttribute("aria-pressed", String(pause.getAttribute("aria-pressed") !== "true"));
  if (pause.getAttribute("aria-pressed") === "true") next();
  else renew();
});
document.addEventListener("visibilitychange", () => {
  clearTimeout(timer);
  if (!document.hidden && pause.getAttribute("aria-pressed") !== "true") renew();
});
new ResizeObserver(charts).observe(document.getElementById("main"));

live.hidden = false;
show();
state("live", "live");
next();
