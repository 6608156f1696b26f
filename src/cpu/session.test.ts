import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { elementTypeOf, GraphBuilder, writeModel } from '../onnx/index.ts';
import { elementBytes, elementCount, type DataType, type Tensor } from '../tensor/index.ts';
import { Session } from './session.ts';

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
    const session = await Session.load(path, { threads: 1, spinning: false });
    for (const shape of [
      [2, 3],
      [0, 3],
    ]) {
      const inputs = datatypes.map((datatype): Tensor => {
        const bytes = elementBytes[datatype] * elementCount(shape);
        const data = Uint8Array.from({ length: bytes }, (_, index) => (datatype === 'BOOL' ? 1 : (index * 37) % 251));
        return { name: datatype, datatype, shape, data };
      });
      const outputs = await session.run(inputs, undefined);
      expect(outputs.map(({ name, datatype, data }) => [name, datatype, new Uint8Array(data)])).toEqual(
        inputs.map(({ datatype, data }) => [`${datatype} out`, datatype, data]),
      );
    }
  } finally {
    await rm(folder, { recursive: true });
  }
});
