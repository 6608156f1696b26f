import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { functionVersion } from '../../../test/host/fake-store.ts';
import type { InvokeOptions, PoolInput, PoolResult } from '../../cpu/index.ts';
import { tensorOf } from '../../tensor/index.ts';
import type { Ran } from '../calls/placement.ts';
import { placementText } from '../calls/placement.ts';
import { evenParts, nodesFor } from './nodes.ts';
import { RowCost } from './row-cost.ts';
import { RowSplit } from './row-split.ts';

describe('the time of a run by its rows', () => {
  test('the time of a run by its rows is unknown after runs of one length', () => {
    const cost = new RowCost();
    for (let run = 0; run < 100; run++) cost.observe(64, 10 + (run % 3));
    expect(cost.ms(64)).toBeUndefined();
  });

  test('the time of a run by its rows is the line through runs of different lengths', () => {
    const line = fc.record({
      fixedMs: fc.double({ min: 0, max: 50, noNaN: true }),
      perRowMs: fc.double({ min: 0, max: 5, noNaN: true }),
    });
    const lengths = fc.array(fc.integer({ min: 1, max: 512 }), { minLength: 2, maxLength: 50 });
    fc.assert(
      fc.property(line, lengths, fc.integer({ min: 1, max: 512 }), ({ fixedMs, perRowMs }, rows, asked) => {
        fc.pre(new Set(rows).size > 1);
        const cost = new RowCost();
        for (const count of rows) cost.observe(count, fixedMs + perRowMs * count);
        expect(cost.ms(asked)).toBeCloseTo(fixedMs + perRowMs * asked, 2);
      }),
    );
  });
});

/** On this CPU. */
const slowdownAt = (running: number): number => [1, 1.1, 2, 3][running - 1]!;

describe('the number of lanes that work on a request', () => {
  const wish = {
    rows: 64,
    msOf: (rows: number) => 2 + rows,
    overheadMs: 1,
    ratePerSecond: 0,
    lanes: 4,
    here: 4,
    slowdownAt: () => 1,
  };

  test('the number of lanes that work on a request is all of them if rows take the time and no other request arrives', () => {
    expect(nodesFor(wish)).toBe(4);
  });

  test('the number of lanes that work on a request is one if a part costs more than it saves', () => {
    expect(nodesFor({ ...wish, overheadMs: 70 })).toBe(1);
    expect(nodesFor({ ...wish, msOf: () => 20 })).toBe(1);
  });

  test('the number of lanes that work on a request is one if parts would take the lanes from other requests', () => {
    // Four lanes do 60 whole requests a second, or 53 in halves.
    expect(nodesFor({ ...wish, ratePerSecond: 55, msOf: (rows) => 10 + 0.88 * rows })).toBe(1);
    expect(nodesFor({ ...wish, ratePerSecond: 5, msOf: (rows) => 10 + 0.88 * rows })).toBe(4);
  });

  test('the number of lanes that work on a request is fewer where runs on this CPU slow each other down', () => {
    // Four at once on this CPU take three times as long: two parts are faster. Workers do not slow each other down.
    expect(nodesFor({ ...wish, slowdownAt })).toBe(2);
    expect(nodesFor({ ...wish, slowdownAt, here: 2 })).toBe(4);
    // Four whole requests a second leave little for others of the same, even in halves.
    const busy = { ...wish, slowdownAt, msOf: (rows: number) => 200 + rows };
    expect(nodesFor({ ...busy, ratePerSecond: 0 })).toBe(2);
    expect(nodesFor({ ...busy, ratePerSecond: 4 })).toBe(1);
  });

  test('the number of lanes that work on a request is at most the number of rows', () => {
    expect(nodesFor({ ...wish, rows: 2, msOf: (rows) => 100 * rows })).toBe(2);
    expect(nodesFor({ ...wish, rows: 1 })).toBe(1);
  });
});

test('parts are as even as possible and together have all rows', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 1000 }), fc.integer({ min: 1, max: 8 }), (rows, nodes) => {
      const parts = evenParts(rows, nodes);
      expect(parts.reduce((sum, count) => sum + count, 0)).toBe(rows);
      expect(Math.max(...parts) - Math.min(...parts)).toBeLessThanOrEqual(1);
    }),
  );
});

/** y = x + 1, on lanes controlled by hand: each run waits until it is released. */
class Lanes {
  readonly waiting: { readonly rows: number; readonly go: () => void; readonly fail: (error: Error) => void }[] = [];
  readonly given: AbortSignal[] = [];
  isHeld = false;
  nowMs = 0;

  readonly run = async (input: PoolInput, { signal }: InvokeOptions): Promise<Ran> => {
    const { tensors } = input as PoolInput & { kind: 'tensors' };
    const [x] = tensors;
    const rows = x!.shape[0]!;
    if (signal) this.given.push(signal);
    if (this.isHeld) {
      await new Promise<void>((go, fail) => {
        this.waiting.push({ rows, go, fail });
        signal?.addEventListener('abort', () => fail(new Error('given up')), { once: true });
      });
    }
    const values = new Float32Array(x!.data.buffer, x!.data.byteOffset, rows).map((value) => value + 1);
    const result: PoolResult = {
      output: { kind: 'tensors', tensors: [tensorOf('y', 'FP32', [rows, 1], values)] },
      timings: { queueMs: 0, loadMs: 0, preprocessMs: 0, inferMs: 10 * rows, postprocessMs: 0 },
      coldStart: false,
      batchSize: 1,
      instancePid: 1,
    };
    return { result, placement: { kind: 'cpu-pool', coldStart: false } };
  };
}

const input = (rows: number): PoolInput => ({
  kind: 'tensors',
  tensors: [
    tensorOf(
      'x',
      'FP32',
      [rows, 1],
      Float32Array.from({ length: rows }, (_, row) => row),
    ),
  ],
});

const values = ({ result }: Ran): number[] => {
  const { tensors } = result.output as { tensors: readonly { data: Uint8Array; shape: readonly number[] }[] };
  const { data, shape } = tensors[0]!;
  return Array.from(new Float32Array(data.buffer, data.byteOffset, shape[0]));
};
const plusOne = (rows: number): number[] => Array.from({ length: rows }, (_, row) => row + 1);

/** Runs the microtasks that are ready. */
const settle = async (): Promise<void> => {
  for (let turn = 0; turn < 50; turn++) await Promise.resolve();
};

describe('a request of several rows', () => {
  const rowsModel = {
    inputs: [{ name: 'x', datatype: 'FP32', shape: [-1, 1] }],
    outputs: [{ name: 'y', datatype: 'FP32', shape: [-1, 1] }],
  } as const;
  const version = functionVersion('rows', { metadata: rowsModel as never });
  function split(lanes: Lanes, count = 3): (rows: number) => Promise<Ran> {
    const own = new RowSplit({
      lanesOf: () => ({ lanes: count, here: count, roundTripMs: 1 }),
      now: () => lanes.nowMs,
    });
    return async (rows) => {
      // One a second: what a load does to the choice is tested above.
      lanes.nowMs += 1000;
      return await own.run(version, input(rows), rows, {}, lanes.run);
    };
  }

  test('a request of several rows runs in parts once runs have shown that this is faster, and comes back in order', async () => {
    const lanes = new Lanes();
    const run = split(lanes);
    for (let call = 0; call < 3; call++) expect(placementText((await run(7)).placement)).toBe('cpu pool warm');
    // If all requests have one length, halves of one are tried.
    expect(placementText((await run(7)).placement)).toMatch(/^2 parts: /);
    const ran = await run(7);
    expect(values(ran)).toEqual(plusOne(7));
    expect(placementText(ran.placement)).toBe(
      '3 parts: 3 rows on cpu pool warm, 2 rows on cpu pool warm, 2 rows on cpu pool warm',
    );
  });

  test('a request of several rows stays whole with one lane, for one row, and for a function without batching', async () => {
    const lanes = new Lanes();
    for (const [run, rows] of [
      [split(lanes, 1), 7],
      [split(lanes), 1],
    ] as const) {
      for (let call = 0; call < 6; call++) expect((await run(rows)).placement.parts).toBeUndefined();
    }
    const own = new RowSplit({ lanesOf: () => ({ lanes: 3, here: 3, roundTripMs: 1 }) });
    const alone = { ...version, rows: undefined };
    for (let call = 0; call < 6; call++)
      expect((await own.run(alone, input(7), 7, {}, lanes.run)).placement.parts).toBeUndefined();
  });

  async function trained(lanes: Lanes): Promise<(rows: number) => Promise<Ran>> {
    const run = split(lanes);
    for (let call = 0; call < 5; call++) await run(6);
    lanes.given.length = 0;
    lanes.isHeld = true;
    return run;
  }

  test('fails with the first part that fails, and cancels the others', async () => {
    const lanes = new Lanes();
    const run = await trained(lanes);
    const running = run(6);
    await settle();
    lanes.waiting[1]!.fail(new Error('no such kernel'));
    await expect(running).rejects.toThrow('no such kernel');
    expect(lanes.given.every(({ aborted }) => aborted)).toBe(true);
    expect(lanes.waiting).toHaveLength(3);
  });

  test('always runs whole once an output has had no row for each row of input', async () => {
    const lanes = new Lanes();
    let nowMs = 0;
    const own = new RowSplit({
      lanesOf: () => ({ lanes: 3, here: 3, roundTripMs: 1 }),
      now: () => (nowMs += 1000),
    });
    const mean = async (part: PoolInput, options: InvokeOptions): Promise<Ran> => {
      const ran = await lanes.run(part, options);
      const one = tensorOf('y', 'FP32', [1], Float32Array.of(1));
      return { ...ran, result: { ...ran.result, output: { kind: 'tensors', tensors: [one] } } };
    };
    for (let call = 0; call < 8; call++)
      expect((await own.run(version, input(6), 6, {}, mean)).placement.parts).toBeUndefined();
    // One of eight requests was tried in two parts.
    expect(lanes.given).toHaveLength(2);
  });
});
