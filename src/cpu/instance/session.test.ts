import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ElementType, elementTypeOf, GraphBuilder, writeModel } from '../../onnx/index.ts';
import { elementBytes, elementCount, packBytes, tensorOf, type DataType, type Tensor } from '../../tensor/index.ts';
import { ModelSession } from './session.ts';

async function sessionOf(graph: GraphBuilder): Promise<ModelSession> {
  const folder = await mkdtemp(join(tmpdir(), 'turntable-session-'));
  try {
    const path = join(folder, 'model.onnx');
    await writeModel(graph.build(), path);
    return await ModelSession.open(path, { threads: 1, spinning: false, isAlone: true });
  } finally {
    await rm(folder, { recursive: true });
  }
}

test('outputs come in the order in which the model declares them, whatever they are called', async () => {
  const graph = new GraphBuilder('names');
  const names = ['b', '311', 'onnx::Gather_308', '__proto__', '10', 'constructor', '2'];
  const x = graph.input('toString', ElementType.FLOAT, ['batch']);
  for (const name of names) graph.output(graph.node('Neg', [x]), ElementType.FLOAT, ['batch'], name);
  const session = await sessionOf(graph);
  const inputs = [tensorOf('toString', 'FP32', [2], Float32Array.of(1, 2))];
  const all = session.runTensors(inputs);
  expect(all.map(({ name }) => name)).toEqual(names);
  expect(all.every(({ data }) => Buffer.from(data).equals(Buffer.from(Float32Array.of(-1, -2).buffer)))).toBe(true);
  const some = session.runTensors(inputs, ['2', '__proto__', 'b']);
  expect(some.map(({ name }) => name)).toEqual(['2', '__proto__', 'b']);
});

test('an input may be called __proto__', async () => {
  const graph = new GraphBuilder('proto');
  const x = graph.input('__proto__', ElementType.FLOAT, ['batch']);
  graph.output(graph.node('Neg', [x]), ElementType.FLOAT, ['batch'], 'y');
  const session = await sessionOf(graph);
  const [y] = session.runTensors([tensorOf('__proto__', 'FP32', [1], Float32Array.of(4))]);
  expect(new Float32Array(y!.data.slice().buffer)).toEqual(Float32Array.of(-4));
});

test('text that the binding would change is refused, naming tensor and element', async () => {
  const graph = new GraphBuilder('text');
  graph.output(graph.node('Identity', [graph.input('s', ElementType.STRING, ['n'])]), ElementType.STRING, ['n'], 't');
  const session = await sessionOf(graph);
  const run = (...elements: (string | Uint8Array)[]): Tensor[] =>
    session.runTensors([{ name: 's', datatype: 'BYTES', shape: [elements.length], data: packBytes(elements) }]);
  expect(() => run('a', 'he\0llo')).toThrow(/'s': element 1 holds a NUL byte/);
  expect(() => run(Uint8Array.of(0xff, 0xd8))).toThrow(/'s': element 0 is not UTF-8/);
  const exact = ['', 'é', '\ufffd', '😀'];
  expect(run(...exact)[0]!.data).toEqual(packBytes(exact));
  expect(run()[0]).toMatchObject({ shape: [0] });
});

test('every datatype of ONNX Runtime goes through a session bit for bit', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'turntable-session-'));
  try {
    const datatypes = Object.keys(elementBytes).filter((type) => type !== 'BF16' && type !== 'BYTES') as DataType[];
    const graph = new GraphBuilder('types');
    for (const type of datatypes) {
      const x = graph.input(type, elementTypeOf(type), ['a', 'b']);
      graph.output(graph.node('Identity', [x]), elementTypeOf(type), ['a', 'b'], `${type} out`);
    }
    const path = join(folder, 'types.onnx');
    await writeModel(graph.build(), path);
    const session = await ModelSession.open(path, { threads: 1, spinning: false, isAlone: true });
    for (const shape of [
      [2, 3],
      [0, 3],
    ]) {
      const inputs = datatypes.map((datatype): Tensor => {
        const bytes = elementBytes[datatype] * elementCount(shape);
        const data = Uint8Array.from({ length: bytes }, (_, index) => (datatype === 'BOOL' ? 1 : (index * 37) % 251));
        return { name: datatype, datatype, shape, data };
      });
      const outputs = session.runTensors(inputs);
      expect(outputs.map(({ name, datatype, data }) => [name, datatype, new Uint8Array(data)])).toEqual(
        inputs.map(({ datatype, data }) => [`${datatype} out`, datatype, data]),
      );
    }
  } finally {
    await rm(folder, { recursive: true });
  }
});
