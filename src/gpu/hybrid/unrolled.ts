/** The model file that plans over GPU and CPU are made from. */
import { createHash } from 'node:crypto';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { replaceFile } from '../../tools/index.ts';
import {
  attributeOf,
  Graph,
  loadUnroll,
  readModel,
  writeModel,
  type ModelProto,
  type NodeProto,
} from '../../onnx/index.ts';
import { inferShapes } from '../../profile/index.ts';
import { baseOf } from '../program/compile-model.ts';
import { prepareGraph } from '../program/prepare.ts';
import type { PreparedGraph } from '../program/prepared.ts';
import type { InputShapes } from '../program/types.ts';
import { exists } from './submodel.ts';

/** Goes up when unrolling comes to give other graphs, so that none made before is found in the cache. */
const unrolledFormat = 3;

const recurrent = new Set(['LSTM', 'GRU', 'RNN']);
/** ONNX, LSTM: with `layout` 1 the batch comes first. */
const batchFirst = (node: NodeProto): boolean => attributeOf(node, 'layout', 0) === 1;
/** Beyond it the weights lie beside the model. */
const modelBytesMax = 1.5e9;

/** Steps of the longest recurrent operator. */
function stepsMaxOf({ nodes, values }: PreparedGraph): number {
  const steps = nodes.flatMap(({ proto }) =>
    recurrent.has(proto.opType) ? [values.get(proto.input[0] ?? '')?.shape[batchFirst(proto) ? 1 : 0] ?? 0] : [],
  );
  return Math.max(0, ...steps);
}

/**
 * Shapes of the values of a model as it stands in its file. Folding takes some of its nodes away (two transposes that
 * undo each other, a dropout), and their values with them, but cells hand over what runs through them too.
 */
function shapesInFile(model: ModelProto, shapes: InputShapes): (value: string) => readonly number[] | undefined {
  const given = new Map(shapes.map(({ name, shape }) => [name, { elementType: undefined, shape }]));
  // Sizes that do not follow from the inputs' are none at all.
  const { values } = inferShapes(new Graph(model, given), { openSize: () => undefined });
  return (value) => values.get(value)?.dims;
}

/**
 * A model with its recurrent operators unrolled into cells, in the cache; the model itself where there is nothing to
 * unroll.
 *
 * @param cells of the longest operator; those of others have as many steps
 *
 * @throws ProgramError, OnnxError
 */
export async function unrolledModel(
  modelPath: string,
  shapes: InputShapes,
  cells: number,
  cacheFolder: string,
): Promise<string> {
  const base = await baseOf(modelPath, cacheFolder);
  if (!base.model.graph.node.some(({ opType }) => recurrent.has(opType))) return modelPath;
  const form = createHash('sha256')
    .update(JSON.stringify([unrolledFormat, shapes, cells]))
    .digest('hex')
    .slice(0, 16);
  const folder = join(cacheFolder, 'unrolled');
  const name = `${base.modelHash}-${form}`;
  const path = join(folder, `${name}.onnx`);
  if (await exists(path)) return path;
  const prepared = await prepareGraph(base, shapes, cacheFolder);
  const model = await readModel(modelPath, { externalData: 'load' });
  const steps = Math.max(1, Math.ceil(stepsMaxOf(prepared) / cells));
  const inFile = shapesInFile(model, shapes);
  const { unrollRecurrent } = await loadUnroll();
  const unrolled = unrollRecurrent(model, {
    steps,
    shapes: (value) => prepared.values.get(value)?.shape ?? inFile(value),
  });
  if (unrolled.model === model) return modelPath;
  const weightBytes = (await stat(modelPath)).size;
  const externalData = weightBytes < modelBytesMax ? 'never' : { location: `${name}.data` };
  await replaceFile(path, (temporary) => writeModel(unrolled.model, temporary, { externalData }));
  return path;
}
