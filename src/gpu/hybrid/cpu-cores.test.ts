import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { runOnnxRuntime } from '../../../test/support/run-program.ts';
import { readLogicalCores } from '../../hardware/index.ts';
import { buildArchitecture, ElementType, elementTypeOf, GraphBuilder, writeModel } from '../../onnx/index.ts';
import { elementBytes, elementCount, tensorOf, type DataType } from '../../tensor/index.ts';
import { NativeArena } from '../driver/native-memory.ts';
import { CpuCores } from './cpu-cores.ts';
import type { CpuCall, HostTensor } from './types.ts';

let folder: string;
const memory = new NativeArena();
let cores: CpuCores;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-cores-'));
});
afterEach(() => cores.close());
afterAll(async () => {
  memory.release();
  await rm(folder, { recursive: true, force: true });
});

const float = ElementType.FLOAT;

async function write(name: string, build: (graph: GraphBuilder) => void): Promise<string> {
  const graph = new GraphBuilder(name);
  build(graph);
  const path = join(folder, `${name}.onnx`);
  await writeModel(graph.build(), path, { externalData: 'never' });
  return path;
}

/** y = x * factor, [count]. */
function writeScale(name: string, count: number, factor: number): Promise<string> {
  return write(name, (graph) => {
    const x = graph.input('x', float, [count]);
    graph.output(graph.node('Mul', [x, graph.constant({ floats: factor })]), float, [count], 'y');
  });
}

interface Placed extends HostTensor {
  readonly view: Uint8Array;
}

function place(name: string, datatype: DataType, shape: readonly number[], data?: Uint8Array): Placed {
  const bytes = elementBytes[datatype] * elementCount(shape);
  const block = memory.allocate(Math.max(bytes, 1));
  const view = new Uint8Array(block.data.buffer, block.data.byteOffset, bytes);
  if (data !== undefined) view.set(data);
  return { name, datatype, shape, address: block.address, bytes, view };
}

/** Without `view`, which a message cannot hold. */
const described = ({ name, datatype, shape, address, bytes }: Placed): HostTensor => ({
  name,
  datatype,
  shape,
  address,
  bytes,
});

const call = (inputs: readonly Placed[], outputs: readonly Placed[], loose: readonly string[] = []): CpuCall => ({
  inputs: inputs.map(described),
  outputs: outputs.map(described),
  loose,
});

const floats = ({ view }: Placed): number[] => [...new Float32Array(view.buffer, view.byteOffset, view.byteLength / 4)];

function set({ view }: Placed, value: number): void {
  new Float32Array(view.buffer, view.byteOffset, view.byteLength / 4).fill(value);
}

const randoms = (count: number): Float32Array => Float32Array.from({ length: count }, (_, i) => Math.sin(i * 12.9898));

test('a sub-graph on a core writes the outputs of a plain session to the given addresses', async () => {
  const { model } = buildArchitecture('lstm', { layers: 2, hidden: 16, input: 8, batch: 2, sequence: 5 });
  const path = join(folder, 'lstm.onnx');
  await writeModel(model, path, { externalData: 'never' });
  const [info] = model.graph.input;
  const shape = [2, 5, 8];
  const input = tensorOf(info!.name, 'FP32', shape, randoms(80));
  const expected = await runOnnxRuntime(path, [input]);
  cores = new CpuCores({ count: 1 });
  const part = await cores.core(1).open(path);
  const outputs = expected.map(({ name, datatype, shape: dims }) => place(name, datatype, dims));
  await part.run(call([place(input.name, 'FP32', shape, input.data)], outputs));
  for (const [index, { data }] of expected.entries()) {
    const wanted = new Float32Array(data.buffer, data.byteOffset, data.byteLength / 4);
    for (const [at, value] of floats(outputs[index]!).entries()) expect(value).toBeCloseTo(wanted[at]!, 5);
  }
});

test('a thousand calls on three cores each read and write their own memory', async () => {
  const path = await writeScale('scale', 6, 3);
  cores = new CpuCores({ count: 3 });
  const lanes = await Promise.all(
    [1, 2, 3].map(async (core) => {
      const part = await cores.core(core).open(path);
      const [x, y] = [place('x', 'FP32', [6]), place('y', 'FP32', [6])];
      return { part, x, y, same: call([x], [y]) };
    }),
  );
  let wrong = 0;
  await Promise.all(
    lanes.map(async ({ part, x, y, same }, lane) => {
      for (let round = 0; round < 334; round++) {
        const values = Float32Array.from({ length: 6 }, (_, index) => lane * 1000 + round + index);
        x.view.set(new Uint8Array(values.buffer));
        await part.run(same);
        if (floats(y).some((value, index) => value !== values[index]! * 3)) wrong++;
      }
    }),
  );
  expect(wrong).toBe(0);
});

test('a core runs its calls in the order in which it gets them', async () => {
  const path = await writeScale('double', 1, 2);
  cores = new CpuCores({ count: 1 });
  const part = await cores.core(1).open(path);
  const chain = Array.from({ length: 20 }, (_, index) => place(`v${index}`, 'FP32', [1]));
  chain[0]!.view.set(new Uint8Array(Float32Array.of(1).buffer));
  const runs = chain.slice(1).map((to, index) => {
    const from = chain[index]!;
    return part.run(call([{ ...from, name: 'x' }], [{ ...to, name: 'y' }]));
  });
  await Promise.all(runs);
  expect(floats(chain.at(-1)!)).toEqual([2 ** 19]);
});

test('tensors of every datatype of ONNX Runtime are read and written in place, also scalars and empty ones', async () => {
  const datatypes = Object.keys(elementBytes).filter((type) => type !== 'BF16' && type !== 'BYTES') as DataType[];
  const path = await write('types', (graph) => {
    for (const datatype of datatypes) {
      const x = graph.input(datatype, elementTypeOf(datatype), ['a', 'b']);
      graph.output(graph.node('Identity', [x]), elementTypeOf(datatype), ['a', 'b'], `${datatype} out`);
    }
    const scalar = graph.input('scalar', float, []);
    graph.output(graph.node('Neg', [scalar]), float, [], 'scalar out');
  });
  cores = new CpuCores({ count: 1 });
  const part = await cores.core(1).open(path);
  for (const shape of [
    [2, 3],
    [0, 3],
  ]) {
    const bytes = Uint8Array.from({ length: 64 }, (_, index) => (index * 37) % 251);
    const inputs = datatypes.map((type) => {
      const count = elementBytes[type] * elementCount(shape);
      return place(type, type, shape, type === 'BOOL' ? new Uint8Array(count).fill(1) : bytes.subarray(0, count));
    });
    const outputs = datatypes.map((type) => place(`${type} out`, type, shape));
    const [scalar, negated] = [place('scalar', 'FP32', []), place('scalar out', 'FP32', [])];
    scalar.view.set(new Uint8Array(Float32Array.of(2.5).buffer));
    await part.run(call([...inputs, scalar], [...outputs, negated]));
    for (const [index, { name, view }] of outputs.entries()) expect([name, view]).toEqual([name, inputs[index]!.view]);
    expect(floats(negated)).toEqual([-2.5]);
  }
});

test('texts, and tensors whose shapes are known only after the run, are passed by value', async () => {
  const path = await write('loose', (graph) => {
    const x = graph.input('x', float, ['n']);
    graph.output(graph.node('NonZero', [x]), ElementType.INT64, [1, 'm'], 'places');
    const text = graph.input('text', ElementType.STRING, [2]);
    graph.output(graph.node('Identity', [text]), ElementType.STRING, [2], 'text out');
    graph.output(graph.node('Neg', [x]), float, ['n'], 'y');
  });
  cores = new CpuCores({ count: 1 });
  const part = await cores.core(1).open(path);
  const x = tensorOf('x', 'FP32', [4], Float32Array.of(0, 5, 0, 7));
  const text = tensorOf('text', 'BYTES', [2], ['ein', 'Gleis']);
  const y = place('y', 'FP32', [4]);
  const loose = await part.run({ inputs: [x, text], outputs: [described(y)], loose: ['places', 'text out'] });
  expect(loose.map(({ name, shape }) => [name, shape])).toEqual([
    ['places', [1, 2]],
    ['text out', [2]],
  ]);
  expect(loose[0]!.data).toEqual(new Uint8Array(BigInt64Array.of(1n, 3n).buffer));
  expect(loose[1]!.data).toEqual(text.data);
  expect(floats(y)).toEqual([-0, -5, -0, -7]);
});

test('the error of a refused call has the words of ONNX Runtime, and the core runs the next call', async () => {
  const path = await writeScale('four', 4, 1);
  cores = new CpuCores({ count: 1 });
  const absent = cores.core(1).open(join(folder, 'absent.onnx'));
  await expect(absent).rejects.toMatchObject({ code: 'invalid', message: expect.stringContaining('absent.onnx') });
  const part = await cores.core(1).open(path);
  const [x, y] = [place('x', 'FP32', [5]), place('y', 'FP32', [5])];
  await expect(part.run(call([x], [y]))).rejects.toMatchObject({
    code: 'invalid',
    message: expect.stringMatching(/^a sub-graph failed on the CPU: .*dimension/),
  });
  await expect(part.run(call([], [place('y', 'FP32', [4])]))).rejects.toThrow(/^a sub-graph.*Missing Input: x/s);
  const [right, result] = [place('x', 'FP32', [4]), place('y', 'FP32', [4])];
  await expect(part.run(call([right], [result]))).resolves.toEqual([]);
  expect(() => cores.core(2)).toThrow('there is no core 2: there are 1, counted from 1');
});

test('a sub-graph stays open until its last user has released it', async () => {
  const path = await writeScale('shared', 1, 2);
  cores = new CpuCores({ count: 1 });
  const [first, second] = await Promise.all([1, 2].map(() => cores.core(1).open(path)));
  await first!.release();
  await first!.release();
  const [x, y] = [place('x', 'FP32', [1]), place('y', 'FP32', [1])];
  await expect(first!.run(call([x], [y]))).rejects.toThrow('the sub-graph shared.onnx was released');
  await second!.run(call([x], [y]));
  await second!.release();
  const again = await cores.core(1).open(path);
  await again.run(call([x], [y]));
});

/**
 * begun = 2 x, then y = begun: a loop that ends when the test writes 1 to the memory of the input `gate`. All are [1].
 */
function writeGated(name: string): Promise<string> {
  return write(name, (graph) => {
    const x = graph.input('x', float, [1]);
    const gate = graph.input('gate', float, [1]);
    const begun = graph.node('Mul', [x, graph.constant({ floats: 2 })]);
    graph.output(begun, float, [1], 'begun');
    const inner = new GraphBuilder('body', { captures: [gate] });
    inner.input('turn', ElementType.INT64, []);
    inner.input('goes_on', ElementType.BOOL, []);
    const state = inner.input('state', float, [1]);
    const body = inner.scope('body', () => {
      const most = inner.node('ReduceMax', [gate], { keepdims: 0 });
      inner.output(inner.node('Less', [most, inner.constant({ floats: 0.5 })]), ElementType.BOOL, [], 'still');
      inner.output(inner.node('Identity', [state]), float, [1], 'next');
      return inner.buildGraph();
    });
    const always = graph.node('Greater', [graph.constant({ floats: 1 }), graph.constant({ floats: 0 })]);
    // Takes many seconds, so that a test that fails before it opens the gate ends too.
    const turnsMax = graph.constant({ ints: 5_000_000 });
    const y = graph.node('Loop', [turnsMax, always, begun], { body: { graph: body } });
    graph.output(y, float, [1], 'y');
  });
}

test('a thread that ends finishes its call and rejects those behind it, and the next call starts a new thread', async () => {
  cores = new CpuCores({ count: 2 });
  const part = await cores.core(1).open(await writeGated('gated'));
  const other = await cores.core(2).open(await writeScale('other', 1, 2));
  const [x, gate] = [place('x', 'FP32', [1]), place('gate', 'FP32', [1])];
  const [begun, y] = [place('begun', 'FP32', [1]), place('y', 'FP32', [1])];
  const [one, two] = [place('x', 'FP32', [1]), place('y', 'FP32', [1])];
  set(x, 3);
  for (const each of [gate, begun, y]) set(each, 0);
  const running = part.run(call([x, gate], [begun, y]));
  const behind = part.run(call([x, gate], [begun, y])).catch((error: unknown) => error);
  await expect.poll(() => floats(begun)[0], { interval: 1 }).toBe(6);
  // The other core answers while the first one is in its call.
  await other.run(call([one], [two]));
  const ended = cores.core(1).end();
  expect(floats(y)).toEqual([0]);
  set(gate, 1);
  await running;
  expect(floats(y)).toEqual([6]);
  expect(await behind).toMatchObject({
    code: 'died',
    message: expect.stringContaining('core 1 is gone: it was ended'),
  });
  await ended;
  set(y, 0);
  await part.run(call([x, gate], [begun, y]));
  expect(floats(y)).toEqual([6]);
  await other.run(call([one], [two]));
  await cores.close();
  await expect(part.run(call([x, gate], [begun, y]))).rejects.toMatchObject({ code: 'cancelled' });
});

/** Threads of this process that may run on this core alone. */
async function pinnedTo(core: number): Promise<string[]> {
  const threads = await readdir('/proc/self/task');
  const pinned = await Promise.all(
    threads.map(async (id) => {
      const text = await readFile(`/proc/self/task/${id}/status`, 'utf8').catch(() => '');
      return new RegExp(`^Cpus_allowed_list:\\s*${core}$`, 'm').test(text) ? [id] : [];
    }),
  );
  return pinned.flat();
}

test.runIf(process.platform === 'linux')('a thread is pinned to the given core', async () => {
  const pinTo = readLogicalCores().at(-1)!.id;
  // Other files of this worker may have left theirs.
  const before = await pinnedTo(pinTo);
  cores = new CpuCores({ count: 1, cores: [pinTo] });
  await cores.core(1).open(await writeScale('pinned', 1, 2));
  const after = await pinnedTo(pinTo);
  expect(after.filter((id) => !before.includes(id))).toHaveLength(1);
});
