/**
 * The sums of the worksheets, as METRICS defines them: latency from its parts, KV bytes from a model's shape, FLOP per
 * byte. Pure functions of plain numbers; what they say is derived, never measured.
 */

// -- latency -------------------------------------------------------------------------------------

/**
 * @typedef {Object} Parts of one request, in one unit of time (here ms) throughout
 * @property {number} queue
 * @property {number} prefill
 * @property {number} other ingress and egress: the app's own share
 * @property {number} tpot time per output token after the first
 * @property {number} tokens output tokens, at least 1
 */

/** @type {Array<keyof Parts>} */
export const PARTS = ["queue", "prefill", "other", "tpot", "tokens"];

/** When the first and the last token are there, counted from arrival. @param {Parts} parts */
export function latencyOf({ queue, prefill, other, tpot, tokens }) {
  const first = queue + prefill + other;
  const decode = (tokens - 1) * tpot;
  return { first, decode, last: first + decode };
}

/** The same request with parts made shorter or longer; there is no less than one token. @param {Parts} parts @param {Partial<Parts>} factors */
export function scaledParts(parts, factors) {
  const scaled = /** @type {Parts} */ (Object.fromEntries(PARTS.map((name) => [name, parts[name] * (factors[name] ?? 1)])));
  return { ...scaled, tokens: Math.max(1, Math.round(scaled.tokens)) };
}

/** What halving each part alone would give. @param {Parts} parts */
export function halvings(parts) {
  return PARTS.map((part) => ({ part, ...latencyOf(scaledParts(parts, { [part]: 0.5 })) }));
}

// -- KV cache ------------------------------------------------------------------------------------

/** Bytes of one stored number. */
export const KV_BYTES = { float32: 4, float16: 2, fp8: 1, int8: 1 };
/** Of the float32 scale that this engine keeps beside each key and each value of a head in fp8 and int8. */
export const SCALE_BYTES = 4;

/** @typedef {{layers: number, heads: number, kvHeads: number, headDim: number, dtype: keyof typeof KV_BYTES}} Shape */

/** Bytes of one key of one KV head. @param {Shape} shape */
export function keyBytes({ headDim, dtype }) {
  return headDim * KV_BYTES[dtype] + (KV_BYTES[dtype] === 1 ? SCALE_BYTES : 0);
}

/** Keys and values of one token in all layers. @param {Shape} shape */
export function kvBytesPerToken(shape) {
  return 2 * shape.layers * shape.kvHeads * keyBytes(shape);
}

/** How many conversations of this many tokens fit, whole ones. @param {Shape} shape @param {number} tokens @param {number} memoryBytes */
export function kvFit(shape, tokens, memoryBytes) {
  const perToken = kvBytesPerToken(shape);
  const conversation = perToken * tokens;
  return { perToken, conversation, fit: Math.floor(memoryBytes / conversation), tokensThatFit: Math.floor(memoryBytes / perToken) };
}

/** The shape as it is, and what each way of making the cache smaller (or not) makes of it. @param {Shape} shape */
export function kvVariants(shape) {
  return [
    { name: "asked", shape },
    { name: "mha", shape: { ...shape, kvHeads: shape.heads } },
    { name: "mqa", shape: { ...shape, kvHeads: 1 } },
    { name: "fp8", shape: { ...shape, dtype: /** @type {const} */ ("fp8") } },
    { name: "int8", shape: { ...shape, dtype: /** @type {const} */ ("int8") } },
  ];
}

// -- arithmetic intensity ------------------------------------------------------------------------

/**
 * @typedef {Object} Load
 * @property {number} parameters N
 * @property {number} weightBytes b, per parameter
 * @property {number} kvBytes κ, per token
 * @property {number} tokens S
 * @property {number} sequences B
 */

/** FLOP per byte of a prompt of S tokens alone: 2NS / (Nb + κS). @param {Load} load */
export function prefillIntensity({ parameters, weightBytes, kvBytes, tokens }) {
  return (2 * parameters * tokens) / (parameters * weightBytes + kvBytes * tokens);
}

/** FLOP per byte of a decode step of B sequences of S tokens: 2NB / (Nb + κSB). @param {Load} load */
export function decodeIntensity({ parameters, weightBytes, kvBytes, tokens, sequences }) {
  return (2 * parameters * sequences) / (parameters * weightBytes + kvBytes * tokens * sequences);
}

/** The context at which reading one sequence's cache moves as many bytes as the weights: κS = Nb. @param {Load} load */
export function evenTokens({ parameters, weightBytes, kvBytes }) {
  return (parameters * weightBytes) / kvBytes;
}

/** FLOP per byte above which a device computes rather than waits for memory. @param {number} flopsPerS @param {number} bytesPerS */
export function ridgeOf(flopsPerS, bytesPerS) {
  return flopsPerS / bytesPerS;
}

/**
 * Sequences at once that bring decode to the ridge; null when no number does, the caches weigh too much.
 * @param {number} ridge @param {Omit<Load, "sequences">} load
 */
export function sequencesToReach(ridge, load) {
  const { parameters, weightBytes, kvBytes, tokens } = load;
  const gain = 2 * parameters - ridge * kvBytes * tokens;
  return gain > 0 ? Math.ceil((ridge * parameters * weightBytes) / gain) : null;
}
