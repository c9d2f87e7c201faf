/**
 * What the server still holds of an engine's past (GET /api/recording), read piece by piece, so that a long one does
 * not stop the page: a step from before it was opened, or from a gap, can be shown too.
 *
 * @import {Event, KeyEvent, StepEvent} from "./types.js"
 * @import {Placed} from "./notes.js"
 *
 * @typedef {[KeyEvent, ...Event[]]} Piece a keyframe and what followed it
 */

import { stepOf } from "./notes.js";
import { withQuery } from "./query.js";

/**
 * @param {string} engine
 * @param {(events: Piece) => void} segment called with each key and the events after it, oldest first
 * @returns {Promise<boolean>} whether it could be read
 */
export async function readRecording(engine, segment) {
  try {
    const response = await fetch(withQuery("/api/recording", { engine }));
    if (!response.ok || !response.body) return false;
    let events = /** @type {Event[]} */ ([]);
    const end = () => {
      if (events[0]?.kind === "key") segment(/** @type {Piece} */ (events));
      events = [];
    };
    await eachLine(response.body.pipeThrough(new DecompressionStream("gzip")), (line) => {
      const event = JSON.parse(line);
      if (event.kind === "text") return;
      if (event.kind === "key" || event.kind === "hello" || event.kind === "gap") end();
      if (event.kind !== "hello" && event.kind !== "gap") events.push(event);
    });
    end();
    return true;
  } catch {
    return false; // the line, or a browser that cannot unpack it
  }
}

/** Longer than any event; without an end to it a small file of zeros, unpacked, would fill the memory. */
const LONGEST_LINE = 32 * 2 ** 20;

/** Throws when a line does not end. @param {ReadableStream<Uint8Array>} bytes @param {(line: string) => void} take */
export async function eachLine(bytes, take) {
  const reader = bytes.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    const text = decoder.decode(value, { stream: !done });
    rest += text;
    if (done || text.includes("\n")) {
      const lines = rest.split("\n");
      rest = done ? "" : (lines.pop() ?? "");
      for (const line of lines) if (line) take(line);
    }
    if (rest.length > LONGEST_LINE) throw new Error("a line is too long");
    if (done) return;
    await new Promise((go) => setTimeout(go)); // let the page draw in between
  }
}

/** The steps of a segment, and its notes with the number of the step that each belongs to. @param {Piece} events */
export function stepsAndNotes([key, ...events]) {
  /** @type {StepEvent[]} */
  const steps = [];
  /** @type {Placed[]} */
  const requests = [];
  let last = key.state.step;
  for (const event of events) {
    if (event.kind === "step") {
      last = event.step;
      steps.push(event);
    } else if (event.kind === "request") {
      requests.push({ ...event, step: stepOf(event, last) });
    }
  }
  return { steps, requests };
}
