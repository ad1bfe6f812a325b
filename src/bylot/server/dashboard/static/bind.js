// Updates the elements of a page from its data; `render.py` explains the attributes.

import { FORMATS } from "./formatting.js";

export function lookup(scope, path) {
  if (path === ".") return scope;
  for (const step of path.split(".")) {
    if (scope === null || scope === undefined) return null;
    scope = Object.hasOwn(scope, step) ? scope[step] : null;
  }
  return scope;
}

export function fill(element, scope) {
  if (element.dataset.bind) bind(element, scope);
  const pattern = element.dataset.each && element.querySelector(":scope > template");
  for (const child of element.children) {
    if (child === pattern) return each(element, pattern, lookup(scope, element.dataset.each) ?? []);
    fill(child, scope);
  }
}

function bind(element, scope) {
  for (const one of element.dataset.bind.split(" ")) {
    const colon = one.indexOf(":");
    const target = one.slice(0, colon);
    const value = shown(scope, one.slice(colon + 1));
    if (target === "text") {
      if (element.textContent !== value) element.textContent = value;
    } else if (value === false) {
      element.removeAttribute(target);
    } else {
      const text = value === true ? "" : value;
      if (element.getAttribute(target) !== text) element.setAttribute(target, text);
    }
  }
}

function shown(scope, source) {
  const [path, word] = source.split("|");
  const value = lookup(scope, path);
  if (word === "given" || word === "missing") return truth(value) === (word === "given");
  return FORMATS[word ?? "plain"](value);
}

function truth(value) {
  return Array.isArray(value) ? value.length > 0 : Boolean(value); // as Python has it
}

function each(element, pattern, items) {
  const children = Array.from(element.children);
  const here = children.slice(children.indexOf(pattern) + 1);
  while (here.length > items.length) here.pop().remove();
  while (here.length < items.length) {
    const child = pattern.content.firstElementChild.cloneNode(true);
    element.append(child);
    here.push(child);
  }
  items.forEach((item, index) => fill(here[index], item));
}
