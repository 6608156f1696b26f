import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ElementType, GraphBuilder, writeModel } from '../../onnx/index.ts';
import { elements, tensorOf, type Tensor } from '../../tensor/index.ts';
import { runOnnxRuntime } from '../../../test/support/run-program.ts';
import { shapesOf } from '../program/input-shapes.ts';
import { runPadded } from './padded-run.ts';
import { paddingOf } from './padding-of.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-rows-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const { FLOAT, INT64 } = ElementType;
const [few, many] = [3, 4];

const floats = (name: string, ...shape: number[]): Tensor => {
  const length = shape.reduce((product, size) => product * size, 1);
  return tensorOf(
    name,
    'FP32',
    shape,
    Float32Array.from({ length }, (_, index) => Math.sin(index * 1.3)),
  );
};
const ints = (name: string, shape: readonly number[], ...values: number[]): Tensor =>
  tensorOf(name, 'INT64', shape, BigInt64Array.from(values, BigInt));

interface Looked {
  readonly operator: string;
  readonly attributes?: Readonly<Record<string, number | string>>;
  /** Their axes of size {@link few} are the rows. */
  readonly inputs: readonly Tensor[];
  /** Stand behind the inputs. */
  readonly constants?: readonly Tensor[];
  /** Stands before the inputs. */
  readonly table?: Tensor;
}

const said = ({ shape, ...tensor }: Tensor) => [shape, Array.from(elements(tensor as Tensor) as Iterable<unknown>)];

/** 'apart' if three rows in a program of four give the outputs of three rows; else why they need their own program. */
async function answers({ operator, attributes = {}, inputs, constants = [], table }: Looked): Promise<string> {
  const graph = new GraphBuilder('rows');
  const names = inputs.map(({ name, datatype, shape }) =>
    graph.input(
      name,
      datatype === 'FP32' ? FLOAT : INT64,
      shape.map((size) => (size === few ? 'rows' : size)),
    ),
  );
  const known = constants.map((each) => graph.initializer(each));
  const first = table === undefined ? [] : [graph.initializer(table)];
  const result = graph.node(operator, [...first, ...names, ...known], attributes);
  graph.output(result, FLOAT, ['?']);
  const path = join(folder, 'model.onnx');
  const model = graph.build();
  await writeModel({ ...model, graph: { ...model.graph, output: [{ name: result }] } }, path);
  const shapes = shapesOf(inputs);
  const larger = shapes.map(({ name, shape }) => ({ name, shape: shape.map((size) => (size === few ? many : size)) }));
  const found = await paddingOf(path, shapes, larger, folder);
  if (found.kind === 'exact') return found.reason;
  const run = async (taken: readonly Tensor[]) => ({ outputs: await runOnnxRuntime(path, taken) });
  const { outputs } = await runPadded(found.padding, inputs, run);
  const expected = await runOnnxRuntime(path, inputs);
  expect(outputs.map(said)).toEqual(expected.map(said));
  return 'apart';
}

const cases: readonly (readonly [string, Looked, RegExp])[] = [
  ['GatherND that takes one place of each row', { operator: 'GatherND', attributes: { batch_dims: 1 }, inputs: [floats('x', few, 5, 2), ints('at', [few, 1], 4, 0, 2)] }, /^apart$/], // prettier-ignore
  ['GatherND of a table', { operator: 'GatherND', inputs: [ints('at', [few, 2], 1, 1, 0, 4, 1, 0)], table: floats('table', 2, 5) }, /^apart$/], // prettier-ignore
  ['GatherND along what stands before the rows', { operator: 'GatherND', inputs: [floats('x', 5, few)], constants: [ints('at', [2, 1], 4, 0)] }, /^apart$/], // prettier-ignore
  ['GatherND of the rows themselves', { operator: 'GatherND', inputs: [floats('x', few, 5)], constants: [ints('at', [2, 1], 2, 0)] }, /takes some of the rows/], // prettier-ignore
  ['OneHot behind the rows', { operator: 'OneHot', inputs: [ints('x', [few], 1, 0, 3)], constants: [ints('depth', [], 5), floats('values', 2)] }, /^apart$/], // prettier-ignore
  ['OneHot before the rows', { operator: 'OneHot', attributes: { axis: 0 }, inputs: [ints('x', [few], 1, 0, 3)], constants: [ints('depth', [], 5), floats('values', 2)] }, /^apart$/], // prettier-ignore
  ['Einsum with the rows as a batch', { operator: 'Einsum', attributes: { equation: 'bij,bjk->bki' }, inputs: [floats('x', few, 2, 5), floats('y', few, 5, 2)] }, /^apart$/], // prettier-ignore
  ['Einsum of rows and a weight', { operator: 'Einsum', attributes: { equation: '...i,ji' }, inputs: [floats('x', few, 5)], constants: [floats('w', 7, 5)] }, /^apart$/], // prettier-ignore
  ['Einsum that sums the rows up', { operator: 'Einsum', attributes: { equation: 'bi,ji->ij' }, inputs: [floats('x', few, 5)], constants: [floats('w', 7, 5)] }, /sums up the rows/], // prettier-ignore
];

test.each(cases)('%s', async (_name, looked, wanted) => {
  expect(await answers(looked)).toMatch(wanted);
});
