/**
 * One model of each family over real HTTP on the emulated driver: checked, then answered by the GPU as by ONNX Runtime,
 * also in new shapes.
 */
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadConfig, startHost, type RunningHost } from '../../../src/host/index.ts';
import { createLogger } from '../../../src/host/records/logger.ts';
import { tolerances, type InputShapes, type Precision } from '../../../src/gpu/index.ts';
import { ElementType, GraphBuilder, writeModel, type ModelProto } from '../../../src/onnx/index.ts';
import type { DataType, Tensor } from '../../../src/tensor/index.ts';
import { filled, tensor } from '../../support/operator-cases/case.ts';
import { emulateGpus } from '../../support/emulate-gpus.ts';
import { emulatorMissing } from '../../support/emulated-cuda.ts';
import { buildFamily, families, familyInputs, type Family } from '../../support/model-families.ts';
import {
  bertExport,
  gpt2Export,
  halfAttentionExport,
  lstmExport,
  mobilenetExport,
  rotaryExport,
} from '../../support/pytorch-exports.ts';
import { runOnnxRuntime } from '../../support/run-program.ts';
import { valuesToJson } from '../../support/tensor-json.ts';

const named = (name: string, of: Omit<Tensor, 'name'>): Tensor => ({ ...of, name });
const floats = (name: string, ...shape: number[]): Tensor => named(name, filled('FP32', shape));
const halves = (name: string, ...shape: number[]): Tensor => named(name, filled('FP16', shape));
const ids = (name: string, below: number, ...shape: number[]): Tensor => {
  const count = shape.reduce((product, size) => product * size, 1);
  const values = Array.from({ length: count }, (_, index) => (index * 7 + 1) % below);
  return named(name, tensor('INT64', shape, values));
};

interface Served {
  readonly name: string;
  readonly model: () => ModelProto;
  readonly inputs: readonly Tensor[];
  readonly precision: Precision;
  /** Its shapes are fixed: there is nothing to prepare for a call. */
  readonly isFixed: boolean;
  /** ONNX Runtime opens it at every optimization level except `disabled`. */
  readonly needsOptimizer?: boolean;
}

const exported = (name: string, model: () => ModelProto, ...inputs: Tensor[]): Served => ({
  name,
  model,
  inputs,
  precision: 'fp32',
  isFixed: false,
});

/** In each row of four the two exporters take turns; TURNTABLE_FAMILIES=all runs all of them. */
const isServed = (_family: Family, index: number): boolean =>
  process.env['TURNTABLE_FAMILIES'] === 'all' ||
  (Math.floor(index / 4) % 2 === 0 ? [0, 3] : [1, 2]).includes(index % 4);

const precisions = { fp32: 'fp32', fp16: 'fp16', qdq: 'int8', dynamic: 'int8', qoperator: 'int8' } as const;

const served: readonly Served[] = [
  exported('mobilenet', mobilenetExport, floats('input', 2, 3, 16, 16)),
  exported('bert', bertExport, ids('input_ids', 50, 2, 6), named('attention_mask', tensor('INT64', [2, 6], Array<number>(12).fill(1)))), // prettier-ignore
  exported('gpt2', gpt2Export, ids('input_ids', 50, 2, 5)),
  exported('lstm', lstmExport, floats('input', 2, 3, 8)),
  exported('rotary', rotaryExport, floats('input', 3, 6, 16), ids('positions', 32, 3, 6)),
  {
    ...exported('half-attention', halfAttentionExport, halves('q', 2, 4, 8), halves('k', 2, 4, 8)),
    precision: 'fp16',
    needsOptimizer: true,
  },
  ...families.filter(isServed).map((family): Served => {
    const { kind, exporter, opset, isDynamic, precision } = family;
    return {
      name: `${kind}-${precision}-${isDynamic ? 'open' : 'fixed'}-${exporter}-${opset}`,
      model: () => buildFamily(family),
      inputs: familyInputs(family),
      precision: precisions[precision],
      isFixed: !isDynamic,
    };
  }),
];

interface Verdict {
  readonly kind: string;
  readonly firstFor: string;
  readonly shapes?: InputShapes;
  readonly program?: InputShapes;
}

const batchOf = (shapes: InputShapes = []): number | undefined => shapes[0]?.shape[0];

/** `y` is the sum along `axes` of `x` in the shape `sizes`; all four are inputs or outputs of a call. */
function sizedByValues(): ModelProto {
  const graph = new GraphBuilder('sized by values');
  const x = graph.input('x', ElementType.FLOAT, [2, 6]);
  const sizes = graph.input('sizes', ElementType.INT64, [2]);
  const axes = graph.input('axes', ElementType.INT64, [1]);
  graph.output(graph.node('ReduceSum', [graph.node('Reshape', [x, sizes]), axes], { keepdims: 0 }), 1, ['n'], 'y');
  return graph.build();
}

let folder: string;
let host: RunningHost;

const placementOf = (reply: Response): string => reply.headers.get('x-turntable-placement') ?? '';

describe.skipIf(emulatorMissing)('on a GPU', () => {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'turntable-families-'));
    await emulateGpus([{ memoryBytes: 256 * 2 ** 20 }]);
    for (const { name, model } of [...served, { name: 'sized', model: sizedByValues }]) {
      const place = join(folder, 'functions', name);
      await mkdir(place, { recursive: true });
      await writeModel(model(), join(place, 'model.onnx'));
      await writeFile(join(place, 'function.json'), JSON.stringify({ model: 'model.onnx', slo: '60s' }));
    }
    const { config } = loadConfig({
      flags: {
        'listen.port': '0',
        dataDir: join(folder, 'data'),
        functionsDir: join(folder, 'functions'),
        'cpu.cores': '2',
        'cpu.profiling': 'off',
        'gpu.memory': '128MiB',
        'gpu.hostMemory': '64MiB',
        'gpu.profileIterations': '1',
        'gpu.hybrid': 'off',
        'gpu.recheckEvery': '1',
      },
    });
    host = await startHost(config, { logger: createLogger({ level: 'silent', format: 'json' }) });
    await host.gpus!.settled();
  });
  afterAll(async () => {
    await host?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  test.each(served)(
    '$name answers as ONNX Runtime does, and new shapes do not wait for a program',
    async ({ name, inputs, precision, isFixed, needsOptimizer }) => {
      const gpus = host.gpus!;
      expect(gpus.record(`${name}@1`)?.state).toMatchObject({ kind: 'planned' });
      const modelPath = join(folder, 'functions', name, 'model.onnx');
      const plain = await runOnnxRuntime(modelPath, inputs).catch(() => undefined);
      expect(plain === undefined).toBe(needsOptimizer === true);
      const expected = plain ?? (await runOnnxRuntime(modelPath, inputs, 'extended'));
      const given = inputs.map((each) => ({ ...each, data: valuesToJson(each) }));
      const call = async (): Promise<string> => {
        const reply = await fetch(`${host.url}/v2/models/${name}/infer`, {
          method: 'POST',
          body: JSON.stringify({ inputs: given }),
        });
        const text = await reply.text();
        expect(reply.status, text).toBe(200);
        const { outputs } = JSON.parse(text) as {
          readonly outputs: readonly { name: string; datatype: DataType; shape: number[]; data: number[] }[];
        };
        expect(outputs.map((each) => [each.name, each.datatype, each.shape])).toEqual(
          expected.map((each) => [each.name, each.datatype, each.shape]),
        );
        for (const [index, { data }] of outputs.entries()) {
          const wanted = valuesToJson(expected[index]!) as number[];
          const size = Math.max(...wanted.map(Math.abs));
          const worst = Math.max(...wanted.map((value, at) => Math.abs(value - data[at]!)));
          expect(worst).toBeLessThanOrEqual(tolerances[precision] * size);
        }
        return placementOf(reply);
      };
      // Another export of the same weights may have brought them there.
      const first = isFixed
        ? /^gpu0 (cold|partial|warm|from disk)/
        : /^cpu.* its program for inputs of .* is not there yet/;
      expect(await call()).toMatch(first);
      await gpus.settled();
      expect(await call()).toMatch(/^gpu/);
      expect(gpus.whyNot(`${name}@1`)).toBeUndefined();
    },
  );

  test('a function whose calls give shapes and axes has a program for each of them', async () => {
    const gpus = host.gpus!;
    const x = Array.from({ length: 12 }, (_, index) => index);
    const call = async (sizes: readonly number[], axis: number): Promise<readonly [unknown, string]> => {
      const inputs = [
        { name: 'x', datatype: 'FP32', shape: [2, 6], data: x },
        { name: 'sizes', datatype: 'INT64', shape: [2], data: sizes },
        { name: 'axes', datatype: 'INT64', shape: [1], data: [axis] },
      ];
      const body = JSON.stringify({ inputs });
      const reply = await fetch(`${host.url}/v2/models/sized/infer`, { method: 'POST', body });
      const text = await reply.text();
      await gpus.settled();
      if (!reply.ok) return [reply.status, text];
      const { outputs } = JSON.parse(text) as { readonly outputs: readonly { readonly data: unknown }[] };
      return [outputs[0]!.data, placementOf(reply)];
    };
    expect(gpus.record('sized@1')?.state).toEqual({ kind: 'unsized', inputs: ['sizes', 'axes'] });
    const sums = [6, 22, 38];
    expect(await call([3, 4], 1)).toEqual([sums, expect.stringMatching(/^cpu/)]);
    expect(gpus.record('sized@1')?.state).toMatchObject({ kind: 'planned' });
    expect(await call([3, -1], -1)).toEqual([sums, expect.stringMatching(/sizes\[2\]=\(3,-1\).* is not there yet/)]);
    expect(await call([3, 4], 1)).toEqual([sums, expect.stringMatching(/^gpu/)]);
    expect(await call([3, -1], -1)).toEqual([sums, expect.stringMatching(/^gpu/)]);
    expect(await call([5, 5], 1)).toEqual([expect.any(Number), expect.stringMatching(/Reshape/i)]);
    expect(await call([4, 3], 0)).toEqual([[18, 22, 26], expect.stringMatching(/^cpu/)]);
    expect(await call([4, 3], 0)).toEqual([[18, 22, 26], expect.stringMatching(/^gpu/)]);
  });

  test('a batch of three ran in the program for four, in every family with an open batch', async () => {
    const checks = join(folder, 'data', 'plans', 'checks');
    const texts = await Promise.all((await readdir(checks)).map((file) => readFile(join(checks, file), 'utf8')));
    const verdicts = texts.map((text) => JSON.parse(text) as Verdict);
    const padded = verdicts.filter(({ shapes, program }) => batchOf(shapes) === 3 && batchOf(program) === 4);
    expect(padded.map(({ kind }) => kind)).toEqual(padded.map(() => 'agreed'));
    const open = served.filter(({ name, isFixed }) => !isFixed && /^(transformer|cnn)-|^rotary$/.test(name));
    expect(new Set(padded.map(({ firstFor }) => firstFor))).toEqual(new Set(open.map(({ name }) => `${name}@1`)));
  });
});
