/**
 * Where a side comes from: an engine's last run, a recording from disk, the demo, or a ghost that the server simulates.
 * Each ends in a run, or in an error whose message is for the person.
 *
 * @import {Event} from "./types.js"
 *
 * @typedef {import("./compare_run.js").Run} Run
 */

import { createRunReader } from "./compare_run.js";
import { withQuery } from "./query.js";
import { eachLine } from "./recording.js";
import { SCHEMA_VERSION } from "./store.js";

/** What cannot be had; the message says why. */
export class Unavailable extends Error {}

/** What cannot be had now: nobody answered, so nothing is known of it. */
export class Unreachable extends Unavailable {
  constructor() {
    super("The server cannot be reached.");
  }
}

const GZIP = [0x1f, 0x8b];

/** @param {string} engine "" for the only one @param {AbortSignal} signal @param {number} [until] the last event that counts @returns {Promise<Run>} */
export async function lastRun(engine, signal, until) {
  return readResponse(await answer(withQuery("/api/recording", { engine }), { signal }), "No request has arrived yet. Send a burst, then take its run.", until);
}

/** @param {string} engine @param {Object<string, any>} settings @param {AbortSignal} signal @param {number} [until] the last event that counts @returns {Promise<Run>} */
export async function ghostRun(engine, settings, signal, until) {
  const options = { signal, method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(settings) };
  return readResponse(await answer(withQuery("/api/ghost", { engine, until }), options), "The simulation holds no request.");
}

/** @param {"static" | "continuous"} name @returns {Promise<Run>} */
export async function demoRun(name) {
  return readResponse(await answer(`/static/demo/${name}.jsonl.gz`), "The demo holds no request.");
}

/** @param {File} file a recording, packed or not @returns {Promise<Run>} */
export async function fileRun(file) {
  const magic = new Uint8Array(await file.slice(0, 2).arrayBuffer());
  const packed = GZIP.every((byte, i) => magic[i] === byte);
  return readRun(file.stream(), packed, `${file.name} holds no request.`);
}

/**
 * The setting that is turned the other way in a ghost, by the settings of the run itself.
 * @param {string} name @param {Object<string, any>} config
 */
export function turnedOver(name, config) {
  if (name === "batching") return { batching: config.batching === "static" ? "continuous" : "static" };
  if (name === "speculative") return { speculative: "none" };
  if (name === "max_num_seqs") return { max_num_seqs: Math.max(1, Math.floor(config.max_num_seqs / 2)) };
  return { [name]: !config[name] };
}

/** @param {string} url @param {RequestInit} [options] */
async function answer(url, options) {
  const response = await fetch(url, options).catch(() => null);
  if (response === null) throw new Unreachable();
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  throw new Unavailable(body?.error?.message ?? `The server answered ${response.status}.`);
}

/** @param {Response} response @param {string} none what to say when there is no run in it @param {number} [until] */
async function readResponse(response, none, until) {
  // Whole, since a line that breaks off is no damaged recording.
  const body = await response.blob().catch(() => null);
  if (body === null) throw new Unreachable();
  return readRun(body.stream(), true, none, until);
}

/**
 * Hand on what is read, but in the newest epoch nothing after an event: each epoch has numbers of its own.
 * @param {number} until @param {(event: Event) => void} take @returns {(event: Event) => void}
 */
export function cutAfter(until, take) {
  let beyond = /** @type {Event[]} */ ([]); // to be left out, unless a newer epoch follows
  return (event) => {
    if (/** @type {string} */ (event.kind) === "text") return take(event); // it has no number
    if (beyond.length && beyond[0].epoch !== event.epoch) {
      beyond.forEach(take);
      beyond = [];
    }
    if (event.seq > until) beyond.push(event);
    else take(event);
  };
}

/** @param {ReadableStream<Uint8Array<ArrayBuffer>>} bytes @param {boolean} packed @param {string} none @param {number} [until] */
async function readRun(bytes, packed, none, until = Infinity) {
  const reader = createRunReader();
  const takeUntil = cutAfter(until, reader.take);
  const take = (/** @type {Event} */ event) => {
    if (event.kind === "hello" && event.v !== SCHEMA_VERSION) throw new Unavailable(`The recording’s schema version is ${event.v}; this page reads version ${SCHEMA_VERSION}. Open it with the Stepscope that made it.`);
    takeUntil(event);
  };
  try {
    await eachLine(packed ? bytes.pipeThrough(new DecompressionStream("gzip")) : bytes, (line) => take(JSON.parse(line)));
  } catch (error) {
    if (error instanceof Unavailable) throw error;
    throw new Unavailable("This cannot be read as a recording: it is damaged, cut off, or something else.");
  }
  const run = reader.run();
  if (!run || !run.steps.length) throw new Unavailable(none);
  return run;
}
