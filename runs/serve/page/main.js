// The page: what changed is asked for again, at most twice a second, and only while somebody looks.
import { ask, follow, NoEntry, setToken } from "./api.js";
import { drawCharts } from "./charts.js";
import { setUpClients, showClients } from "./clients.js";
import { openClient, setUpDetail } from "./detail.js";
import { $, clock, make, percent, plain } from "./format.js";
import { drawNetwork, setUpNetwork } from "./network.js";

const GAP_MS = 500;
const WORDS = { running: "running", completed: "complete", stopped: "stopped", exhausted: "budgets spent", failed: "failed", lost: "process gone", unknown: "cannot be seen", away: "server away" };
const KINDS = { completed: "over", stopped: "warn", exhausted: "warn", failed: "bad", lost: "bad", unknown: "warn" };
let run = null, shown = {}, newest = null, busy = false, last = 0, away = "", summary = null;

async function refresh() {
  if (busy || !newest || document.hidden) return;
  busy = true;
  await new Promise((done) => setTimeout(done, Math.max(0, GAP_MS - (performance.now() - last))));
  last = performance.now();
  const tick = newest;
  try {
    if (!run || run.identity !== tick.identity) {
      if (run) location.reload(); // another run is served here now
      run = await ask("/api/run");
      showRun();
      await drawNetwork(run, true);
      shown = {};
    }
    summary = await ask("/api/summary");
    showSummary();
    const { accounts, series, events } = tick.versions;
    if (shown.accounts !== accounts) await Promise.all([showClients(), drawNetwork(run)]);
    if (shown.series !== series) drawCharts(await ask("/api/metrics"));
    if (shown.events !== events) showEvents(await ask("/api/events", { limit: 300 }));
    shown = { accounts, series, events, version: tick.version };
    $("main").hidden = false;
  } catch (error) {
    if (error instanceof NoEntry) showDoor();
    else console.warn(error.message); // the stream says when the server is away
  }
  busy = false;
  if (newest.version !== shown.version && !away) setTimeout(refresh, GAP_MS);
}

function showRun() {
  document.title = `${run.name} · dualfed`;
  $("run-name").textContent = run.name;
  const net = run.family === "graph" ? "over a graph" : "with a server";
  $("run-what").textContent = `${run.method} ${net}, ${run.clients} clients, δ = ${run.delta}, for ${run.unit_text} (replace-one): ${run.status}`;
  $("foot").textContent = `dualfed ${run.version} · ${run.folder}`;
}

function showSummary() {
  const s = summary;
  showState();
  $("progress").max = Math.max(1, s.rounds);
  $("progress").value = s.done;
  $("round-text").textContent = `round ${s.done} of ${s.rounds}`;
  $("exact").textContent = `exact as of round ${s.exact_as_of_round}`;
  $("sentence").textContent = s.sentence[0].toUpperCase() + s.sentence.slice(1) + ".";
  const gone = s.counters.lost + s.counters.failed;
  tiles([
    ["Largest ε", s.largest.text, s.budget == null ? "no budget" : `of ${s.budget_text}, client ${s.largest_client}`, s.conditions.spent ? "warn" : ""],
    ["Median ε", s.median.text, `${s.releases} releases`, ""],
    ["Test accuracy", s.scores.accuracy == null ? "–" : percent(s.scores.accuracy, 1), s.scores.loss == null ? "" : `loss ${plain(s.scores.loss, 4)}, round ${s.scores.round}`, ""],
    ["Rounds per second", s.state === "running" || s.rounds_per_second ? plain(s.rounds_per_second) : "–", s.extra.simulated_s == null ? "by the wall clock" : `${plain(s.extra.simulated_s)} s simulated`, ""],
    ["Refused", String(s.conditions.spent), `of ${run.clients} clients, budget spent`, s.conditions.spent ? "warn" : ""],
    ["Lost or failed", String(gone), `${s.counters.rebuilt} hosts back${s.counters.late ? `, ${s.counters.late} late` : ""}`, gone ? "bad" : ""],
  ]);
}

function tiles(rows) {
  $("tiles").replaceChildren(...rows.map(([name, value, more, tone]) => make("div", { class: "tile", "data-tone": tone }, make("span", { text: name }), make("b", { text: value }), make("em", { text: more }))));
}

function showState() {
  const state = away ? "away" : summary?.state ?? "unknown";
  $("state").dataset.state = state;
  $("state").textContent = WORDS[state];
  document.body.classList.toggle("stale", Boolean(away));
  const banner = $("banner");
  let text = "", kind = "warn";
  if (away) text = `The server does not answer; trying again. ${summary ? `The numbers below are exact as of round ${summary.exact_as_of_round}, read at ${clock(summary.seen)}.` : ""}`;
  else if (summary && summary.state !== "running") [text, kind] = [summary.note, KINDS[summary.state] ?? "warn"];
  if (banner.textContent !== text) banner.textContent = text;
  banner.dataset.kind = kind;
  banner.hidden = !text;
}

function showEvents(told) {
  $("events-meta").textContent = told.events.length ? `newest first, ${told.events.length} shown` : "";
  const rows = told.events.reverse().map((e) => make("li", { "data-kind": e.kind }, make("time", { text: clock(e.wall) }), make("span", { text: `round ${e.round}` }), make("p", { text: e.text })));
  $("events").replaceChildren(...(rows.length ? rows : [make("li", { class: "empty", text: "Nothing worth a line so far." })]));
}

let enter = () => {};
function showDoor(told = "") {
  $("door").hidden = false;
  $("main").hidden = true;
  $("door-told").textContent = told;
  $("state").textContent = "token needed";
  return new Promise((done) => { enter = done; });
}
$("door").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken($("token").value.trim());
  $("door").hidden = true;
  enter();
});

const theme = $("theme");
try { theme.value = localStorage.getItem(THEME_KEY) ?? "auto"; } catch { theme.value = "auto"; }
function redraw() {
  if (!run) return;
  drawCharts();
  drawNetwork(run);
  showClients();
}
theme.addEventListener("change", () => {
  applyTheme(theme.value);
  try { localStorage.setItem(THEME_KEY, theme.value); } catch { /* for this visit alone */ }
  redraw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("resize", () => { drawCharts(); if (run) drawNetwork(run); });
document.addEventListener("visibilitychange", refresh);

setUpClients(openClient);
setUpNetwork(openClient);
setUpDetail();
follow({
  changed(tick) { newest = tick; if (away) { away = ""; showState(); shown = {}; } refresh(); },
  away(reason) { away = reason; showState(); },
  noEntry: () => showDoor($("token").value ? "That was not the token." : ""),
});
