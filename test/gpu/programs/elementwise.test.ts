/** Elementwise operators at the limits of their types, where C leaves results open and ONNX Runtime does not. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { elementTypeOf, GraphBuilder, writeModel, type AttributeValue } from '../../../src/onnx/index.ts';
import { tensorOf, type DataType, type Tensor } from '../../../src/tensor/index.ts';
import { emulatorMissing, withEmulatedCuda } from '../../support/emulated-cuda.ts';
import { numbersOf, runModel, runOnnxRuntime } from '../../support/run-program.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-elementwise-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const int32 = (...values: number[]): Tensor => tensorOf('', 'INT32', [values.length], Int32Array.from(values));
const int64 = (...values: bigint[]): Tensor => tensorOf('', 'INT64', [values.length], BigInt64Array.from(values));
const float = (...values: number[]): Tensor => tensorOf('', 'FP32', [values.length], Float32Array.from(values));

const { POSITIVE_INFINITY: infinite, NaN: nan } = Number;
const low32 = -(2 ** 31);
const low64 = -(2n ** 63n);

interface Edge {
  readonly operator: string;
  readonly inputs: readonly Tensor[];
  readonly output: DataType;
  readonly attributes?: Readonly<Record<string, AttributeValue>>;
}

const edges: readonly Edge[] = [
  { operator: 'Add', inputs: [int32(2 ** 31 - 1, low32), int32(1, -1)], output: 'INT32' },
  { operator: 'Mul', inputs: [int64(2n ** 62n, 3037000500n), int64(4n, 3037000500n)], output: 'INT64' },
  { operator: 'Sub', inputs: [int64(low64), int64(1n)], output: 'INT64' },
  { operator: 'Neg', inputs: [int32(low32, 5)], output: 'INT32' },
  { operator: 'Abs', inputs: [int64(low64, -5n)], output: 'INT64' },
  { operator: 'Div', inputs: [int32(-7, 7, -7, 7), int32(2, -2, -2, 2)], output: 'INT32' },
  { operator: 'Mod', inputs: [int64(-7n, 7n, -7n, 7n), int64(3n, -3n, -3n, 3n)], output: 'INT64' },
  { operator: 'Mod', inputs: [int32(-7, 7, -7), int32(3, -3, -3)], output: 'INT32', attributes: { fmod: 1 } },
  { operator: 'Mod', inputs: [float(-7.5, 7.5), float(2, -2)], output: 'FP32', attributes: { fmod: 1 } },
  { operator: 'Div', inputs: [float(1, -1, 0), float(0, 0, 0)], output: 'FP32' },
  { operator: 'Min', inputs: [float(nan, 1, -0), float(1, nan, 0)], output: 'FP32' },
  { operator: 'Max', inputs: [float(nan, 1, infinite), float(1, nan, 2)], output: 'FP32' },
  { operator: 'IsNaN', inputs: [float(nan, infinite, 0)], output: 'BOOL' },
  { operator: 'IsInf', inputs: [float(nan, infinite, -infinite, 3e38)], output: 'BOOL' },
  { operator: 'IsInf', inputs: [float(infinite, -infinite)], output: 'BOOL', attributes: { detect_negative: 0 } },
  { operator: 'Equal', inputs: [float(nan, 0, infinite), float(nan, -0, infinite)], output: 'BOOL' },
  { operator: 'Less', inputs: [float(nan, 1), float(1, nan)], output: 'BOOL' },
  { operator: 'Round', inputs: [float(0.5, 1.5, 2.5, -0.5, -1.5, 1e10)], output: 'FP32' },
  { operator: 'Sigmoid', inputs: [float(-200, 200, -infinite, infinite, 0)], output: 'FP32' },
  { operator: 'Tanh', inputs: [float(-90, 90, 1e-8)], output: 'FP32' },
  { operator: 'Softplus', inputs: [float(-100, 100, 0)], output: 'FP32' },
  { operator: 'Pow', inputs: [float(-2, 0, 4, -8), float(3, 0, 0.5, 1)], output: 'FP32' },
  { operator: 'Pow', inputs: [int64(3n, -2n, 2n), int64(4n, 3n, 0n)], output: 'INT64' },
  { operator: 'Cast', inputs: [float(1.9, -1.9, 0.2)], output: 'INT32', attributes: { to: elementTypeOf('INT32') } },
  { operator: 'Cast', inputs: [float(nan, 0, -0, 0.1)], output: 'BOOL', attributes: { to: elementTypeOf('BOOL') } },
  {
    operator: 'Cast',
    inputs: [float(65504, 65519, 65520, 1e-8, 6e-8, nan, -infinite)],
    output: 'FP16',
    attributes: { to: elementTypeOf('FP16') },
  },
  { operator: 'Cast', inputs: [int32(300, -1, 128)], output: 'UINT8', attributes: { to: elementTypeOf('UINT8') } },
  { operator: 'Cast', inputs: [int64(2n ** 40n + 7n)], output: 'INT32', attributes: { to: elementTypeOf('INT32') } },
];

const uint8 = (...values: number[]): Tensor => tensorOf('', 'UINT8', [values.length], Uint8Array.from(values));
const scalarOf = (tensor: Tensor): Tensor => ({ ...tensor, shape: [] });

const quantised: readonly Edge[] = [
  {
    operator: 'QuantizeLinear',
    inputs: [float(-1e9, -0.5, 0.25, 0.75, 2.5, 1e9), scalarOf(float(0.5)), scalarOf(uint8(128))],
    output: 'UINT8',
  },
  {
    operator: 'DequantizeLinear',
    inputs: [uint8(0, 127, 128, 255), scalarOf(float(0.02)), scalarOf(uint8(128))],
    output: 'FP32',
  },
  { operator: 'DequantizeLinear', inputs: [int32(-7, 2 ** 20), scalarOf(float(0.5))], output: 'FP32' },
];

const all = [...edges, ...quantised];

/** All cases in one model, so that kernels are compiled once. */
async function writeEdges(path: string): Promise<Tensor[]> {
  const graph = new GraphBuilder('edges');
  const inputs: Tensor[] = [];
  for (const [index, { operator, inputs: given, output, attributes }] of all.entries()) {
    const names = given.map((tensor, place) => {
      const name = `x${index}_${place}`;
      inputs.push({ ...tensor, name });
      return graph.input(name, elementTypeOf(tensor.datatype), tensor.shape);
    });
    graph.output(graph.node(operator, names, attributes), elementTypeOf(output), given[0]!.shape, `y${index}`);
  }
  await writeModel(graph.build(), path);
  return inputs;
}

/** Rounded to five digits, since functions of math.h differ in the last ones. */
const rounded = (tensor: Tensor): unknown[] =>
  numbersOf(tensor).map((value) => (typeof value === 'number' ? Number(value.toPrecision(5)) + 0 : value));

const text = (tensors: readonly Tensor[]): string[] =>
  all.map(({ operator }, index) => {
    const tensor = tensors.find(({ name }) => name === `y${index}`);
    return `${operator} ${index}: ${tensor === undefined ? 'missing' : rounded(tensor).join(' ')}`;
  });

describe.skipIf(emulatorMissing)('on the emulated driver', () => {
  test("results at the limits of types are ONNX Runtime's", async () => {
    const path = join(folder, 'edges.onnx');
    const inputs = await writeEdges(path);
    const expected = await runOnnxRuntime(path, inputs);
    await withEmulatedCuda({}, async (cuda) => {
      const actual = await runModel(cuda, path, inputs, { cacheFolder: folder });
      expect(text(actual)).toEqual(text(expected));
    });
  });
});
