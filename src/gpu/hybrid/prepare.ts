/** The graph for plans over GPU and CPU: folded for its input shapes, with recurrent operators unrolled into cells. */
import { LRUCache } from 'lru-cache';
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { exists, getOrStart } from '../../tools/index.ts';
import { baseOf } from '../program/compile-model.ts';
import { prepareGraph } from '../program/prepare.ts';
import type { PreparedGraph } from '../program/prepared.ts';
import type { InputShapes } from '../program/types.ts';
import { attributeOf, Graph, readServed, writeModel, type ModelProto, type NodeProto } from '../../onnx/index.ts';
import { factsOf, inferShapes, loadUnroll } from '../../operators/index.ts';

/** Part of the cache's key. Increase it when unrolling makes other graphs than before. */
const unrolledFormat = 3;

const isRecurrent = (node: NodeProto): boolean => factsOf(node)?.cost === 'recurrence';
/** ONNX: a recurrent operator with `layout` 1 takes [batch, time, size], with 0 [time, batch, size]. */
const batchFirst = (node: NodeProto): boolean => attributeOf(node, 'layout', 0) === 1;

/** Steps of the longest recurrent operator. */
function stepsMaxOf({ nodes, values }: PreparedGraph): number {
  const steps = nodes.flatMap(({ proto }) =>
    isRecurrent(proto) ? [values.get(proto.input[0] ?? '')?.shape[batchFirst(proto) ? 1 : 0] ?? 0] : [],
  );
  return Math.max(0, ...steps);
}

/**
 * Shapes of all values in the model file. Folding removes nodes (a dropout, two transposes that undo each other) and
 * their values, but unrolling needs the shapes of these too.
 */
function shapesInFile(model: ModelProto, shapes: InputShapes): (value: string) => readonly number[] | undefined {
  const declared = new Map(shapes.map(({ name, shape }) => [name, { elementType: undefined, shape }]));
  // Sizes that do not follow from the inputs stay unknown.
  const { values } = inferShapes(new Graph(model, declared), { openSize: () => undefined });
  return (value) => values.get(value)?.dims;
}

/**
 * Unrolls a model's recurrent operators into cells.
 *
 * @param cells for the longest operator; cells of the others have as many steps
 * @returns the path of the unrolled model in the cache, or `modelPath` if there is nothing to unroll
 * @throws ProgramError, OnnxError
 */
export async function unrolledModel(
  modelPath: string,
  shapes: InputShapes,
  cells: number,
  cacheFolder: string,
): Promise<string> {
  const base = await baseOf(modelPath, cacheFolder);
  if (!base.model.graph.node.some(isRecurrent)) return modelPath;
  const form = createHash('sha256')
    .update(JSON.stringify([unrolledFormat, shapes, cells]))
    .digest('hex')
    .slice(0, 16);
  const path = join(cacheFolder, 'unrolled', `${base.modelHash}-${form}.onnx`);
  if (await exists(path)) return path;
  const prepared = await prepareGraph(base, shapes, cacheFolder);
  const { model } = await readServed(modelPath);
  const steps = Math.max(1, Math.ceil(stepsMaxOf(prepared) / cells));
  const inFile = shapesInFile(model, shapes);
  const { unrollRecurrent } = await loadUnroll();
  const unrolled = unrollRecurrent(model, {
    steps,
    shapes: (value) => prepared.values.get(value)?.shape ?? inFile(value),
  });
  if (unrolled === model) return modelPath;
  await writeModel(unrolled, path);
  return path;
}

export interface HybridGraphOptions {
  readonly modelPath: string;
  readonly shapes: InputShapes;
  /** Number of cells for the longest recurrent operator. */
  readonly cells: number;
  readonly cacheFolder: string;
}

/** The profile and each plan of a function need the same graph. */
const graphs = new LRUCache<string, Promise<PreparedGraph>>({ max: 4 });

/** @throws ProgramError, OnnxError */
export function hybridGraph({ modelPath, shapes, cells, cacheFolder }: HybridGraphOptions): Promise<PreparedGraph> {
  const key = JSON.stringify([modelPath, shapes, cells, cacheFolder]);
  return getOrStart(graphs, key, async () => {
    const path = await unrolledModel(modelPath, shapes, cells, cacheFolder);
    return await prepareGraph(await baseOf(path, cacheFolder), shapes, cacheFolder);
  });
}
