/** One word for one thing: words that docs/design.md replaced must not come back. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const root = join(import.meta.dirname, '../..');

/** Names that were removed from the source, each with its replacement. */
const retired: Readonly<Record<string, string>> = {
  Absences: 'FetchBackoff',
  ColdWay: 'LoadOption',
  ConfiguredSet: 'InstanceGroup',
  FailureBook: 'CircuitBreaker',
  GiveBacks: 'FreeQueue',
  GpuGround: 'GpuRuntime',
  GpuShell: 'LiveScheduler',
  GpuStanding: 'GpuFunctionState',
  GpuWish: 'InvocationOptions',
  HandOverRule: 'Pace',
  Happening: 'HostEvent',
  Happenings: 'EventLog',
  Ladder: 'plan variants',
  OfferBook: 'OfferCache',
  PartedRequests: 'SplitRequests',
  Patience: 'InvocationOptions',
  PoolMachine: 'PoolResources',
  ProfileShelf: 'ProfileStore',
  Rung: 'plan variant',
  Wakes: 'Timers',
  happening: 'event',
  happenings: 'events',
  hidingPrefix: 'overlapPrefix',
  rung: 'variant',
  rungs: 'variants',
};
/** Removed file names, likewise. */
const retiredFiles: Readonly<Record<string, string>> = {
  'absences.ts': 'fetch-backoff.ts',
  'hand-over-rule.ts': 'queue.ts',
  'happenings.ts': 'event-log.ts',
  'last-resort.ts': 'uncaught.ts',
  'live-beside.ts': 'compare-simulated.ts',
  'rungs.ts': 'plan-variants.ts',
};

const sources = readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' }).filter((file) =>
  /\.tsx?$/.test(file),
);

/** The retired words in a text, each as "old (now new)". */
function retiredIn(text: string): string[] {
  const words = new Set(text.match(/\w+/g));
  return Object.entries(retired).flatMap(([old, now]) => (words.has(old) ? [`${old} (now ${now})`] : []));
}

test('a retired word is found as a whole word', () => {
  expect(retiredIn('const shelf = new ProfileShelf();')).toEqual(['ProfileShelf (now ProfileStore)']);
  expect(retiredIn('const waked = myWakes;')).toEqual([]);
});

test('the source has none of the retired words', () => {
  const found = sources.flatMap((file) =>
    retiredIn(readFileSync(join(root, 'src', file), 'utf8')).map((word) => `${file}: ${word}`),
  );
  expect(found).toEqual([]);
});

test('no file has a retired name', () => {
  const found = sources.filter((file) => Object.hasOwn(retiredFiles, file.replace(/^.*\//, '')));
  expect(found).toEqual([]);
});

test('every word of the glossary is explained once', () => {
  const design = readFileSync(join(root, 'docs', 'design.md'), 'utf8');
  const [, glossary = ''] = /^## Glossary$([\s\S]*?)^## /m.exec(design) ?? [];
  const words = [...glossary.matchAll(/^\| ([a-z][a-z -]*?) +\|/gm)].map(([, word]) => word);
  expect(words.length).toBeGreaterThan(10);
  expect(new Set(words).size).toBe(words.length);
});
