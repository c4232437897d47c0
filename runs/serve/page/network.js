// The star or the graph, drawn on a canvas, coloured by ε.
import { ask } from "./api.js";
import { $, bound, colour, left, plain, scale } from "./format.js";

let topology = null, told = null, places = [], picked = 0, open = () => {};

export function setUpNetwork(opened) {
  open = opened;
  const canvas = $("graph");
  canvas.addEventListener("pointermove", (event) => tip(nearest(event)));
  canvas.addEventListener("pointerleave", () => tip(-1));
  canvas.addEventListener("click", (event) => { const client = nearest(event); if (client >= 0) open(client); });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step && places.length) { picked = (picked + step + places.length) % places.length; tip(picked); event.preventDefault(); }
    if (event.key === "Enter") open(picked);
  });
  $("measure").addEventListener("change", () => drawNetwork());
}

export async function drawNetwork(_run, anew = false) {
  if (anew || !topology) topology = await ask("/api/topology");
  told = await ask("/api/overview", { by: $("measure").value });
  $("network-title").textContent = topology.server ? "Clients around the server" : `Graph: ${topology.kind}`;
  $("network-note").textContent = topology.note;
  draw();
}

function draw() {
  const canvas = $("graph"), size = canvas.clientWidth, zoom = devicePixelRatio || 1;
  if (!size) return;
  canvas.width = canvas.height = size * zoom;
  const pen = canvas.getContext("2d");
  pen.scale(zoom, zoom);
  const n = topology.positions.length, ring = n <= 60 ? (1.1 * size) / n : size;
  const radius = Math.max(2.2, Math.min(15, (size * (topology.server ? 0.36 : 0.26)) / Math.sqrt(n), ring));
  const pad = radius + 8, at = ([x, y]) => [pad + x * (size - 2 * pad), pad + y * (size - 2 * pad)];
  places = topology.positions.map(at);
  pen.strokeStyle = colour("--soft");
  pen.lineWidth = 1;
  pen.globalAlpha = Math.max(0.22, Math.min(0.5, 60 / (topology.server ? n : topology.edges.length || 1)));
  pen.beginPath();
  if (topology.server) for (const [x, y] of places) { pen.moveTo(size / 2, size / 2); pen.lineTo(x, y); }
  for (const [u, v] of topology.edges) { pen.moveTo(...places[u]); pen.lineTo(...places[v]); }
  pen.stroke();
  pen.globalAlpha = 1;
  const known = told.values.filter((value) => value != null);
  const high = told.by === "share" ? 1 : Math.max(1e-9, ...known), names = told.condition_names;
  places.forEach(([x, y], client) => {
    const value = told.values[client], condition = names[told.conditions[client]];
    pen.fillStyle = scale(value == null ? null : value / high);
    pen.beginPath();
    pen.arc(x, y, radius, 0, 7);
    pen.fill();
    if (condition !== "active") {
      pen.strokeStyle = colour(condition === "spent" || condition === "late" ? "--warn" : "--bad");
      pen.lineWidth = Math.max(1.5, radius / 4);
      pen.stroke();
    }
    if (radius > 8.5) {
      pen.fillStyle = bright(pen.fillStyle) ? "#10151c" : "#fff";
      pen.font = `600 ${Math.min(12, radius)}px system-ui, sans-serif`;
      pen.textAlign = "center";
      pen.textBaseline = "middle";
      pen.fillText(client, x, y + 0.5);
    }
  });
  if (topology.server) server(pen, size);
  legend(high, names);
  const text = `${topology.server ? "A server and" : `A ${topology.kind} graph of`} ${n} clients, coloured by ${$("measure").selectedOptions[0].text}`;
  canvas.setAttribute("aria-label", `${text}; the table of clients has the same numbers`);
}

function server(pen, size) {
  pen.fillStyle = colour("--ink");
  pen.beginPath();
  pen.roundRect(size / 2 - 27, size / 2 - 12, 54, 24, 7);
  pen.fill();
  pen.fillStyle = colour("--card");
  pen.font = "600 12px system-ui, sans-serif";
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.fillText("server", size / 2, size / 2 + 0.5);
}

function bright(hex) {
  const [r, g, b] = [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
  return 0.3 * r + 0.6 * g + 0.1 * b > 140;
}

function legend(high, names) {
  const canvas = $("legend"), pen = canvas.getContext("2d");
  for (let x = 0; x < canvas.width; x++) { pen.fillStyle = scale(x / canvas.width); pen.fillRect(x, 0, 1, 10); }
  $("legend-low").textContent = told.by === "share" ? "0 %" : "0";
  $("legend-high").textContent = told.by === "share" ? "100 % of budget" : plain(high);
  const has = new Set(told.conditions.map((place) => names[place]));
  $("key").replaceChildren();
  const add = (kind, text) => {
    const item = document.createElement("span");
    item.className = kind;
    item.append(document.createElement("i"), text);
    $("key").append(item);
  };
  if (has.has("spent")) add("warn", "refused");
  if (has.has("late")) add("warn", "late");
  if (has.has("lost") || has.has("failed")) add("bad", "lost or failed");
}

function nearest(event) {
  const box = $("graph").getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  let best = -1, least = 16 ** 2;
  places.forEach(([px, py], client) => { const d = (px - x) ** 2 + (py - y) ** 2; if (d < least) [best, least] = [client, d]; });
  return best;
}

function tip(client) {
  const box = $("tip");
  box.hidden = client < 0;
  if (client < 0) return;
  picked = client;
  const status = told.status === "claimed" ? " (claimed)" : "";
  const value = told.values[client], amount = value == null ? (told.by === "epsilon" ? "ε = ∞, no noise" : "no budget") : told.by === "share" ? `${(100 * value).toFixed(1)} % of budget` : told.by === "remaining" ? `ε left ${left(value)}` : `ε spent ${bound(value)}`;
  box.textContent = `Client ${client}: ${amount}${status}, ${told.condition_names[told.conditions[client]]}`;
  const [x, y] = places[client];
  box.style.left = `${Math.min(x + 10, $("graph").clientWidth - 150)}px`;
  box.style.top = `${y + 12}px`;
}
