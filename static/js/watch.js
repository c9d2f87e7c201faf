/**
 * What watching does to this page: how many frames came and were drawn, how old the newest event is, what was lost on
 * the way. All by the page's own clock. Of the engine's clock only intervals are used: an event's delay is how much
 * later it came, after the one before, than the quickest one of the last minute did.
 *
 * @import {Engine, Json} from "./types.js"
 */

/** Frames a second are counted over the last so many milliseconds. */
const RATE_MS = 5000;
/** The quickest event is looked for in so many slots of a second. */
const SLOTS = 60;

export function createWatch(clock = () => performance.now()) {
  const begun = clock();
  const samples = [{ at: begun, received: 0, drawn: 0 }];
  /** The least difference between the clocks in a second: [second, ms]. */
  let slots = /** @type {Array<[number, number]>} */ ([]);
  let epoch = /** @type {string | null} */ (null);
  let differs = 0;
  const told = { received: 0, jumps: 0, heardAt: begun };

  return {
    /** A frame was folded. @param {Json} frame @param {Engine | null} engine the one on show */
    take(frame, engine) {
      told.heardAt = clock();
      if (frame.key && told.received) told.jumps += 1;
      told.received += 1;
      if (!engine || frame.key || !frame.events.length) return;
      if (engine.epoch !== epoch) [epoch, slots] = [engine.epoch, []];
      differs = engine.clock.at - engine.clock.t / 1000;
      const second = Math.floor(told.heardAt / 1000);
      const last = slots.at(-1);
      if (last?.[0] === second) last[1] = Math.min(last[1], differs);
      else slots = [...slots, /** @type {[number, number]} */ ([second, differs])].filter(([at]) => at > second - SLOTS);
    },
    /**
     * The figures now; to be asked about twice a second.
     * @param {number} drawn frames drawn since the page was opened
     */
    figures(drawn) {
      const at = clock();
      samples.push({ at, received: told.received, drawn });
      while (samples.length > 2 && samples[1].at <= at - RATE_MS) samples.shift();
      const [first] = samples;
      const seconds = (at - first.at) / 1000;
      const perS = (/** @type {number} */ frames) => (seconds > 0 ? frames / seconds : null);
      return {
        received: perS(told.received - first.received),
        drawn: perS(drawn - first.drawn),
        heardMs: at - told.heardAt,
        lateMs: slots.length ? differs - Math.min(...slots.map(([, least]) => least)) : null,
        jumps: told.jumps,
      };
    },
  };
}
