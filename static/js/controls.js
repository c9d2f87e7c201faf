/**
 * What the page asks of the server besides prompts: the gate, a restart, a cancel. Forms keep working without this;
 * here their submit is taken over so that the page stays. A refusal is said in words.
 */

/** @param {string} url @param {RequestInit} options @returns {Promise<boolean>} whether it was done */
async function ask(url, options) {
  try {
    const response = await fetch(url, { headers: { "Content-Type": "application/json" }, ...options });
    if (response.ok) return true;
    const body = await response.json().catch(() => null);
    say(body?.error?.message ?? `The server answered ${response.status}.`);
  } catch {
    say("The server cannot be reached.");
  }
  return false;
}

/** A sentence for the person, read out too, gone after a while. */
export function say(text) {
  const note = document.getElementById("note");
  note.textContent = text;
  note.hidden = false;
  clearTimeout(Number(note.dataset.timer));
  note.dataset.timer = String(setTimeout(() => (note.hidden = true), 6000));
}

/** @param {"pause" | "run" | "step"} action */
export function moveGate(action) {
  return ask("/api/gate", { method: "POST", body: JSON.stringify({ action, steps: 1 }) });
}

/** @param {HTMLButtonElement} button kept from being pressed twice */
export async function restartEngine(button) {
  button.disabled = true;
  if (await ask("/api/engine", { method: "POST", body: JSON.stringify({ action: "restart", force: true }) })) say("Restarting the engine.");
  button.disabled = false;
}

/** @param {string} id */
export function cancelRequest(id) {
  return ask(`/api/requests/${encodeURIComponent(id)}`, { method: "DELETE" });
}

/** Take over the gate's form. */
export function mountControls() {
  document.getElementById("gate").addEventListener("submit", (event) => {
    event.preventDefault();
    moveGate(event.submitter.value);
  });
}

/** Older steps for a page that was just opened; nothing when they cannot be had. */
export async function olderSteps(engine, since, limit) {
  try {
    const response = await fetch(`/api/steps?engine=${encodeURIComponent(engine)}&since=${since}&limit=${limit}`);
    return response.ok ? (await response.json()).steps : [];
  } catch {
    return [];
  }
}
