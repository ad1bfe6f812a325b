// What somebody who cannot see, or cannot use a mouse, would stumble over; and text that is too pale.
() => {
  const faults = [];
  const fault = (what, element) => faults.push(`${what}: ${element?.outerHTML?.slice(0, 120) ?? ""}`);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const seen = (element) => element.checkVisibility({ visibilityProperty: true });

  if (!document.documentElement.lang) fault("no language", document.documentElement);
  if (!document.title.trim()) fault("no title");
  if (all("main").length !== 1) fault("not one main");
  if (all("h1").length !== 1) fault("not one h1");
  let before = 0;
  for (const heading of all("h1, h2, h3, h4").filter(seen)) {
    const level = Number(heading.tagName[1]);
    if (level > before + 1) fault(`h${level} after h${before}`, heading);
    if (!heading.textContent.trim()) fault("empty heading", heading);
    before = level;
  }

  const ids = all("[id]").map((element) => element.id);
  ids.filter((id, i) => ids.indexOf(id) !== i).forEach((id) => faults.push(`id ${id} twice`));
  for (const name of ["aria-labelledby", "aria-describedby"]) {
    for (const element of all(`[${name}]`)) {
      if (!document.getElementById(element.getAttribute(name))) fault(`${name} leads nowhere`, element);
    }
  }

  for (const table of all("table")) {
    if (!table.caption?.textContent.trim()) fault("table without a caption", table);
    for (const cell of table.querySelectorAll("th")) if (!cell.scope) fault("th without a scope", cell);
  }
  for (const input of all("input:not([type=hidden])").filter(seen)) {
    if (!input.labels?.length && !input.ariaLabel) fault("input without a label", input);
  }
  for (const control of all("a, button, summary").filter(seen)) {
    if (!(control.textContent.trim() || control.ariaLabel)) fault("nameless control", control);
  }
  for (const image of all("svg, img").filter(seen)) {
    const named = image.getAttribute("role") === "img" && image.getAttribute("aria-label");
    const part = image.closest("[aria-hidden=true]");
    if (!named && !part && !image.getAttribute("alt")) fault("image without a text", image);
  }
  for (const region of all(".scroll").filter(seen)) {
    if (region.tabIndex !== 0 || region.getAttribute("role") !== "region") fault("cannot be scrolled by keys", region);
  }

  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return { rgb: [r, g, b], a: a / 255 };
  };
  const over = (top, below) => top.rgb.map((value, i) => value * top.a + below[i] * (1 - top.a));
  const ground = (element) => {
    if (!element) return rgba(getComputedStyle(document.documentElement).colorScheme.includes("dark")
      && matchMedia("(prefers-color-scheme: dark)").matches ? "#121212" : "#fff").rgb;
    return over(rgba(getComputedStyle(element).backgroundColor), ground(element.parentElement));
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let looked = 0;
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.textContent.trim() || !seen(element) || element.closest("script, noscript")) continue;
    const style = getComputedStyle(element);
    const below = ground(element);
    const ink = over(rgba(element.closest("svg") ? style.fill : style.color), below);
    const [a, b] = [light(ink), light(below)].sort((x, y) => y - x);
    looked += 1;
    if ((a + 0.05) / (b + 0.05) < 4.5) fault(`contrast ${((a + 0.05) / (b + 0.05)).toFixed(2)}`, element);
  }
  if (!looked) fault("no text at all");
  return faults;
}
