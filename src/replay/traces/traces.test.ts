import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { azureLikeRows, writeAzure2019, writeAzure2021 } from '../../../test/support/azure-traces.ts';
import { azureLikeTrace } from '../generate/azure-like.ts';
import { poissonTrace } from '../generate/arrivals.ts';
import type { Trace, TraceInvocation } from '../types.ts';
import { readAzure2019 } from './azure-2019.ts';
import { InvocationBuffer } from './invocation-buffer.ts';
import { foldByTotal, type MinuteTable } from './minute-table.ts';
import { openTable, openTrace, traceFormatOf } from './open.ts';
import { minuteMs } from './place.ts';
import { InvocationSorter } from './sorter.ts';
import { TraceWriter, writeTrace } from './trace-writer.ts';
import { limitTrace, scaleTrace, sliceTrace, summarizeTrace } from './transform.ts';

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
const cells = (table: MinuteTable): number[][] => {
  const rows = table.functionNames.map(() => Array<number>(table.minutes).fill(0));
  for (let minute = 0; minute < table.minutes; minute++) {
    table.readMinute(minute, (index, count) => {
      rows[index]![minute] = count;
    });
  }
  return rows;
};

const rowsOf = (counts: readonly (readonly number[])[]) =>
  counts.map((row, index) => ({ owner: 'o', app: 'a', name: `f${index}`, trigger: 'http', counts: row }));

const counted = (trace: Iterable<TraceInvocation>, fromMs: number, toMs: number): number[] => {
  const totals = Array<number>(10).fill(0);
  for (const { arrivalMs, functionIndex } of trace) {
    if (arrivalMs >= fromMs && arrivalMs < toMs) totals[functionIndex]!++;
  }
  return totals;
};

describe('a trace of Azure Functions 2019', () => {
  it('a trace of Azure Functions 2019 returns by minute the counts written by function', async () => {
    const count = fc.oneof(fc.constant(0), fc.nat(9), fc.nat(2 ** 40));
    const table = fc
      .nat({ max: 5 })
      .chain((minutes) => fc.array(fc.array(count, { minLength: minutes + 1, maxLength: minutes + 1 }), { maxLength: 20 }));
    await fc.assert(
      fc.asyncProperty(table, async (counts) => {
        const minutes = counts[0]?.length ?? 3;
        const file = newFile('csv');
        await writeAzure2019(file, minutes, rowsOf(counts));
        const read = await readAzure2019(file);
        expect(cells(read)).toEqual(counts);
        expect([...read.totals]).toEqual(counts.map((row) => row.reduce((sum, each) => sum + each, 0)));
      }),
      { numRuns: 30 },
    );
  });

  it('a trace of Azure Functions 2019 keeps its counts on disk when they are too many for memory', async () => {
    // 6,000 functions with two bytes a cell overflow the 2 KiB of each minute several times.
    const counts = Array.from({ length: 6000 }, (_, row) => [row % 3, 1000 + row, 0, row % 2 === 0 ? 0 : 7]);
    const file = newFile('csv');
    await writeAzure2019(file, 4, rowsOf(counts));
    expect(cells(await readAzure2019(file))).toEqual(counts);
  });

  it('a trace of Azure Functions 2019 is the generated trace again, invocation for invocation', async () => {
    const options = { functionNames: names(40), ratePerS: 5, minutes: 12, seed: 3 };
    const file = newFile('csv');
    await writeAzure2019(file, options.minutes, azureLikeRows(options));
    const opened = await openTrace(file, { seed: options.seed });
    expect([...opened.invocations()]).toEqual([...azureLikeTrace(options).invocations()]);
  });

  it('arrives in order, with the counts of each minute, wherever arrivals are placed', async () => {
    const counts = [
      [3, 0, 5],
      [0, 2, 5],
      [1, 1, 1],
    ];
    const file = newFile('csv');
    await writeAzure2019(file, 3, rowsOf(counts));
    for (const placement of ['uniform', 'even'] as const) {
      const invocations = [...(await openTrace(file, { placement, seed: 9 })).invocations()];
      expect(inOrder(invocations)).toBe(true);
      const found = counts.map((row) => row.map(() => 0));
      for (const { arrivalMs, functionIndex } of invocations) {
        found[functionIndex]![Math.floor(arrivalMs / minuteMs)]!++;
      }
      expect(found).toEqual(counts);
    }
  });

  it('a trace of Azure Functions 2019 is scaled to a rate and folded onto fewer functions, most invoked first', async () => {
    const counts = Array.from({ length: 30 }, (_, row) => Array<number>(20).fill((row % 5) * 10));
    const file = newFile('csv');
    await writeAzure2019(file, 20, rowsOf(counts));
    const opened = await openTrace(file, { ratePerS: 2, fold: 7, seed: 1 });
    const { requests, totals } = summarizeTrace(opened);
    expect(opened.functionNames).toHaveLength(7);
    expect(opened.requestsExpected).toBe(2400);
    expect(Math.abs(requests - 2400)).toBeLessThan(150);
    expect(totals[0]!).toBeGreaterThan(totals[6]!);
  });

  it('a trace of Azure Functions 2019 keeps the share of rare functions when it is scaled down', async () => {
    // A quarter of one invocation a minute is rounded down to none, as in the artifact.
    const file = newFile('csv');
    await writeAzure2019(file, 100, rowsOf(Array.from({ length: 40 }, () => Array<number>(100).fill(1))));
    const kept = summarizeTrace(await openTrace(file, { ratePerS: 0.25 * (40 / 60), seed: 1 })).requests;
    // 4,000 draws with probability 1/4: 1,000 and six deviations.
    expect(Math.abs(kept - 1000)).toBeLessThan(6 * Math.sqrt(4000 * 0.25 * 0.75));
  });

  it('a trace of Azure Functions 2019 reads a part of it as the same part of the whole', async () => {
    const options = { functionNames: names(10), ratePerS: 3, minutes: 8, seed: 4 };
    const file = newFile('csv');
    await writeAzure2019(file, options.minutes, azureLikeRows(options));
    const whole = await openTrace(file);
    const part = await openTrace(file, { fromMs: 2 * minuteMs, toMs: 5 * minuteMs });
    expect(counted(part.invocations(), 0, Infinity)).toEqual(
      counted(whole.invocations(), 2 * minuteMs, 5 * minuteMs),
    );
    expect(Math.max(...Array.from(part.invocations(), ({ arrivalMs }) => arrivalMs))).toBeLessThan(3 * minuteMs);
  });

  it("a trace of Azure Functions 2019 as the artifact: counts rounded down, the whole file's mean, and its own arrivals", async () => {
    // 0.9 of 10 and of 1: the artifact keeps 9 and 0.
    const counts = [Array<number>(10).fill(10), Array<number>(10).fill(1)];
    const file = newFile('csv');
    await writeAzure2019(file, 10, rowsOf(counts));
    const opened = await openTrace(file, { ratePerS: (11 / 60) * 0.9, asArtifact: true, toMs: 5 * minuteMs });
    const invocations = [...opened.invocations()];
    expect(new Set(invocations.map(({ functionIndex }) => functionIndex))).toEqual(new Set([0]));
    // Each minute is drawn with seed 0, so all are alike.
    const first = invocations.filter(({ arrivalMs }) => arrivalMs < minuteMs).map(({ arrivalMs }) => arrivalMs);
    const second = invocations
      .filter(({ arrivalMs }) => arrivalMs >= minuteMs && arrivalMs < 2 * minuteMs)
      .map(({ arrivalMs }) => arrivalMs - minuteMs);
    expect(first.length).toBeGreaterThan(0);
    expect(second).toHaveLength(first.length);
    for (const [index, atMs] of first.entries()) expect(second[index]).toBeCloseTo(atMs, 6);
  });

  it.each([
    ['HashOwner,HashApp,HashFunction,Trigger,1,3\n', /line 1, column 6: the title is '3', not the minute '2'/],
    ['HashOwner,HashApp,HashFunction,Trigger,1,2\no,a,f,http,1\n', /line 2: the row has 1 minutes, but the header has 2/],
    ['HashOwner,HashApp,HashFunction,Trigger,1,2\no,a,f,http,1,2,3\n', /line 2: the row has more than the 2 minutes/],
    ['HashOwner,HashApp,HashFunction,Trigger,1,2\no,a,f,http,1,-2\n', /line 2, minute 2: '-2' is not a whole number/],
    ['HashOwner,HashApp,HashFunction,Trigger,1,2\no,a,f,http,1,2.5\n', /line 2, minute 2: '2\.5' is not a whole number/],
    ['HashOwner,HashApp,HashFunction,Trigger,1,2\no,a,f,http,few,2\n', /line 2, minute 1: 'few' is not a whole number/],
    ['HashOwner,HashApp,HashFunction,Trigger,1\no,a,f,http,1e300\n', /more than a count can be/],
    ['HashOwner,HashApp,HashFunction,Trigger,1,2\n\no,a,,http,1,1\n', /line 3, HashFunction: the name .* is empty/],
    ['HashOwner,HashApp,HashFunction,Trigger,1,2\no,a\n', /line 2, HashApp: the row ends here/],
    ['HashOwner,HashApp,HashFunction,Trigger,1\no,a,f,http,99999999999999999999\n', /more than a count can be/],
  ])('a trace of Azure Functions 2019 is refused where it is malformed: %j', async (text, message) => {
    await expect(openTrace(fileOf(text))).rejects.toThrow(message);
  });
});

describe('a table of minutes that another tool wrote', () => {
  const notations: readonly ((count: number) => string)[] = [
    String,
    (count) => count.toFixed(1),
    (count) => `${count}.`,
    (count) => count.toExponential(),
    (count) => ` +${count} `,
    (count) => `"${count}"`,
  ];
  const gaps = ['', ' ', 'NaN', 'nan', 'NULL', '<NA>', '""'];
  const cell = fc.oneof(
    fc.record({ count: fc.nat(20), written: fc.constantFrom(...notations) }),
    fc.constantFrom(...gaps),
  );

  it('a table of minutes that another tool wrote has its counts in any notation of a whole number, and gaps that count as 0 with a warning', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(cell, { minLength: 1, maxLength: 8 }), async (cells) => {
        const header = ['HashOwner,HashApp,HashFunction,Trigger', ...cells.map((_, index) => index + 1)].join(',');
        const row = cells.map((each) => (typeof each === 'string' ? each : each.written(each.count)));
        const file = fileOf(`${header}\no,a,f,http,${row.join(',')}\no,a,always,http,${row.map(() => 1).join(',')}\n`);
        const table = await readAzure2019(file);
        const wanted = cells.map((each) => (typeof each === 'string' ? 0 : each.count));
        const read = cells.map((_, minute) => {
          let found = 0;
          table.readMinute(minute, (index, count) => void (index === 0 && (found = count)));
          return found;
        });
        expect(read).toEqual(wanted);
        const empty = cells.filter((each) => typeof each === 'string').length;
        expect((await openTrace(file)).warnings).toEqual(
          empty === 0 ? [] : [`empty minutes in the trace, which count as no invocation: ${empty}.`],
        );
      }),
      { numRuns: 40 },
    );
  });
});

describe('a trace of Azure Functions 2021', () => {
  it('a trace of Azure Functions 2021 with seconds since 1970 begins with its earliest call', async () => {
    const opened = await openTrace(fileOf('app,func,end_timestamp,duration\na,f,1612137602.5,0.5\na,f,1612137601,1\n'));
    expect([...opened.invocations()]).toEqual([
      { arrivalMs: 0, functionIndex: 0, durationMs: 1000 },
      { arrivalMs: 2000, functionIndex: 0, durationMs: 500 },
    ]);
  });

  it('arrives in order, whatever the order of rows, at the end minus the duration', async () => {
    const file = fileOf('app,func,end_timestamp,duration\r\na,late,9.5,0.5\r\na,early,3,2.75\r\na,before,1,2\r\n');
    const opened = await openTrace(file);
    expect(opened.functionNames).toEqual(['late', 'early', 'before']);
    expect([...opened.invocations()]).toEqual([
      { arrivalMs: 0, functionIndex: 2, durationMs: 2000 },
      { arrivalMs: 250, functionIndex: 1, durationMs: 2750 },
      { arrivalMs: 9000, functionIndex: 0, durationMs: 500 },
    ]);
  });

  it('a trace of Azure Functions 2021 is the generated trace again, to a microsecond', async () => {
    const trace = poissonTrace({ functionNames: names(5), ratePerS: 100, requests: 500, seed: 2 });
    const file = newFile('csv');
    await writeAzure2021(file, trace.functionNames, trace.invocations());
    const written = [...trace.invocations()];
    const firstMs = written[0]!.arrivalMs;
    const opened = await openTrace(file);
    const read = [...opened.invocations()];
    expect(read).toHaveLength(written.length);
    for (const [index, { arrivalMs, functionIndex }] of written.entries()) {
      expect(read[index]!.arrivalMs).toBeCloseTo(arrivalMs - firstMs, 3);
      expect(opened.functionNames[read[index]!.functionIndex]).toBe(`f${functionIndex}`);
    }
  });

  it.each([
    ['a,f,1\n', /line 2: the row has 3 fields instead of 4/],
    ['a,f,1,2,3\n', /line 2: the row has 5 fields instead of 4/],
    ['a,f,1,2\na,f,soon,2\n', /line 3, end_timestamp: 'soon' is not a number of seconds/],
    ['a,f,1,\n', /line 2, duration: '' is not a number of seconds/],
    ['a,f,1,-2\n', /line 2, duration: '-2' is less than no time/],
    ['a,,1,2\n', /line 2, func: the name of the function is empty/],
  ])('a trace of Azure Functions 2021 is refused where it is malformed: %j', async (rows, message) => {
    await expect(openTrace(fileOf(`app,func,end_timestamp,duration\n${rows}`))).rejects.toThrow(message);
  });
});

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
  it('detects the format from the first line, packed or not', async () => {
    const text = 'app,func,end_timestamp,duration\na,f,1,1\n';
    expect(await traceFormatOf(fileOf(text))).toBe('azure-2021');
    const packed = fileOf(gzipSync(text), 'csv.gz');
    expect(await traceFormatOf(packed)).toBe('azure-2021');
    expect([...(await openTrace(packed)).invocations()]).toHaveLength(1);
  });

  it('skips the byte order mark that spreadsheets write', async () => {
    const text = '\uFEFFapp,func,end_timestamp,duration\na,f,1,1\n';
    expect([...(await openTrace(fileOf(text))).invocations()]).toHaveLength(1);
  });

  it('opening a trace names a file that is no trace, is empty or does not exist', async () => {
    await expect(openTrace(fileOf('time,what\n'))).rejects.toThrow(/line 1: 'time,what' begins no trace/);
    await expect(openTrace(fileOf('{"time":1,"what":"x"}\n'))).rejects.toThrow(
      /line 1: '\{"time":1,"what":"x"\}' begins no trace: .*2019 .*2021 .*LLM .*BurstGPT .*Mooncake .*turntable-trace/,
    );
    await expect(openTrace(fileOf(''))).rejects.toThrow(/is empty/);
    await expect(openTrace(join(folder, 'missing.csv'))).rejects.toThrow(/missing.csv cannot be read/);
    await expect(openTrace(fileOf('not packed', 'csv.gz'))).rejects.toThrow(/cannot be read: incorrect header check/);
  });
});

describe('a trace of which nothing is left', () => {
  const table = 'HashOwner,HashApp,HashFunction,Trigger,1,2,3\no,a,f,http,0,4,0\n';
  const calls = 'app,func,end_timestamp,duration\na,f,1000,1\na,f,1500,1\n';

  it.each([
    [calls, { fromMs: 600_000 }, /no invocation falls between 10 min 0 s and its end: the first comes at 0 ms, the last at 8 min 20 s$/],
    [calls, { fromMs: 1000, toMs: 2000 }, /no invocation falls between 1 s and 2 s: the first/],
    [table, { toMs: minuteMs }, /no invocation falls between 0 ms and 1 min 0 s: the first comes at 1 min /],
    [table, { fromMs: 2 * minuteMs }, /no invocation falls between 2 min 0 s and its end/],
    [calls, { ratePerS: 1e-9 }, /none of its invocations is left at 1e-9 a second$/],
    ['app,func,end_timestamp,duration\n', {}, / has no invocation$/],
    [table.replace('4', '0'), {}, / has no invocation$/],
    [table.replace('4', ''), { fold: 2 }, / has no invocation$/],
  ])('a trace of which nothing is left is refused with the reason: %j %j', async (text, options, message) => {
    await expect(openTrace(fileOf(text), options)).rejects.toThrow(message);
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
    const folded = foldByTotal({ functionNames: names(5), totals: Float64Array.of(1, 50, 3, 40, 2) }, 2);
    expect(folded.names).toEqual(['f1', 'f3']);
    expect([...folded.foldedIndex]).toEqual([0, 0, 0, 1, 1]);
  });

  it('transforming a trace of missing minutes is empty', async () => {
    const file = newFile('csv');
    await writeAzure2019(file, 2, rowsOf([[1, 1]]));
    const opened = openTable(await readAzure2019(file), { fromMs: 10 * minuteMs, toMs: 12 * minuteMs, ratePerS: 3 });
    expect([...opened.invocations()]).toEqual([]);
    expect(opened.requestsExpected).toBe(0);
  });
});
