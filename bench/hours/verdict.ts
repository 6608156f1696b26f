/** How far `best` is behind the best of the policies without knowledge of the future, in one row. Pure. */
import { median } from '../shared/statistics.ts';
import type { Hour } from './row.ts';

export interface PlayedSystem {
  readonly name: string;
  readonly knowsFuture: boolean;
  readonly hour: Hour;
}

export interface Verdict {
  /** Percentage points of goodput behind the rival with the most; 0 or less: not behind. */
  readonly pointsBehind: number;
  /** p99 relative to that of the rival furthest ahead, minus 1: the median over the seeds; 0 or less: not behind. */
  readonly p99Behind: number;
  readonly isBehind: boolean;
  /** For the table. */
  readonly text: string;
}

const pointsMax = 1;
const p99Max = 0.05;

/**
 * Goodput and p99 are compared with the best rival in each. A rival whose goodput is below the tolerance does not count
 * for p99: a policy that answers hardly anything in time can be fast. p99 is compared seed by seed, under the same
 * arrivals: best is behind if the median is and no seed is ahead, since p99 of one policy varies by a tenth and more
 * from seed to seed.
 */
export function verdictOf(played: readonly PlayedSystem[]): Verdict | undefined {
  const best = played.find(({ name }) => name === 'best');
  const rivals = played.filter(({ name, knowsFuture }) => name !== 'best' && !knowsFuture);
  if (best === undefined || rivals.length === 0) return undefined;
  const most = rivals.reduce((a, b) => (b.hour.goodput > a.hour.goodput ? b : a));
  const pointsBehind = (most.hour.goodput - best.hour.goodput) * 100;
  const asGood = rivals.filter(({ hour }) => (best.hour.goodput - hour.goodput) * 100 <= pointsMax);
  let fastest: { readonly name: string; readonly ratios: readonly number[] } | undefined;
  for (const { name, hour } of asGood) {
    const ratios = hour.p99MsBySeed.map((p99Ms, at) => ratio(best.hour.p99MsBySeed[at]!, p99Ms));
    if (fastest === undefined || median(ratios) > median(fastest.ratios)) fastest = { name, ratios };
  }
  const { name, ratios } = fastest ?? { name: '', ratios: [1] };
  const p99Behind = median(ratios) - 1;
  const isP99Behind = p99Behind > p99Max && ratios.every((each) => each > 1);
  const parts: string[] = [];
  if (pointsBehind > pointsMax) parts.push(`${pointsBehind.toFixed(1)} points behind ${most.name}`);
  const [least, most99] = [Math.min(...ratios), Math.max(...ratios)].map((each) => ((each - 1) * 100).toFixed(0));
  const bySeed = ratios.length > 1 ? ` (by seed ${least} to ${most99}%)` : '';
  if (isP99Behind) parts.push(`p99 ${(p99Behind * 100).toFixed(0)}% behind ${name}${bySeed}`);
  return { pointsBehind, p99Behind, isBehind: parts.length > 0, text: parts.join(', ') || 'not behind' };
}

/** If neither answered anything, neither is behind. */
const ratio = (a: number, b: number): number => (a === b ? 1 : a / b);
