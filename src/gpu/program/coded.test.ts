/** Coded layers on disk: one file for each content, whichever functions have it. */
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { makeChain, type ChainOptions } from '../../../test/gpu/engine/chains.ts';
import { decodePack } from '../../coding/index.ts';
import { withCoding } from './coded.ts';
import type { WeightLayout } from './types.ts';

const layerWords = [2500, 4000, 0, 64, 9000];

let folder: string;
let made = 0;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-coded-files-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const layoutOf = (options: Partial<ChainOptions> = {}): WeightLayout =>
  makeChain({ folder, name: `chain${made++}`, layerWords, floats: true, ...options }).program.layout;

/** The files of a cache with what tells whether they were written again. */
async function filesIn(cache: string): Promise<ReadonlyMap<string, number>> {
  const names = await readdir(join(cache, 'coded'));
  return new Map(
    await Promise.all(names.map(async (name) => [name, (await stat(join(cache, 'coded', name))).ino] as const)),
  );
}

const pathsOf = (layout: WeightLayout): (string | undefined)[] => layout.layers.map(({ coded }) => coded?.source.path);

test('versions have the coded layers that they share from one file, and only a new head is coded', async () => {
  const cache = join(folder, 'versions');
  const shares = { base: 'versions', layers: layerWords.length - 1 };
  const first = await withCoding(layoutOf({ shares }), cache, { leastBytes: 0 });
  const before = await filesIn(cache);
  const second = await withCoding(layoutOf({ shares }), cache, { leastBytes: 0 });
  const after = await filesIn(cache);
  expect(pathsOf(second).slice(0, -1)).toEqual(pathsOf(first).slice(0, -1));
  expect(pathsOf(second).at(-1)).not.toBe(pathsOf(first).at(-1));
  for (const [name, ino] of before) expect(after.get(name)).toBe(ino);
  expect(after.size).toBe(before.size + 1);
});

test('functions that are prepared at once code a layer once', async () => {
  const cache = join(folder, 'at-once');
  const shares = { base: 'twins', layers: layerWords.length };
  const layouts = await Promise.all(
    Array.from({ length: 4 }, () => withCoding(layoutOf({ shares }), cache, { leastBytes: 0 })),
  );
  for (const layout of layouts) expect(pathsOf(layout)).toEqual(pathsOf(layouts[0]!));
  expect((await filesIn(cache)).size).toBe(layerWords.filter((words) => words > 0).length);
});

test('a layer that gains nothing is not coded a second time to find that out', async () => {
  const cache = join(folder, 'nothing');
  const layout = layoutOf({ floats: false });
  const [one, other] = [
    await withCoding(layout, cache, { leastBytes: 0 }),
    await withCoding(layout, cache, { leastBytes: 0 }),
  ];
  expect([...pathsOf(one), ...pathsOf(other)].every((path) => path === undefined)).toBe(true);
  for (const name of (await filesIn(cache)).keys()) expect((await readFile(join(cache, 'coded', name))).length).toBe(0);
});

test('a kept file with a changed directory, or one that was cut off, is coded again', async () => {
  const cache = join(folder, 'damaged');
  const layout = layoutOf();
  const { coded } = (await withCoding(layout, cache, { leastBytes: 0 })).layers[1]!;
  const { path } = coded!.source;
  const right = await readFile(path);
  const damage = fc.oneof(
    fc.nat(coded!.units * 32 * 8 + 32 * 8 - 1).map((bit) => {
      const bytes = Buffer.from(right);
      bytes[bit >> 3]! ^= 1 << (bit & 7);
      return bytes;
    }),
    fc.integer({ min: 1, max: right.byteLength - 256 }).map((bytes) => right.subarray(0, bytes)),
  );
  await fc.assert(
    fc.asyncProperty(damage, async (bytes) => {
      await writeFile(path, bytes);
      const again = (await withCoding(layout, cache, { leastBytes: 0 })).layers[1]!;
      expect(again.coded).toEqual(coded);
      expect((await readFile(path)).equals(right)).toBe(true);
    }),
    { numRuns: 30 },
  );
  expect(decodePack(right).byteLength).toBe(layout.layers[1]!.bytes);
});
