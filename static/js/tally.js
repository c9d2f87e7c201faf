/**
 * Percentiles of samples of which many are alike: how often each value was seen is all that is known. Nearest rank, as
 * everywhere (metrics.js).
 */

/**
 * Smallest samples that are no smaller than so many percent of all.
 * @param {Map<number, number>} tally how often each value was seen
 * @param {number[]} ps ascending
 * @returns {{n: number, ranks: Array<number | null>}}
 */
export function percentilesOf(tally, ps) {
  const sorted = [...tally].sort(([one], [other]) => one - other);
  const n = sorted.reduce((sum, [, times]) => sum + times, 0);
  let at = 0;
  let below = 0; // samples before sorted[at]
  const ranks = ps.map((p) => {
    if (n === 0) return null;
    const rank = Math.max(1, Math.ceil((p / 100) * n));
    while (below + sorted[at][1] < rank) below += sorted[at++][1];
    return sorted[at][0];
  });
  return { n, ranks };
}
