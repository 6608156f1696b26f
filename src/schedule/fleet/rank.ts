/**
 * Weighted rendezvous hashing (Thaler and Ravishankar 1998; with weights as in Schindelhauer and Schomaker 2005). Each
 * pair of a function and a member has a score that depends on the two alone, and a function's members are ordered by
 * score. A member that joins or leaves does not change the order of the others.
 */
import { mix32 } from '../../tools/index.ts';

/** 64 bits of a text, as two halves. */
export interface TextHash {
  readonly high: number;
  readonly low: number;
}

/** FNV-1a over the UTF-16 units, twice from different starts. */
export function hashText(text: string): TextHash {
  let high = 0x811c9dc5;
  let low = 0x9e3779b9;
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    high = Math.imul(high ^ unit, 0x01000193);
    low = Math.imul(low ^ unit, 0x01000193);
  }
  return { high: mix32(high), low: mix32(low ^ text.length) };
}

/** Greater is better; a member of twice the weight is the best one for twice as many functions. */
export function rankScore(functionHash: TextHash, memberHash: TextHash, weight: number): number {
  const high = mix32(functionHash.high ^ memberHash.low);
  const low = mix32(functionHash.low ^ memberHash.high ^ high);
  // In (0, 1), both ends excluded: their logarithms are no scores.
  const uniform = ((high >>> 5) * 2 ** 26 + (low >>> 6) + 0.5) / 2 ** 53;
  return weight / -Math.log(uniform);
}
