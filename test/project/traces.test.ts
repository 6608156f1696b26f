/** The sample traces match the generator and the descriptions of their formats. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Ajv } from 'ajv';
import { afterAll, describe, expect, it } from 'vitest';
import { openForeign } from '../../scripts/convert-trace/open.ts';
import { sampleFiles, writeSampleTraces } from '../../scripts/traces.ts';
import { packageRoot } from '../../src/host/config/options.ts';
import { openTrace, summarizeTrace, TraceWriter } from '../../src/replay/index.ts';

const folder = mkdtempSync(join(tmpdir(), 'turntable-samples-'));
afterAll(() => rmSync(folder, { recursive: true }));
const sample = (name: string): string => join(packageRoot, 'traces', name);
const validate = new Ajv().compile(JSON.parse(readFileSync(sample('trace.schema.json'), 'utf8')) as object);
const linesOf = (file: string): unknown[] =>
  readFileSync(file, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as unknown);

describe('the sample traces', () => {
  it('the sample traces are those that scripts/traces.ts writes', async () => {
    await writeSampleTraces(folder);
    for (const name of sampleFiles) {
      expect(readFileSync(join(folder, name)).equals(readFileSync(sample(name))), name).toBe(true);
    }
  });

  it.each([
    ['azure-sample.csv', 'azure-2019', 240],
    ['azure-2021-sample.csv', 'azure-2021', 12],
  ])('%s opens as %s', async (name, format, functions) => {
    const trace = await openForeign(sample(name));
    expect(trace.format).toBe(format);
    expect(trace.functionNames).toHaveLength(functions);
  });

  it('the sample of a recording has the calls that it promises', async () => {
    const trace = await openTrace(sample('shipped-functions.jsonl'));
    expect(trace.functionNames).toHaveLength(3);
    expect(summarizeTrace(trace).requests).toBe(trace.requestsExpected);
  });

  it('call the shipped functions', async () => {
    const { functionNames } = await openTrace(sample('shipped-functions.jsonl'));
    for (const name of functionNames) {
      expect(readFileSync(join(packageRoot, 'functions', name, 'function.json'), 'utf8')).toContain('{');
    }
  });
});

describe('trace.schema.json', () => {
  it('trace.schema.json is valid for every line of the sample and of a recording', async () => {
    const recording = join(folder, 'recording.jsonl');
    const writer = await TraceWriter.create(recording, { recorded_at: '2026-01-01T00:00:00Z' });
    writer.write({
      arrival_ms: 1.5,
      function: 'a',
      duration_ms: 2,
      latency_ms: 3,
      slo_ms: 100,
      outcome: 'in_slo',
      placement: 'gpu0 warm',
    });
    writer.write({ arrival_ms: 2, function: 'b', latency_ms: 3, slo_ms: 100, outcome: 'shed' });
    await writer.close();
    for (const line of [...linesOf(sample('shipped-functions.jsonl')), ...linesOf(recording)]) {
      expect(validate(line), JSON.stringify(line)).toBe(true);
    }
  });

  it('trace.schema.json refuses lines that are neither a heading nor an invocation', () => {
    expect(validate({ arrival_ms: -1, function: 'a' })).toBe(false);
    expect(validate({ arrival_ms: 1 })).toBe(false);
    expect(validate({ format: 'turntable-trace', version: 2 })).toBe(false);
    expect(validate({ arrival_ms: 1, function: 'a', when: 3 })).toBe(false);
  });
});
