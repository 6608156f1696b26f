import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { savedIn } from '../../../test/support/saved-report.ts';
import type { PlanReport } from '../../host/index.ts';
import { coldStartModes } from '../../plan/index.ts';
import { buildArchitecture, writeModel } from '../../onnx/index.ts';
import { isSpoken } from '../error.ts';
import { deepplanCommand } from './deepplan.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'turntable-deepplan-'));
});
afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
  vi.restoreAllMocks();
});

async function deepplan(...argv: string[]): Promise<string> {
  const log = vi.spyOn(console, 'log').mockImplementation(() => undefined);
  vi.spyOn(process.stderr, 'write').mockImplementation(() => true);
  try {
    await deepplanCommand().exitOverride().parseAsync(argv, { from: 'user' });
    return log.mock.calls.map((line) => String(line[0])).join('\n');
  } finally {
    vi.restoreAllMocks();
  }
}

function fileOf(name: string, json: unknown): string {
  const file = join(folder, name);
  writeFileSync(file, typeof json === 'string' ? json : JSON.stringify(json));
  return file;
}

const profile = {
  unit: 'ms',
  layers: [
    { name: 'words', kind: 'Embedding', bytes: 90e6, load: 8, exec: 0.1, dha: 0.3 },
    { name: 'first', kind: 'Linear', bytes: 2e6, load: 0.5, exec: 0.1, dha: 3 },
    { name: 'relu', kind: 'ReLU', bytes: 0, load: 0, exec: 0.1, dha: 0.1 },
    { name: 'second', kind: 'Linear', bytes: 2e6, load: 0.5, exec: 0.1, dha: 3 },
  ],
};

describe('turntable plan deepplan', () => {
  test('turntable plan deepplan answers a given profile with the documented JSON', async () => {
    const file = fileOf('layers.json', profile);
    const answer: unknown = JSON.parse(
      await deepplan('--profile', file, '--machine', 'p3.8xlarge', '--mode', 'dha', '--json'),
    );
    // 0.3 words; first arrives at 0.5, ends at 0.6; relu to 0.7; second arrives at 1.0, ends at 1.1.
    expect(answer).toEqual({
      latency_ms: expect.closeTo(1.1, 9) as number,
      stall_ms: expect.closeTo(0.5, 9) as number,
      bytes_gpu: 4e6,
      layers: [
        { name: 'words', method: 'dha', link: null },
        { name: 'first', method: 'load', link: 0 },
        { name: 'relu', method: 'dha', link: null },
        { name: 'second', method: 'load', link: 0 },
      ],
    });
  });

  test('turntable plan deepplan names the links of a parallel plan by their GPUs', async () => {
    const file = fileOf('layers.json', profile);
    for (const [gpu, links] of [
      ['0', [null, 0, null, 2]],
      ['3', [null, 3, null, 1]],
    ] as const) {
      const json = await deepplan('--profile', file, '--mode', 'pt+dha', '--gpu', gpu, '--json');
      const answer = JSON.parse(json) as { layers: { link: number | null }[] };
      expect(answer.layers.map(({ link }) => link)).toEqual(links);
    }
  });

  test('plans BERT-Base by name without making its weights, and says that times are simulated', async () => {
    // The elements of a weight are made with the square root of 6, once a weight.
    const roots = vi.spyOn(Math, 'sqrt');
    const weightsMade = () => roots.mock.calls.filter(([of]) => of === 6).length;
    await writeModel(buildArchitecture('mlp', { layers: 2 }, 1).model, join(folder, 'mlp.onnx'));
    const before = weightsMade();
    expect(before).toBeGreaterThanOrEqual(2);
    const text = await deepplan('--model', 'bert_base', '--mode', 'all', '--residency');
    expect(weightsMade()).toBe(before);
    expect(text).toContain('bert-base: times of layers estimated; simulated on machine p3.8xlarge');
    expect(text.split('\n').map((line) => line.split(' ')[0])).toEqual(
      expect.arrayContaining(['baseline', 'pipeswitch', 'dha', 'pt', 'pt+dha', 'interleave']),
    );
  });

  test('estimates an ONNX file without reading its weights, with the dimensions that are given', async () => {
    const model = join(folder, 'model.onnx');
    const settings = { layers: 2, hidden: 32, heads: 2, vocabulary: 100, positions: 64 };
    await writeModel(buildArchitecture('bert-base', settings, 1).model, model);
    const assumed = await deepplan('--model', model, '--mode', 'pipeswitch');
    expect(assumed).toContain('assumed of open dimensions: batch = 1, sequence = 384');
    expect(assumed).toMatch(/^encoder\.layer\.1\.output\.dense +linear/m);
    const given = await deepplan('--model', model, '--mode', 'pipeswitch', '--dimension', 'batch=2', 'sequence=8');
    expect(given).not.toContain('assumed of open dimensions');
  });

  test('turntable plan deepplan adds times and residency to the JSON on request', async () => {
    const file = fileOf('layers.json', profile);
    const json = await deepplan('--profile', file, '--mode', 'pt+dha', '--timeline', '--residency', '--json');
    const answer = JSON.parse(json) as {
      layers: { migration_ms: number[] | null; execution_ms: number[]; stall_ms: number }[];
      residency: { warm_ms: number; hidden: { layers: number }; curve: { bytes: number; latency_ms: number }[] };
    };
    expect(answer.layers[3]?.migration_ms).toHaveLength(2);
    expect(answer.layers[1]?.migration_ms).toBeNull();
    expect(answer.residency.curve.map(({ bytes }) => bytes)).toEqual([0, 2e6, 4e6]);
    expect(answer.residency.warm_ms).toBeCloseTo(0.6);
  });

  test('turntable plan deepplan draws the timelines of all modes as a page that says where the times come from', async () => {
    const file = fileOf('layers.json', { ...profile, layers: [{ ...profile.layers[1], name: '</script><b>&"' }] });
    const page = join(folder, 'timeline.html');
    await deepplan('--profile', file, '--mode', 'all', '--html', page, '--json');
    const { provenance, timelines } = savedIn(readFileSync(page, 'utf8')) as PlanReport;
    expect(provenance).toMatch(/^simulated on machine p3\.8xlarge; times of layers as given/);
    expect(timelines.map(({ name }) => name)).toEqual(coldStartModes);
    const { note, lanes } = timelines[1]!;
    expect(note).toMatch(/^stalls 0.5 ms, /);
    expect(lanes.at(-1)!.bars).toMatchObject([{ look: 'stall' }, { name: '</script><b>&"', startMs: 0.5 }]);
  });

  test('turntable plan deepplan writes the profile that it used, which gives the same plan again', async () => {
    const saved = join(folder, 'saved.json');
    const first = await deepplan('--model', 'resnet50', '--save-profile', saved, '--json');
    expect(await deepplan('--profile', saved, '--json')).toBe(first);
  });

  test('turntable plan deepplan says when no GPU of the machine can help', async () => {
    const text = await deepplan('--profile', fileOf('layers.json', profile), '--machine', 'h200');
    expect(text).toContain('to help GPU 0 takes one on another PCIe switch');
  });

  test.each([
    [['--mode', 'dha'], 'give either --profile FILE or --model NAME|FILE.onnx'],
    [['--model', 'bert-base', '--mode', 'fast'], "--mode is 'fast', but takes baseline, pipeswitch"],
    [['--model', 'bert-huge'], "there is no model 'bert-huge'; there are bert-base"],
    [['--model', 'bert-base', '--machine', 'abacus'], "there is no machine 'abacus'; there are a5000x2, cpu-16"],
    [['--model', 'bert-base', '--machine', 'cpu-16'], "machine 'cpu-16' has no GPU 0"],
    [['--model', 'bert-base', '--gpu', '7'], "machine 'p3.8xlarge' has no GPU 7"],
    [
      ['--model', 'bert-base', '--dimension', 'batch=none'],
      "--dimension takes name=size such as sequence=64, and 'batch=none'",
    ],
  ])('turntable plan deepplan refuses %j in one sentence', async (argv, message) => {
    await expect(deepplan(...argv)).rejects.toThrow(message);
    await expect(deepplan(...argv)).rejects.toSatisfy(isSpoken);
  });

  test.each([
    [{ layers: [] }, "the layer profile has no field 'unit'"],
    [{ ...profile, unit: 's' }, 'field \'unit\' of the layer profile is "s", but must be "ms"'],
    [{ ...profile, layers: [] }, "field 'layers' of the layer profile"],
    [{ ...profile, layers: [{ ...profile.layers[0], load: -1 }] }, "field 'layers[0].load' of the layer profile is -1"],
    [{ ...profile, layers: [{ ...profile.layers[0], dha: 'slow' }] }, "field 'layers[0].dha' of the layer profile"],
    [{ ...profile, layers: [{ name: 'x' }] }, "the layer profile has no field 'layers[0].kind'"],
    ['{"unit":"ms","layers":[{"name":"x","kind":"y","bytes":1,"load":1e999,"exec":1,"dha":1}]}', "'layers[0].load'"],
    ['{', 'is not JSON'],
  ])('turntable plan deepplan refuses a profile %j and names the field', async (json, message) => {
    const file = fileOf('bad.json', json);
    await expect(deepplan('--profile', file, '--json')).rejects.toThrow(message);
  });
});
