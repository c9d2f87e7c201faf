/**
 * The connection to the hub: frames and text in, acks and visibility out; reconnects by itself.
 * Backoff is exponential with jitter and a cap, and starts over once a frame has arrived.
 */

import { createInbox } from "./inbox.js";

const FIRST_DELAY_MS = 250;
const MAX_DELAY_MS = 8000;
/** Frames; the hub lets 64 be on their way. */
export const ACK_EVERY = 16;
/** The hub says something every 5 s, whatever its engines do; after this long in silence the line is taken for dead. */
const SILENCE_MS = 8000;

/**
 * @param {{frame: (frame: Object<string, any>) => boolean, text: (items: any[]) => void, took: (ms: number) => void,
 *          first: (does: () => void) => void,
 *          phase: (phase: "connecting" | "live" | "stale") => void}} on
 *        `frame` returns false when it does not follow the last one; the socket then asks for a fresh key. `took`: what a
 *        message cost, parsing included. `first` has something done at the beginning of the next animation frame.
 */
export function connect(on) {
  let socket = /** @type {WebSocket | null} */ (null);
  let failures = 0;
  let last = /** @type {{hub: string, n: number} | null} */ (null);
  let heard = performance.now();
  const inbox = createInbox(take, on.first);

  const send = (/** @type {Object<string, any>} */ message) => socket?.readyState === WebSocket.OPEN && socket.send(JSON.stringify(message));

  function open() {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const mine = new WebSocket(`${scheme}//${location.host}/ws`);
    socket = mine;
    mine.addEventListener("open", () => {
      heard = performance.now();
      send({ rows: "columns", ...(last && { resume: last }) });
      if (document.hidden) send({ visible: false });
    });
    mine.addEventListener("message", ({ data }) => {
      heard = performance.now();
      if (mine === socket) inbox.put(data);
    });
    mine.addEventListener("close", () => {
      if (mine !== socket) return;
      inbox.clear(); // what waits comes again on resuming
      retry();
    });
  }

  /** @param {string} data */
  function take(data) {
    const start = performance.now();
    receive(JSON.parse(data));
    on.took(performance.now() - start);
  }

  /** @param {any} message */
  function receive(message) {
    if (message.text) {
      on.text(message.text);
      return;
    }
    const follows = message.key || last === null || (message.hub === last.hub && message.n === last.n + 1);
    let folded = false;
    try {
      folded = follows && on.frame(message);
    } finally {
      if (!folded) startOver(); // after a fault too: what it has left half done is not gone on from
    }
    if (!folded) return;
    last = { hub: message.hub, n: message.n };
    failures = 0;
    on.phase("live");
    if (message.n % ACK_EVERY === 0) send({ ack: message.n });
  }

  /** Something is missing: come back without a past, which brings a key. */
  function startOver() {
    last = null;
    drop();
  }

  function drop() {
    const old = socket;
    socket = null;
    inbox.clear();
    old?.close();
    retry();
  }

  function retry() {
    on.phase("stale");
    const ceiling = Math.min(MAX_DELAY_MS, FIRST_DELAY_MS * 2 ** failures);
    failures += 1;
    setTimeout(open, ceiling * (0.5 + Math.random() / 2));
  }

  document.addEventListener("visibilitychange", () => {
    heard = performance.now(); // a hidden page is sent nothing, so its silence meant nothing
    send({ visible: !document.hidden });
  });
  setInterval(() => {
    const quiet = performance.now() - heard > SILENCE_MS;
    if (quiet && !document.hidden && socket?.readyState === WebSocket.OPEN) drop();
  }, 1000);
  open();
}
