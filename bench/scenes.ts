/** Scenes that a seed draws, each under every policy: how far is `best` behind where nobody tuned it? */
import type { Benchmark } from './benchmark.ts';
import { drawnRows, type DrawnScale } from './hours/drawn.ts';
import { playRows } from './hours.ts';

const full: DrawnScale = { scenes: 24, requests: 12_000, warmup: 6000 };
const smallScale: DrawnScale = { scenes: 3, requests: 100, warmup: 30 };

export const benchmark: Benchmark = {
  name: 'scenes',
  description: 'scenes drawn from the seed: how far the best policy is behind another where nobody tuned it',
  rowNames: () => drawnRows(full, 0).map(({ name }) => name),
  run: async (options) => await playRows(options, drawnRows(options.small ? smallScale : full, options.seed), full),
};
