/** Which layers can come coded at all. Of these a planner chooses, by what they cost on a machine. */

/** A fast link (55 GB/s) saves as long as a launch takes (3 us) by a sixth of a MiB. */
const codedBytesLeast = 2 ** 20;
/** What gains less than this share of its bytes stays as it is. */
export const leastGain = 0.05;

/**
 * Tables stay as they are, since kernels read rows of them in host memory; so do small layers, for which a launch takes
 * longer than the link saves.
 *
 * @param kind of a layer @param leastBytes for tests with small models
 */
export const canBeCoded = (kind: string, bytes: number, leastBytes = codedBytesLeast): boolean =>
  kind !== 'embedding' && bytes > 0 && bytes >= leastBytes;
