/**
 * The places of blocks that were cached before the page was opened, or while it did not hear: learned from what the
 * server still holds of the engine's past, asked for once.
 *
 * @import {Chain} from "./chain.js"
 * @import {Piece} from "./recording.js"
 * @import {Engine, State} from "./types.js"
 */

import { learnPrompt, learnStep, learnTables } from "./chain.js";
import { readRecording } from "./recording.js";
import { fold } from "./state.js";

export function createPast() {
  let asked = "";
  return {
    /** @param {Engine} engine @param {() => void} learned called when there may be more to draw */
    ask(engine, learned) {
      const { id, epoch, history } = engine;
      const wanted = `${id} ${epoch} ${history.gaps.length}`;
      if (wanted === asked) return;
      asked = wanted;
      readRecording(id, (events) => {
        if (events[0].epoch === epoch && engine.epoch === epoch) learnSegment(history.chain, events);
      }).then(learned);
    },
  };
}

/** @param {Chain} chain @param {Piece} events */
export function learnSegment(chain, [key, ...events]) {
  let state = key.state;
  learnTables(chain, state);
  for (const event of events) {
    state = /** @type {State} */ (fold(state, event));
    if (event.kind === "step") learnStep(chain, event, state);
    else if (event.kind === "request" && event.event === "arrived") learnPrompt(chain, event.block_hashes);
  }
}
