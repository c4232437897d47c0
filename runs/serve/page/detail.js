// One client: its accounts, its charges, and what more rounds would come to.
import { ask } from "./api.js";
import { $, clock, make, plain } from "./format.js";

export function setUpDetail() {
  $("detail-close").addEventListener("click", () => $("detail").close());
}

export async function openClient(client) {
  const [one, past] = await Promise.all([ask(`/api/clients/${client}`, { every: true }), ask(`/api/clients/${client}/history`, { limit: 100 })]);
  $("detail-title").textContent = `Client ${client}`;
  const c = one.client;
  $("detail-body").replaceChildren(
    make("p", { text: `ε = ${c.epsilon_text} of ${c.budget_text} at δ = ${one.delta}, ${c.status}, by the ${c.account_text} account, exact as of round ${one.exact_as_of_round}. More rounds like its last one: ${one.rounds_left_text}.` }),
    make("h3", { text: "What if" }), whatIf(client),
    make("h3", { text: "Accounts" }), table(["account", "ε", "status"], one.accounts.map((a) => [a.account_text, a.text, a.status])),
    make("h3", { text: `Charges, ${past.total} in all, the newest first` }),
    make("div", { class: "scroll", tabindex: 0 }, table(["round", "kind", "noise z", "time", ""], past.charges.map((p) => [p.round, p.kind, plain(p.noise_multiplier, 4), clock(p.wall), p.voided ? "voided" : ""]))),
  );
  if (!$("detail").open) $("detail").showModal();
}

function whatIf(client) {
  const rounds = make("input", { type: "number", min: 1, value: 10, id: "what-rounds" }), noise = make("input", { type: "number", min: 0, step: "any", placeholder: "as now", id: "what-noise" });
  const answer = make("p", { role: "status", id: "what-answer" });
  const form = make("form", {}, make("label", {}, "More rounds", rounds), make("label", {}, "Noise multiplier z", noise), make("button", { type: "submit", text: "Work out" }));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const p = (await ask("/api/what-if", { client, rounds: rounds.value, noise: noise.value })).prospects[0];
      const over = p.epsilon != null && p.budget != null && p.epsilon > p.budget ? `, more than its budget of ${plain(p.budget)}` : "";
      answer.textContent = `After ${p.rounds_text} more rounds at z = ${plain(p.noise_multiplier, 4)}: ε = ${p.epsilon_text}${over}.`;
    } catch (error) {
      answer.textContent = error.message;
    }
  });
  return make("div", {}, form, answer);
}

function table(heads, rows) {
  return make("table", {}, make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col", text: head })))), make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells.map((cell) => make("td", { text: cell }))))));
}
