// Numbers, colours and small pieces of the page.

export const $ = (id) => document.getElementById(id);

/** An element with attributes (or properties for `text`, `onclick`) and children. */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "text") element.textContent = value;
    else if (key.startsWith("on")) element[key] = value;
    else if (value != null && value !== false) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

export const percent = (share, digits = 0) => (share == null ? "–" : `${(100 * share).toFixed(digits)} %`);
export const plain = (value, digits = 3) => (value == null ? "–" : Number(value.toPrecision(digits)).toString());
export const clock = (wall) => (wall == null ? "" : new Date(wall * 1000).toLocaleTimeString([], { hour12: false }));
/** ε as text: a bound, so it is rounded up; what is left of a budget is rounded down. */
export const bound = (value) => (value == null ? "∞" : (Math.ceil(value * 100 - 1e-6) / 100).toFixed(2));
export const left = (value) => (value == null ? "–" : (Math.floor(value * 100 + 1e-6) / 100).toFixed(2));

/** A colour of the page's, as a canvas takes it: what the variable comes to in the theme that is shown. */
export function colour(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

// viridis, the scale of the drawings that the command line makes; what is spent stands out from either paper.
const STOPS = [[68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137], [53, 183, 121], [109, 205, 89], [180, 222, 44], [253, 231, 37]];

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** The colour of a number within 0 and 1; grey where there is none. */
export function scale(value) {
  if (value == null) return isDark() ? "#4a5563" : "#c3cad2";
  const clipped = Math.min(1, Math.max(0, value));
  const place = (isDark() ? 0.12 + 0.88 * clipped : 0.9 * (1 - clipped)) * (STOPS.length - 1);
  const low = Math.min(Math.floor(place), STOPS.length - 2);
  const mix = STOPS[low].map((part, k) => Math.round(part + (STOPS[low + 1][k] - part) * (place - low)));
  return `rgb(${mix.join(" ")})`;
}
