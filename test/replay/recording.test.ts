/** A recording represents its traffic: a replay leads to the same decisions. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { loadMachine } from '../../src/hardware/index.ts';
import {
  OfferCache,
  openTrace,
  poissonTrace,
  simulate,
  writeTrace,
  type EvictionRecord,
  type Outcome,
  type Trace,
} from '../../src/replay/index.ts';
import { policies } from '../../src/schedule/index.ts';

const machine = loadMachine('p3.8xlarge');
const book = new OfferCache(machine, 'interleave');

interface Decisions {
  readonly outcomes: Outcome[];
  readonly evictions: EvictionRecord[];
  readonly busy: (readonly [gpu: number, fromMs: number, toMs: number])[];
}

async function decisionsOf(trace: Trace): Promise<Decisions> {
  const decisions: Decisions = { outcomes: [], evictions: [], busy: [] };
  simulate(
    trace,
    { machine, policy: policies.best, sheetOf: () => book.sheet('bert-base', { sloMs: 100 }) },
    {
      outcome: (outcome) => void decisions.outcomes.push({ ...outcome }),
      eviction: (record) => void decisions.evictions.push({ ...record }),
      busy: (gpu, fromMs, toMs) => void decisions.busy.push([gpu, fromMs, toMs]),
    },
  );
  return decisions;
}

test.each([1, 2, 3])('traffic %i and its recording lead to the same decisions', async (seed) => {
  const folder = await mkdtemp(join(tmpdir(), 'turntable-recording-'));
  try {
    const functionNames = Array.from({ length: 200 }, (_, index) => `bert-base/${index}`);
    const traffic = poissonTrace({ functionNames, ratePerS: 120, requests: 3000, seed });
    const file = join(folder, 'recording.jsonl');
    await writeTrace(file, traffic);

    const [original, replayed] = [await decisionsOf(traffic), await decisionsOf(await openTrace(file))];

    expect(original.outcomes).toHaveLength(3000);
    expect(original.evictions.length).toBeGreaterThan(100);
    expect(replayed).toEqual(original);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
