/**
 * Classes of requests, whose latencies are kept apart: the caller's own word for it (`class` in the body), else whether
 * prompt and answer are short or long. An answer is as long as it became, so such a class is known at the end only.
 */

/** From so many tokens on, long. */
export const LONG_PROMPT = 256;
export const LONG_ANSWER = 128;

export const CLASS_RULES = `Long: a prompt of ${LONG_PROMPT} tokens or more, an answer of ${LONG_ANSWER} or more; a class that the caller gave goes first.`;

/** @param {{prompt: number, tokens: number, label: string | null}} sample a finished request @returns {string} */
export function classOf({ prompt, tokens, label }) {
  if (label) return label;
  return `${prompt < LONG_PROMPT ? "short" : "long"} prompt, ${tokens < LONG_ANSWER ? "short" : "long"} answer`;
}

/** The classes that there are, and how many of each. @param {Array<Parameters<typeof classOf>[0]>} finished @returns {Array<{name: string, n: number}>} */
export function classesOf(finished) {
  const counts = new Map();
  for (const sample of finished) counts.set(classOf(sample), (counts.get(classOf(sample)) ?? 0) + 1);
  return [...counts].map(([name, n]) => ({ name, n })).sort((one, other) => (one.name < other.name ? -1 : 1));
}
