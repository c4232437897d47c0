// The table of clients: sorted, filtered and paged by the server.
import { ask, Refused } from "./api.js";
import { $, make, percent, scale } from "./format.js";

const WORDS = { active: "in budget", spent: "refused", lost: "host lost", failed: "failed", late: "late" };
const view = { sort: "client", order: "asc", offset: 0 };
let open = () => {};

export function setUpClients(opened) {
  open = opened;
  for (const head of document.querySelectorAll("#clients th")) {
    head.querySelector("button").addEventListener("click", () => {
      const same = view.sort === head.dataset.sort;
      view.order = same ? (view.order === "asc" ? "desc" : "asc") : head.dataset.sort === "client" ? "asc" : "desc";
      view.sort = head.dataset.sort;
      view.offset = 0;
      showClients();
    });
  }
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  $("filters").addEventListener("input", () => { view.offset = 0; showClients(); });
  $("before").addEventListener("click", () => { view.offset -= Number($("rows").value); showClients(); });
  $("after").addEventListener("click", () => { view.offset += Number($("rows").value); showClients(); });
}

export async function showClients() {
  const limit = Number($("rows").value);
  const only = Object.fromEntries(new URLSearchParams($("filter-condition").value));
  try {
    const told = await ask("/api/clients", { ...view, offset: Math.max(0, view.offset), limit, client: $("filter-client").value, ...only });
    $("filter-told").textContent = "";
    showRows(told, limit);
    showSpread(await ask("/api/overview", { by: "share" }));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    $("filter-told").textContent = error.message;
  }
}

function showRows(told, limit) {
  view.offset = told.offset;
  const held = document.activeElement?.dataset?.client;
  for (const head of document.querySelectorAll("#clients th")) {
    if (head.dataset.sort === view.sort) head.setAttribute("aria-sort", view.order === "asc" ? "ascending" : "descending");
    else head.removeAttribute("aria-sort");
  }
  $("clients").tBodies[0].replaceChildren(...told.clients.map(row));
  if (held) document.querySelector(`#clients [data-client="${held}"]`)?.focus();
  $("page-text").textContent = told.total ? `${told.offset + 1}–${told.offset + told.clients.length} of ${told.total}` : "no client fits";
  $("before").disabled = told.offset <= 0;
  $("after").disabled = told.offset + limit >= told.total;
  $("clients-meta").textContent = `δ = ${told.delta}, exact as of round ${told.exact_as_of_round}`;
}

function row(c) {
  const bar = make("i");
  bar.style.width = `${100 * Math.min(1, c.share ?? 0)}%`;
  bar.style.background = scale(c.share);
  const link = make("button", { type: "button", class: "open", "data-client": c.client, text: c.client, "aria-label": `Client ${c.client}, details`, onclick: () => open(c.client) });
  const meter = make("div", { class: "meter" }, make("div", { class: "bar" }, bar), make("small", { text: c.budget == null ? "no budget" : `${percent(c.share)} of ${c.budget_text.split(" ")[0]}` }));
  return make("tr", {}, make("td", {}, link), make("td", { text: c.epsilon_text }), make("td", { class: "wide" }, meter), make("td", { text: c.remaining_text }), make("td", { class: "extra", text: c.releases }), make("td", {}, make("span", { class: "mark", "data-condition": c.condition, text: WORDS[c.condition] })));
}

function showSpread(told) {
  const bins = new Array(20).fill(0);
  let known = 0;
  for (const value of told.values) if (value != null) { bins[Math.min(19, Math.floor(20 * value))]++; known++; }
  const most = Math.max(1, ...bins);
  $("spread").hidden = $("spread-axis").hidden = !known;
  $("spread").setAttribute("aria-label", `How many clients spent which share of their budget: ${bins.map((n, k) => (n ? `${n} between ${5 * k} and ${5 * k + 5} %` : "")).filter(Boolean).join(", ")}`);
  $("spread").replaceChildren(...bins.map((n, k) => {
    const bar = make("i", { title: `${n} clients between ${5 * k} and ${5 * k + 5} %` });
    bar.style.height = n ? `${Math.max(6, (100 * n) / most)}%` : "0";
    bar.style.background = scale((k + 0.5) / 20);
    return bar;
  }));
}
