/**
 * The places of blocks that were cached before the page was opened, or while it did not hear: learned from what the
 * server still holds of the engine's past, asked for once.
 */

import { learnPrompt, learnStep, learnTables } from "./chain.js";
import { readRecording } from "./recording.js";
import { fold } from "./state.js";

export function createPast() {
  let asked = "";
  return {
    /** @param {any} engine see store.js @param {() => void} learned called when there may be more to draw */
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

/** @param {import("./chain.js").Chain} chain @param {Array<Object<string, any>>} events a key and what followed it */
export function learnSegment(chain, [key, ...events]) {
  let state = key.state;
  learnTables(chain, state);
  for (const event of events) {
    state = fold(state, event);
    if (event.kind === "step") learnStep(chain, event, state);
    else if (event.event === "arrived") learnPrompt(chain, event.block_hashes);
  }
}
