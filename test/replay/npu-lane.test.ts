/** The kind of place that docs/extend.md adds to the scheduler; src/schedule/place.test.ts tries it as it tries the others. */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { policies, Scheduler, type SchedulerEvent } from '../../src/schedule/index.ts';
import { NpuLane } from '../support/npu-lane.ts';
import { offerSheet, smallGpus } from '../support/offers.ts';

test('calls that a GPU would answer late run on the NPU, whose switch between models counts', () => {
  const scheduler = new Scheduler({
    gpus: smallGpus(1, 100),
    cpu: null,
    others: [new NpuLane({ switchMs: 5 })],
    policy: policies.best,
  });
  const sheet = { ...offerSheet(1, { layers: [1], warmMs: 10 }), sloMs: 24, others: { npu: { latencyMs: 12 } } };
  const tell = (event: SchedulerEvent, nowMs: number) => scheduler.handle(event, nowMs);
  tell({ kind: 'function-added', functionIndex: 0, sheet }, 0);
  tell({ kind: 'function-added', functionIndex: 1, sheet }, 0);
  const arrive = (invocation: number, functionIndex: number, nowMs: number) =>
    tell({ kind: 'arrival', invocation, functionIndex }, nowMs).flatMap((action) =>
      action.kind === 'run' || action.kind === 'run-beside' || action.kind === 'wait' ? [action] : [],
    );
  arrive(9, 0, 0);
  tell({ kind: 'loaded', gpu: 0, functionIndex: 0 }, 1);
  tell({ kind: 'finished', invocation: 9 }, 100);
  // The GPU has 10 ms of work for each call; the third of one instant would be late there.
  for (const invocation of [0, 1]) arrive(invocation, 0, 100);
  expect(arrive(2, 0, 100)).toMatchObject([{ kind: 'run-beside', place: 'npu', loads: true, predictedEndMs: 117 }]);
  expect(scheduler.predictEnd(0, 'npu', 117)).toBe(129);
  expect(scheduler.predictEnd(1, 'npu', 117)).toBe(134);
  tell({ kind: 'finished', invocation: 2 }, 117);
  expect(scheduler.predictEnd(0, 'npu', 117)).toBe(129);
});

test.each(['npu-lane', 'npu-place'])('docs/extend.md has the code of %s.ts, which is tried', (name) => {
  const page = readFileSync(new URL('../../docs/extend.md', import.meta.url), 'utf8');
  const code = readFileSync(new URL(`../support/${name}.ts`, import.meta.url), 'utf8');
  const indented = code
    .replaceAll(/'\.\.\/\.\.\/src\/(\w+)\/index\.ts'/g, "'turntable/$1'")
    .replaceAll(/^(?=.)/gm, '   ');
  expect(page).toContain(indented);
});
