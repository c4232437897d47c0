// Questions to the server, its stream of changes, and how it stands with both.

const TOKEN_KEY = "dualfed-token";
let token = readToken();

function readToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    history.replaceState(null, "", location.pathname); // keep it out of the address bar and of bookmarks
    try { sessionStorage.setItem(TOKEN_KEY, given); } catch { /* kept in memory alone */ }
    return given;
  }
  try { return sessionStorage.getItem(TOKEN_KEY) ?? ""; } catch { return ""; }
}

export function setToken(text) {
  token = text;
  try { sessionStorage.setItem(TOKEN_KEY, text); } catch { /* kept in memory alone */ }
}

export class NoEntry extends Error {}
export class Refused extends Error {}

const headers = () => (token ? { Authorization: `Bearer ${token}` } : {});

/** The answer to a question, as JSON. Throws NoEntry without the token, Refused with the server's sentence. */
export async function ask(path, parameters = {}, signal = AbortSignal.timeout(20000)) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "" && value != null));
  const answer = await fetch(`${path}?${query}`, { headers: headers(), cache: "no-store", signal });
  if (answer.status === 401) throw new NoEntry();
  const told = await answer.json();
  if (!answer.ok) throw new Refused(told.error ?? `the server answered ${answer.status}`);
  return told;
}

const QUIET_MS = 12000;
const LONGEST_WAIT_MS = 4000;

/**
 * Follows /api/stream for ever. Calls `changed(tick)` at every change, `away(reason)` when the server does not answer,
 * and `noEntry()` when it wants a token; tries again by itself.
 */
export async function follow({ changed, away, noEntry }) {
  let wait = 500;
  for (;;) {
    try {
      await stream((tick) => { wait = 500; changed(tick); });
      away("the server has ended");
    } catch (error) {
      if (error instanceof NoEntry) await noEntry();
      else away(error.message);
    }
    await new Promise((done) => setTimeout(done, wait));
    wait = Math.min(wait * 1.6, LONGEST_WAIT_MS);
  }
}

async function stream(changed) {
  const control = new AbortController();
  let quiet = setTimeout(() => control.abort(), QUIET_MS);
  try {
    const answer = await fetch("/api/stream", { headers: headers(), cache: "no-store", signal: control.signal });
    if (answer.status === 401) throw new NoEntry();
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(quiet);
      quiet = setTimeout(() => control.abort(), QUIET_MS);
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        const data = part.split("\n").find((line) => line.startsWith("data: "));
        if (data) changed(JSON.parse(data.slice(6)));
      }
    }
  } finally {
    clearTimeout(quiet);
    control.abort();
  }
}
