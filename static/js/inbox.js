/**
 * Messages as they come, but not more of them in one animation frame than leave it time to draw: what comes in a bunch
 * is taken over a few frames, in order. Who falls behind, or is not looked at, takes all at once.
 */

/** What messages may take of a frame: this, and more for each that waits. */
const BUDGET_MS = 0.8;
const MORE_MS = 0.1;
/** So many may wait. */
const MOST = 24;

/**
 * @template Message
 * @param {(message: Message) => void} take
 * @param {(does: () => void) => void} first has something done at the beginning of the next frame
 */
export function createInbox(take, first) {
  /** @type {Message[]} oldest first */
  let waiting = [];
  let spent = 0; // since the last animation frame began
  let asked = false;

  function work() {
    while (waiting.length && (spent < BUDGET_MS + MORE_MS * waiting.length || waiting.length > MOST || document.hidden)) {
      const start = performance.now();
      take(/** @type {Message} */ (waiting.shift()));
      spent += performance.now() - start;
    }
    if (asked) return;
    asked = true;
    first(() => {
      asked = false;
      spent = 0;
      if (waiting.length) work();
    });
  }

  return {
    /** @param {Message} message */
    put(message) {
      waiting.push(message);
      work();
    },
    clear() {
      waiting = [];
    },
  };
}
