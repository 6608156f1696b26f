import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { poissonTrace } from '../generate/arrivals.ts';
import type { Trace, TraceInvocation } from '../types.ts';
import { InvocationBuffer } from './invocation-buffer.ts';
import { openTrace } from './open.ts';
import { InvocationSorter } from './sorter.ts';
import { TraceWriter, writeTrace } from './trace-writer.ts';
import { foldByTotal, limitTrace, minuteMs, scaleTrace, sliceTrace, summarizeTrace } from './transform.ts';

const folder = mkdtempSync(join(tmpdir(), 'turntable-traces-'));
afterAll(() => rmSync(folder, { recursive: true }));

let files = 0;
const fileOf = (text: string | Uint8Array, extension = 'csv'): string => {
  const file = join(folder, `${files++}.${extension}`);
  writeFileSync(file, text);
  return file;
};
const newFile = (extension: string): string => join(folder, `${files++}.${extension}`);
const names = (count: number): string[] => Array.from({ length: count }, (_, index) => `f${index}`);
const inOrder = (invocations: readonly TraceInvocation[]): boolean =>
  invocations.every(({ arrivalMs }, index) => index === 0 || invocations[index - 1]!.arrivalMs <= arrivalMs);

describe("Turntable's own trace", () => {
  it('round-trips to the last bit, with its functions in their places', async () => {
    const trace = poissonTrace({ functionNames: names(9), ratePerS: 50, requests: 300, seed: 5 });
    const file = newFile('jsonl');
    await writeTrace(file, trace, 'a test');
    const opened = await openTrace(file);
    expect(opened.functionNames).toEqual(trace.functionNames);
    expect([...opened.invocations()]).toEqual([...trace.invocations()]);
    // A second time, as after a summary or for another policy.
    expect([...opened.invocations()]).toEqual([...trace.invocations()]);
  });

  it("Turntable's own trace is sorted by arrival when it was recorded in order of ends", async () => {
    const file = newFile('jsonl');
    const writer = await TraceWriter.create(file, { recorded_at: '2026-01-01T00:00:00.000Z' });
    writer.write({ arrival_ms: 7, function: 'b', duration_ms: 1, outcome: 'in_slo', placement: 'gpu0 warm' });
    writer.write({ arrival_ms: 2, function: 'a', duration_ms: 9.5, outcome: 'late' });
    writer.write({ arrival_ms: 7, function: 'a', outcome: 'shed' });
    await writer.close();
    expect(writer.counts).toEqual({ written: 3, dropped: 0 });
    const opened = await openTrace(file);
    expect([...opened.invocations()]).toEqual([
      { arrivalMs: 2, functionIndex: 1, durationMs: 9.5 },
      { arrivalMs: 7, functionIndex: 0, durationMs: 1 },
      { arrivalMs: 7, functionIndex: 1 },
    ]);
  });

  it("Turntable's own trace does not overwrite another", async () => {
    await expect(TraceWriter.create(fileOf('precious', 'jsonl'))).rejects.toThrow(/cannot be written/);
  });

  it("Turntable's own trace may end in the middle of a line, as after a kill, but must not contain such a line elsewhere", async () => {
    const heading = '{"format":"turntable-trace","version":1}\n';
    const cut = await openTrace(fileOf(`${heading}{"arrival_ms":1,"function":"a"}\n{"arrival_ms":2,"func`, 'jsonl'));
    expect([...cut.invocations()]).toHaveLength(1);
    await expect(openTrace(fileOf(`${heading}{"arrival_ms":2,"func\n`, 'jsonl'))).rejects.toThrow(/line 2: .* is not JSON/);
  });

  it.each([
    ['{"format":"other","version":1}\n', /line 1, format: '"other"' is not "turntable-trace"/],
    ['{"format":"turntable-trace","version":2}\n', /line 1, version: this Turntable reads version 1 .* not '2'/],
    ['{"format":"turntable-trace","version":1,"functions":[1]}\n', /line 1, functions: .* is not a list of names/],
    ['{"format":"turntable-trace","version":1}\n{"function":"a"}\n', /line 2, arrival_ms: nothing is not a number/],
    ['{"format":"turntable-trace","version":1}\n{"arrival_ms":-1,"function":"a"}\n', /line 2, arrival_ms: '-1'/],
    ['{"format":"turntable-trace","version":1}\n{"arrival_ms":1e400,"function":"a"}\n', /line 2, arrival_ms: 'Infinity'/],
    ['{"format":"turntable-trace","version":1}\n{"arrival_ms":1}\n', /line 2, function: nothing is not the name/],
    ['{"format":"turntable-trace","version":1}\n{"arrival_ms":1,"function":"a","duration_ms":"x"}\n', /duration_ms: '"x"'/],
    ['{"format":"turntable-trace","version":1}\n{"arrival_ms":1,"function":"a","slo_ms":0}\n', /slo_ms: '0' is not a number of milliseconds above 0/],
    ['{"format":"turntable-trace","version":1}\n[1]\n7\n', /line 2, arrival_ms/],
  ])("Turntable's own trace is refused where it is malformed: %j", async (text, message) => {
    await expect(openTrace(fileOf(text, 'jsonl'))).rejects.toThrow(message);
  });
});

describe('opening a trace', () => {
  const text = '{"format":"turntable-trace","version":1}\n{"arrival_ms":1,"function":"a"}\n';

  it('opening a trace reads a file that is packed', async () => {
    expect([...(await openTrace(fileOf(gzipSync(text), 'jsonl.gz'))).invocations()]).toHaveLength(1);
  });

  it('opening a trace skips the byte order mark that spreadsheets write', async () => {
    expect([...(await openTrace(fileOf(`\uFEFF${text}`))).invocations()]).toHaveLength(1);
  });

  it('opening a trace names a file that is no trace, is empty or does not exist, and the converter of others', async () => {
    for (const first of ['time,what', '{"time":1,"what":"x"}', '{"time":']) {
      await expect(openTrace(fileOf(`${first}\n`))).rejects.toThrow(
        /line 1: '(time|\{"time").*' begins no trace of Turntable's, .*turntable-trace.*; scripts\/convert-trace\.ts converts/,
      );
    }
    await expect(openTrace(fileOf(''))).rejects.toThrow(/is empty/);
    await expect(openTrace(join(folder, 'missing.jsonl'))).rejects.toThrow(/missing.jsonl cannot be read/);
    await expect(openTrace(fileOf('not packed', 'jsonl.gz'))).rejects.toThrow(/cannot be read: incorrect header check/);
  });

  it('opening a trace scales it to a rate and folds it onto fewer functions, most invoked first', async () => {
    const file = newFile('jsonl');
    const popularity = { kind: 'zipf', exponent: 1 } as const;
    await writeTrace(file, poissonTrace({ functionNames: names(30), ratePerS: 10, requests: 2000, seed: 1, popularity }));
    const opened = await openTrace(file, { ratePerS: 20, fold: 7, seed: 1 });
    const { requests, totals } = summarizeTrace(opened);
    expect(opened).toMatchObject({ fileFunctions: 30, hasOwnSlo: false });
    expect(opened.functionNames).toHaveLength(7);
    expect(opened.requestsExpected).toBeGreaterThan(3800);
    expect(Math.abs(requests - opened.requestsExpected)).toBeLessThan(150);
    expect(totals[0]!).toBeGreaterThan(totals[6]!);
  });
});

describe('a trace of which nothing is left', () => {
  const heading = '{"format":"turntable-trace","version":1}\n';
  const calls = `${heading}{"arrival_ms":0,"function":"f"}\n{"arrival_ms":500000,"function":"f"}\n`;

  it.each([
    [calls, { fromMs: 600_000 }, /no invocation falls between 10 min 0 s and its end: the first comes at 0 ms, the last at 8 min 20 s$/],
    [calls, { fromMs: 1000, toMs: 2000 }, /no invocation falls between 1 s and 2 s: the first/],
    [calls, { ratePerS: 1e-9 }, /none of its invocations is left at 1e-9 a second$/],
    [heading, {}, / has no invocation$/],
    [heading, { fold: 2, fromMs: 5 }, / has no invocation$/],
  ])('a trace of which nothing is left is refused with the reason: %j %j', async (text, options, message) => {
    await expect(openTrace(fileOf(text, 'jsonl'), options)).rejects.toThrow(message);
  });
});

describe('sorting invocations', () => {
  it('sorting invocations is by arrival, and by order of adding at one instant, whether in memory or over runs on disk', () => {
    const maybe = fc.oneof(fc.constant(NaN), fc.nat(99));
    const invocation = fc.tuple(fc.nat(50), fc.nat(9), maybe, maybe);
    fc.assert(
      fc.property(fc.array(invocation, { maxLength: 80 }), fc.integer({ min: 1, max: 100 }), (added, runLength) => {
        const sorter = new InvocationSorter(runLength);
        for (const columns of added) sorter.add(...columns);
        const sorted = sorter.finish();
        const expected = added
          .map(([arrivalMs, functionIndex, durationMs, sloMs]) => ({
            arrivalMs,
            functionIndex,
            ...(Number.isNaN(durationMs) ? undefined : { durationMs }),
            ...(Number.isNaN(sloMs) ? undefined : { sloMs }),
          }))
          .toSorted((a, b) => a.arrivalMs - b.arrivalMs);
        expect([...sorted()]).toEqual(expected);
        expect([...sorted()]).toEqual(expected);
      }),
    );
  });

  it('sorting invocations of runs longer than one reading gives every invocation once', () => {
    const sorter = new InvocationSorter(5000);
    for (let index = 0; index < 12_345; index++) sorter.add((index * 7919) % 12_345, index, index);
    const seen = new Set<number>();
    let lastMs = -1;
    for (const { arrivalMs, functionIndex } of sorter.finish()()) {
      expect(arrivalMs).toBeGreaterThanOrEqual(lastMs);
      lastMs = arrivalMs;
      seen.add(functionIndex);
    }
    expect(seen.size).toBe(12_345);
  });

  it('sorting invocations works with all arrivals but one at a single instant', () => {
    const buffer = new InvocationBuffer(2);
    for (let index = 0; index < 500; index++) buffer.push(index === 250 ? 1e9 : 500 - (index % 2), index, NaN);
    buffer.sort();
    const sorted = Array.from({ length: 500 }, (_, index) => buffer.at(index));
    expect(sorted).toEqual(sorted.toSorted((a, b) => a.arrivalMs - b.arrivalMs));
    expect(sorted[499]?.functionIndex).toBe(250);
  });
});

/** Invocations by minute and function, each counted `weight` times. */
const countsOf = (each: Iterable<TraceInvocation>, weight: number): Map<string, number> => {
  const found = new Map<string, number>();
  for (const { arrivalMs, functionIndex } of each) {
    const key = `${Math.floor(arrivalMs / minuteMs)} ${functionIndex}`;
    found.set(key, (found.get(key) ?? 0) + weight);
  }
  return found;
};

describe('transforming a trace', () => {
  const trace = poissonTrace({ functionNames: names(6), ratePerS: 20, requests: 4000, seed: 8 });

  it('transforming a trace by a factor keeps order and comes near the wanted count', () => {
    fc.assert(
      fc.property(fc.double({ min: 0.05, max: 3, noNaN: true }), fc.nat(), (factor, seed) => {
        const scaled = [...scaleTrace(trace, factor, seed).invocations()];
        expect(inOrder(scaled)).toBe(true);
        // One more copy is a Bernoulli trial with variance 1/4 at most: six deviations.
        expect(Math.abs(scaled.length - 4000 * factor)).toBeLessThan(6 * Math.sqrt(4000 / 4) + 1);
      }),
      { numRuns: 20 },
    );
  });

  it('transforming a trace by a whole factor has so many times the requests of each function in each minute', () => {
    expect(countsOf(scaleTrace(trace, 3, 1).invocations(), 1)).toEqual(countsOf(trace.invocations(), 3));
  });

  it('transforming a trace by a factor keeps bursts as short as they were', () => {
    // Ten calls within 9 ms, and nothing for the rest of each second.
    const bursts: Trace = {
      functionNames: names(1),
      *invocations() {
        for (let burst = 0; burst < 30; burst++) {
          for (let call = 0; call < 10; call++) {
            yield { arrivalMs: 500 + burst * 1000 + call, functionIndex: 0, sloMs: 7, durationMs: 3 };
          }
        }
      },
    };
    const scaled = [...scaleTrace(bursts, 4, 1).invocations()];
    expect(scaled).toHaveLength(1200);
    expect(scaled.every(({ sloMs, durationMs }) => sloMs === 7 && durationMs === 3)).toBe(true);
    const within = scaled.filter(({ arrivalMs }) => arrivalMs % 1000 >= 500 && arrivalMs % 1000 <= 509).length;
    // The first and the last call of a burst can spread over half the pause beside them.
    expect(within / 1200).toBeGreaterThan(0.8);
  });

  it('transforming a trace by a factor keeps simultaneous calls simultaneous', () => {
    const together: Trace = {
      functionNames: names(1),
      *invocations() {
        for (let call = 0; call < 24; call++) yield { arrivalMs: 1000, functionIndex: 0 };
      },
    };
    const scaled = [...scaleTrace(together, 2, 1).invocations()];
    expect(scaled.filter(({ arrivalMs }) => arrivalMs === 1000).length).toBeGreaterThanOrEqual(46);
  });

  it('transforming a trace by a window and a limit takes the invocations in it', () => {
    const all = [...trace.invocations()];
    const sliced = [...sliceTrace(trace, 10_000, 20_000).invocations()];
    const expected = all.filter(({ arrivalMs }) => arrivalMs >= 10_000 && arrivalMs < 20_000);
    expect(sliced.map(({ arrivalMs }) => arrivalMs)).toEqual(expected.map(({ arrivalMs }) => arrivalMs - 10_000));
    expect([...limitTrace(trace, 7).invocations()]).toEqual(all.slice(0, 7));
    expect([...limitTrace(trace, 0).invocations()]).toEqual([]);
  });

  it('folds as the artifact: sorted by invocations, position modulo the count', () => {
    const folded = foldByTotal(names(5), Float64Array.of(1, 50, 3, 40, 2), 2);
    expect(folded.names).toEqual(['f1', 'f3']);
    expect([...folded.foldedIndex]).toEqual([0, 0, 0, 1, 1]);
  });
});
