// Curves by round.
import { $, bound, colour, make, percent, plain } from "./format.js";

const CHARTS = [
  ["Test accuracy", "released", ["accuracy"], (v) => percent(v, 1)],
  ["Test loss", "released", ["loss"], (v) => plain(v, 4)],
  ["ε, largest and median", "released", ["epsilon_max", "epsilon_median"], bound],
  ["Objective", "diagnostics", ["objective"], (v) => plain(v, 4)],
  ["Rounds per second", "timing", ["rounds_per_second"], (v) => plain(v)],
];
const drawn = new Map();
let told = null;

export function drawCharts(fresh = told) {
  told = fresh;
  if (told) CHARTS.forEach(drawChart);
}

function drawChart([title, source, names, words]) {
  const series = told[source], rounds = series.columns.round ?? [];
  const found = names.filter((name) => series.columns[name]);
  let box = drawn.get(title);
  if (!box) {
    box = make("figure", { class: "chart" }, make("figcaption", {}, make("span", { text: title }), make("b")), make("p", { class: "note" }), make("div", { class: "plot" }));
    drawn.set(title, box);
    $("charts").append(box);
  }
  box.hidden = !found.length && rounds.length > 0;
  box.querySelector(".note").textContent = series.private ? "not private: computed from private data" : "";
  const values = found.map((name) => series.columns[name]), plot = box.querySelector(".plot");
  const latest = values.map((column) => words(column.at(-1))).join(", ");
  const claimed = title.startsWith("ε") && told.status === "claimed" ? " (claimed)" : "";
  box.querySelector("b").textContent = latest + claimed;
  plot.setAttribute("role", "img");
  plot.setAttribute("aria-label", rounds.length ? `${title} by round: ${latest}${claimed} at round ${rounds.at(-1)}` : `${title}: nothing measured yet`);
  plot.replaceChildren();
  if (rounds.length < 2) {
    plot.append(make("p", { class: "none", text: "Nothing to draw yet" }));
    return;
  }
  const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  new uPlot({
    width: plot.clientWidth,
    height: 170,
    legend: { show: false },
    cursor: { show: false },
    padding: [10, 12, 0, 0],
    scales: { x: { time: false } },
    axes: [{ ...axis, size: 28 }, { ...axis, size: 52, values: (_, ticks) => ticks.map((v) => (title === "Test accuracy" ? percent(v) : plain(v, 4))) }],
    series: [{}, ...found.map((_, k) => ({ stroke: colour(`--curve-${k + 1}`), width: 2, dash: k ? [6, 4] : undefined, points: { show: rounds.length < 3 } }))],
  }, [rounds, ...values], plot);
}
