/** Profiles of layers on disk. */
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { parseLayerProfile, type LayerProfile } from '../../profile/index.ts';
import { areOf, ProfileStore } from './plans.ts';

const layers = [
  { name: 'first', kind: 'linear', bytes: 400, load: 2, exec: 1, dha: 3 },
  { name: 'second', kind: 'linear', bytes: 800, load: 4, exec: 1, dha: 5 },
];
const profile: LayerProfile = { unit: 'ms', layers };
let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-plans-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const changes: [string, (text: string) => string][] = [
  ['is cut off', (text) => text.slice(0, text.length / 2)],
  ['is empty', () => ''],
  ['is null', () => 'null'],
  ['is of another machine', (text) => text.replace('one V100', 'one H200')],
  ['lacks a layer', (text) => withLayers(text, layers.slice(1))],
  ['has a layer of another name', (text) => text.replace('"second"', '"third"')],
  ['has a layer of another size', (text) => text.replace('800', '801')],
];

const withLayers = (text: string, kept: typeof layers): string =>
  JSON.stringify({ ...(JSON.parse(text) as object), profile: { ...profile, layers: kept } });

test.each(changes)('a profile that %s is none, so that it is measured again', async (_what, change) => {
  const shelf = new ProfileStore(folder, 'one V100', parseLayerProfile);
  await shelf.keep('structure', 'bert', profile);
  expect(await shelf.find('structure', areOf(layers))).toEqual(profile);
  const path = join(folder, (await readdir(folder))[0]!);
  await writeFile(path, change(await readFile(path, 'utf8')));
  expect(await shelf.find('structure', areOf(layers))).toBeUndefined();
});

test('functions of one model keep its profile at the same time', async () => {
  const shelf = new ProfileStore(folder, 'one V100', parseLayerProfile);
  await Promise.all(Array.from({ length: 20 }, (_, index) => shelf.keep('shared', `bert-${index}`, profile)));
  expect(await shelf.find('shared', areOf(layers))).toEqual(profile);
  expect((await readdir(folder)).filter((name) => name.startsWith('.'))).toEqual([]);
});
