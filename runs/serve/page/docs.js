// The endpoints, from the server's own description.
import { ask } from "./api.js";
import { $, make } from "./format.js";

try {
  const told = await ask("/openapi.json");
  $("about").textContent = told.info.description;
  for (const [path, verbs] of Object.entries(told.paths)) for (const [verb, what] of Object.entries(verbs)) $("list").append(endpoint(path, verb, what, told));
} catch {
  $("about").textContent = "Open the page with its token first, then come back here.";
}

function endpoint(path, verb, what, told) {
  const rows = (what.parameters ?? []).map((p) => make("tr", {}, make("td", {}, make("code", { text: p.name })), make("td", { text: p.required ? "required" : p.schema.default == null || p.schema.default === "" ? "" : `${p.schema.default}` }), make("td", { text: p.description ?? (p.schema.enum ?? []).join(", ") })));
  const name = what.responses["200"]?.content?.["application/json"]?.schema?.$ref?.split("/").at(-1);
  const parts = [make("h3", {}, make("span", { class: "verb", text: verb.toUpperCase() }), make("code", { text: path })), make("p", { text: what.description ?? what.summary })];
  if (rows.length) parts.push(make("table", {}, make("thead", {}, make("tr", {}, ...["parameter", "default", "what it is"].map((text) => make("th", { scope: "col", text })))), make("tbody", {}, ...rows)));
  if (name) parts.push(make("details", {}, make("summary", { text: `Answer: ${name}` }), make("pre", { tabindex: 0, text: JSON.stringify(told.components.schemas[name], null, 2) })));
  return make("section", { class: "card endpoint" }, ...parts);
}
