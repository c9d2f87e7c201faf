/**
 * Where a step's wall time went.
 *
 * @import {StepFacts} from "./types.js"
 */

/** The time of a phase, or of "other". @param {StepFacts} step @param {string} phase */
export function phaseUs(step, phase) {
  return phase === "other" ? otherUs(step) : (step.phases_us[phase] ?? 0);
}

/** Wall time of a step that no phase explains. @param {StepFacts} step */
function otherUs(step) {
  let explained = 0;
  for (const phase in step.phases_us) explained += step.phases_us[phase];
  return Math.max(0, step.wall_us - explained);
}

/**
 * The share of these steps' wall time in which a GPU worked; null where no GPU said.
 * @param {Array<{wall_us: number, device_us?: number | null}>} steps
 */
export function deviceShare(steps) {
  let [device, wall] = [0, 0];
  for (const { device_us: us, wall_us } of steps) {
    if (us === null || us === undefined) continue;
    device += us;
    wall += wall_us;
  }
  return wall ? device / wall : null;
}
