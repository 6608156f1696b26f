/**
 * Folds a graph with fixed shapes by ONNX Runtime, removes the casts that it adds for its CPU kernels, and asks it for
 * the types of all values.
 */
import { mkdir, readFile } from 'node:fs/promises';
import { temporaryFile } from '../../tools/index.ts';
import {
  nodeProto,
  parseModel,
  unrollLoops,
  writeModel,
  type ModelProto,
  type NodeProto,
  type ValueType,
} from '../../onnx/index.ts';
import { typedGraph } from '../../operators/index.ts';
import { ProgramError } from './error.ts';
import { fold, inferTypes } from './fold-client.ts';
import { hasInsertedCasts, withoutInsertedCasts } from './precision.ts';

/**
 * ONNX Runtime lacks a CPU kernel (mostly for bfloat16) or does not know an operator. The GPU engine may still have it.
 */
const missingKernel = /could not find an implementation|not a registered function|no op registered/i;

export interface FoldedModel {
  readonly model: ModelProto;
  /** By value, as ONNX Runtime infers them; empty if it cannot open the graph. */
  readonly types: ReadonlyMap<string, ValueType>;
}

/**
 * Folds shape arithmetic and constants. If ONNX Runtime lacks a kernel, the graph is returned as it is.
 *
 * @throws ProgramError 'folding' if ONNX Runtime refuses the graph
 */
export async function foldedModel(model: ModelProto, folder: string): Promise<FoldedModel> {
  await mkdir(folder, { recursive: true });
  await using shaped = temporaryFile(folder, 'shaped.onnx');
  await using optimized = temporaryFile(folder, 'folded.onnx');
  try {
    await writeModel(model, shaped.path, { externalData: 'never' });
    await fold(shaped.path, optimized.path);
    const folded = parseModel(await readFile(optimized.path));
    const withoutLoops = unrollLoops(folded);
    if (withoutLoops !== folded) return await foldedModel(withoutLoops, folder);
    const shapesLeft = inlinedShapes(folded);
    if (shapesLeft > 0 && shapesLeft !== inlinedShapes(model)) return await foldedModel(folded, folder);
    const types = await typesOf(folded, folder);
    if (!hasInsertedCasts(folded)) return { model: folded, types: types ?? new Map() };
    const restored = withoutInsertedCasts(folded, typedGraph(folded, types).types);
    const restoredTypes = await typesOf(restored, folder);
    // If ONNX Runtime cannot open the graph without the casts, they stay: slower, but right.
    return restoredTypes === undefined
      ? { model: folded, types: types ?? new Map() }
      : { model: restored, types: restoredTypes };
  } catch (error) {
    if (!(error instanceof ProgramError)) throw error;
    if (missingKernel.test(error.message)) return { model, types: new Map() };
    throw ofBranch(error.message) ?? error;
  }
}

/**
 * ONNX Runtime checks the branches of an If alike, whichever a call takes: a sound model with one for each sampling rate
 * has no size that fits both. The owner can export one of them.
 */
function ofBranch(message: string): ProgramError | undefined {
  const [, node, why] = /Node \(([^()]*)\) Op \(If\) \[TypeInferenceError\] (.*)/s.exec(message) ?? [];
  if (node === undefined || why === undefined) return undefined;
  const reason = why.replace(/^Graph attribute inferencing failed: /, '');
  const advice = 'export the model for one branch, without this If, to run it on a GPU';
  return new ProgramError('folding', `If '${node}' has a branch that these sizes do not fit (${reason}): ${advice}`);
}

/** ONNX Runtime folds a graph before it inlines functions, so their shape arithmetic needs another round. */
const inlinedShapes = ({ graph }: ModelProto): number =>
  graph.node.filter(({ opType, output }) => opType === 'Shape' && output[0]?.startsWith('_inlfunc_')).length;

/**
 * Types and shapes of every value by ONNX Runtime's inference: a session with every value as an output reports them
 * without a run. Undefined if ONNX Runtime cannot open the graph.
 */
async function typesOf(model: ModelProto, folder: string): Promise<ReadonlyMap<string, ValueType> | undefined> {
  const { graph } = model;
  const outputs = new Set(graph.output.map(({ name }) => name));
  const values = graph.node.flatMap(({ output }) => output.filter((name) => name !== '' && !outputs.has(name)));
  const types = await inferOutputs(model, graph.node, [...outputs, ...values], folder);
  if (types === undefined) return undefined;
  // A session reports a value of unknown rank like a scalar. The length of its shape distinguishes them.
  const scalars = [...types].flatMap(([name, { shape }]) => (shape?.length === 0 ? [name] : []));
  if (scalars.length === 0) return types;
  const ranks = scalars.map((name) => nodeProto('Shape', [name], [rankOf(name)], {}, { name: `rank of ${name}` }));
  const typesOfRanks = await inferOutputs(model, [...graph.node, ...ranks], scalars.map(rankOf), folder);
  return new Map(
    [...types].map(([name, type]) => {
      const isScalar = type.shape?.length !== 0 || typesOfRanks?.get(rankOf(name))?.shape?.[0] === 0;
      return [name, isScalar ? type : { elementType: type.elementType, shape: undefined }];
    }),
  );
}

const rankOf = (name: string): string => `${name}~rank`;

async function inferOutputs(
  model: ModelProto,
  node: NodeProto[],
  names: readonly string[],
  folder: string,
): Promise<ReadonlyMap<string, ValueType> | undefined> {
  await using file = temporaryFile(folder, 'typed.onnx');
  const output = names.map((name) => ({ name }));
  try {
    const whole = { ...model, graph: { ...model.graph, node, output, valueInfo: [] } };
    await writeModel(whole, file.path, { externalData: 'never' });
    return await inferTypes(file.path);
  } catch (error) {
    if (error instanceof ProgramError) return undefined;
    throw error;
  }
}
