/**
 * Scenes drawn from a seed: machines, sizes, popularity, rates and SLOs that nobody chose. The scheduler is tuned in the
 * rows of `hours`; these say what that is worth elsewhere.
 */
import { OfferCache, paperMix, Xoshiro, type FunctionGroup, type Popularity } from '../../src/replay/index.ts';
import { schedulerGpus, wholeBytes } from '../../src/schedule/index.ts';
import type { Machine } from '../../src/hardware/index.ts';
import { bert, mmpp, namesOf, poisson } from './loads.ts';
import { h100x8, manyGpus, p3 } from './machines.ts';
import type { HoursRow } from './row.ts';

export interface DrawnScale {
  readonly scenes: number;
  readonly requests: number;
  readonly warmup: number;
}

/** By number: with the seed that says which scene it is. */
export const drawnRows = ({ scenes, ...scale }: DrawnScale, seed: number): HoursRow[] =>
  Array.from({ length: scenes }, (_, index) => ({
    name: `scene-${index}`,
    ...drawn(scale, new Xoshiro(seed * 1000 + index)),
  }));

const sizes = { small: 'resnet50', large: 'bert-large' } as const;

function drawn({ requests, warmup }: Omit<DrawnScale, 'scenes'>, random: Xoshiro): Omit<HoursRow, 'name'> {
  const between = (least: number, most: number): number => least * (most / least) ** random.uniform();
  const oneOf = <Item>(items: readonly [Item, ...Item[]]): Item => items[random.below(items.length)]!;
  const isIn = (share: number): boolean => random.uniform() < share;

  const machine = manyGpus(oneOf([2, 4, 8]), oneOf([p3, h100x8]));
  const groupsOf = oneOf<(count: number) => FunctionGroup[]>([bert, paperMix, twoSizes]);
  const cache = new OfferCache(machine, 'interleave');
  const [{ name: models, mean }, full] = [meanOf(cache, groupsOf), memoryBytes(machine)];
  const count = Math.max(4, Math.round(between(0.5, 4) * (full / mean.bytes)));
  const functions = groupsOf(count);
  const busyShare = between(0.1, 0.9);
  const ratePerS = (busyShare * machine.gpus.length * 1000) / mean.warmMs;
  const popularity = oneOf<Popularity>([
    { kind: 'uniform' },
    { kind: 'zipf', exponent: between(0.5, 1.3) },
    { kind: 'skewed', requestShare: between(0.5, 0.95), functionShare: between(0.02, 0.3) },
  ]);
  const load = { functions, ratePerS, requests: requests + warmup, popularity };
  const height = isIn(0.25) ? between(1.5, 4) : 1;
  // As a multiple of what a function's start takes that finds nothing; from one that only a warm run meets.
  const factors = isIn(0.5) ? [between(0.5, 8)] : Array.from({ length: 3 }, () => between(0.5, 30));
  const names = namesOf(functions);
  const admission = isIn(0.4) ? 'shed' : 'best-effort';
  const slos = factors.map((factor) => factor.toFixed(1)).join(', ');
  return {
    load:
      `${count} of ${models} at ${ratePerS.toFixed(0)}/s (lanes ${(busyShare * 100).toFixed(0)}% busy) on ${machine.name}, ` +
      `${popularityText(popularity)}${height > 1 ? `, bursts of ${height.toFixed(1)} times` : ''}, ` +
      `SLOs of ${slos} cold starts${admission === 'shed' ? ', shedding' : ''}`,
    machine,
    trace: height > 1 ? mmpp(load, height) : poisson(load),
    warmup,
    sloMsOf: (index) => factors[index % factors.length]! * costOf(cache, names[index]!.split('/')[0]!).coldMs,
    admission,
    classOf: (index) => `${factors[index % factors.length]!.toFixed(1)} cold starts`,
    seeds: 1,
  };
}

/** A few large functions beside many small ones. */
const twoSizes = (count: number): FunctionGroup[] => [
  { model: sizes.small, count: Math.ceil(count * 0.75) },
  { model: sizes.large, count: Math.floor(count * 0.25) },
];

const memoryBytes = (machine: Machine): number =>
  schedulerGpus(machine).reduce((sum, { capacityBytes }) => sum + capacityBytes, 0);

function costOf(cache: OfferCache, model: string): { bytes: number; warmMs: number; coldMs: number } {
  const offer = cache.offers(model)[0]!;
  return { bytes: wholeBytes(offer), warmMs: offer.warmMs, coldMs: offer.ways.at(-1)!.coldMs[0]! };
}

/** Of the functions that such groups have. */
function meanOf(cache: OfferCache, groupsOf: (count: number) => FunctionGroup[]) {
  const groups = groupsOf(36);
  const mean = (value: 'bytes' | 'warmMs'): number =>
    groups.reduce((sum, { model, count }) => sum + costOf(cache, model)[value] * count, 0) / 36;
  const name = groups.map(({ model, count }) => (groups.length === 1 ? model : `${model} (${count} of 36)`)).join(', ');
  return { name, mean: { bytes: mean('bytes'), warmMs: mean('warmMs') } };
}

function popularityText(popularity: Popularity): string {
  switch (popularity.kind) {
    case 'uniform':
      return 'called alike';
    case 'zipf':
      return `Zipf ${popularity.exponent.toFixed(1)}`;
    case 'skewed': {
      const [requests, functions] = [popularity.requestShare, popularity.functionShare].map((share) =>
        (share * 100).toFixed(0),
      );
      return `${requests}% of the calls to ${functions}% of the functions`;
    }
  }
}
