import { expect, test } from 'vitest';
import type { Timeline } from '../../plan/index.ts';
import { coldStartTimeline } from './cold-start-timeline.ts';

const layer: Timeline['layers'][number] = {
  name: 'a',
  method: 'load',
  link: 0,
  resident: false,
  fromHost: false,
  issue: undefined,
  copy: { startMs: 0, endMs: 2 },
  migration: undefined,
  execution: { startMs: 2, endMs: 3 },
  stallMs: 2,
};

test('the lanes of a cold start are one for each link, NVLink if used, and the execution with its stalls', () => {
  const second: typeof layer = {
    ...layer,
    name: 'b',
    link: 2,
    copy: { startMs: 0, endMs: 3 },
    migration: { startMs: 3, endMs: 4 },
    execution: { startMs: 4, endMs: 5 },
    stallMs: 1,
  };
  const { name, note, lanes } = coldStartTimeline('pt', { latencyMs: 5, stallMs: 3, layers: [layer, second] }, 4e6);

  expect(name).toBe('pt');
  expect(note).toBe('stalls 3 ms, 4 MB on the GPU');
  expect(lanes.map((lane) => lane.name)).toEqual(['PCIe 0', 'PCIe 2', 'NVLink', 'Execution']);
  expect(lanes.at(-1)!.bars.map(({ look, startMs, endMs }) => [look, startMs, endMs])).toEqual([
    ['stall', 0, 2],
    ['gpu', 2, 3],
    ['stall', 3, 4],
    ['gpu', 4, 5],
  ]);
});
