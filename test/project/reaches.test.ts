/**
 * The scheduler's room stays one that can be changed: how often its parts reach into what others own, and how many files
 * name a kind of place. A number that falls is lowered here too; `scripts/count-reaches.ts` prints them, for older commits
 * as well.
 */
import { expect, test } from 'vitest';
import { kindFilesIn, reachesIn, sourcesHere } from '../../scripts/count-reaches.ts';

const sources = sourcesHere();

test('no more lines of the scheduler reach into its shared state', () => {
  const lines = [...reachesIn(sources).values()].reduce((sum, each) => sum + each, 0);
  expect(lines).toBeGreaterThan(0);
  expect(lines).toBeLessThanOrEqual(163);
});

test('no more files name a kind of place: another kind would be work in all of them', () => {
  expect(kindFilesIn(sources).sort()).toEqual([
    'src/host/calls/invoke-placed.ts',
    'src/host/calls/placement.ts',
    'src/host/dashboard/page/views/overview.tsx',
    'src/replay/simulator-flight.ts',
    'src/replay/simulator.ts',
  ]);
  expect(kindFilesIn(sources, true).length).toBeLessThanOrEqual(19);
});

test('a line that reaches and a file that names a kind of place are found', () => {
  const text = "const { gpus } = this.#state;\n  if (place === 'workers') return;\n  x = 'cpu-pool';";
  const made = [{ path: 'src/schedule/made.ts', text }];
  expect(reachesIn(made).get('src/schedule/made.ts')).toBe(1);
  expect(kindFilesIn(made)).toEqual(['src/schedule/made.ts']);
  expect(kindFilesIn([{ path: 'src/live/made.ts', text: "if (place === 'workers')" }], true)).toHaveLength(1);
});
