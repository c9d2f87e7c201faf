/**
 * A breakpoint with a condition: the numbers that it names, as they were when it stopped the engine.
 *
 * @import {Hit, StepFacts} from "./types.js"
 */

import { noNotes } from "./notes.js";

/** The numbers that a condition names, as they were: "free_blocks is 3, waiting is 4". @param {Hit} hit @param {StepFacts | undefined} step */
export function conditionWords(hit, step, notes = noNotes()) {
  if (!hit.on.startsWith("if:") || !step) return null;
  const numbers = conditionNumbers(step, notes);
  const named = Object.keys(numbers).filter((name) => new RegExp(`\\b${name}\\b`).test(hit.on));
  return named.length ? `${named.map((name) => `${name} is ${numbers[name]}`).join(", ")}.` : null;
}

/** What a condition may name, as in engine/condition.py. @param {StepFacts} step @returns {Object<string, number>} */
export function conditionNumbers(step, notes = noNotes()) {
  return {
    step: step.step,
    step_ms: Math.round(step.wall_us / 10) / 100,
    running: step.rows.length - notes.finished.length,
    waiting: step.waiting.length,
    scheduled_tokens: step.num_scheduled_tokens,
    prefill_tokens: step.num_prefill_tokens,
    decode_tokens: step.num_decode_tokens,
    free_blocks: step.blocks.free,
    cached_idle_blocks: step.blocks.cached_idle,
    referenced_blocks: step.blocks.referenced,
    preemptions: notes.preempted.length,
    evictions: step.evicted.length,
    finished: notes.finished.length,
  };
}
