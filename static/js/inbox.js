/**
 * Messages as they come, taken at the beginning of animation frames: together, so that the code that folds them is
 * warm, but not more of them in one frame than leave it time to draw: what comes in a bunch is taken over a few frames,
 * in order. What is too many is taken without waiting for a frame, and all is where nobody looks.
 */

/** What messages may take of a frame: this, and more for each that waits. */
const BUDGET_MS = 1.6;
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
  let asked = false;

  function work() {
    const start = performance.now();
    const fits = () => performance.now() - start < BUDGET_MS + MORE_MS * waiting.length;
    try {
      while (waiting.length && (tooMany() || fits())) take(/** @type {Message} */ (waiting.shift()));
    } finally {
      if (waiting.length) ask();
    }
  }

  /** Nor do frames come for what cannot be seen, be it hidden or a part of another page. */
  function tooMany() {
    return waiting.length > MOST || document.hidden;
  }

  function ask() {
    if (asked) return;
    asked = true;
    first(() => {
      asked = false;
      work();
    });
  }

  document.addEventListener("visibilitychange", () => document.hidden && work());

  return {
    /** @param {Message} message */
    put(message) {
      waiting.push(message);
      if (tooMany()) work();
      else ask();
    },
    clear() {
      waiting = [];
    },
  };
}
