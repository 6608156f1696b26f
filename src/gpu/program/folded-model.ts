/** A graph with fixed shapes as ONNX Runtime folds it, without what it adds for its own CPU kernels. */
import { mkdir, rm } from 'node:fs/promises';
import { readModel, writeModel, type ModelProto, type NodeProto } from '../../onnx/index.ts';
import { ProgramError } from './error.ts';
import { temporaryPath } from './files.ts';
import { fold } from './fold-client.ts';

/** ONNX Runtime has no kernel for a node on the CPU (bfloat16 mostly), or does not know it: no word on the model itself. */
const missingKernel = /could not find an implementation|not a registered function|no op registered/i;

/** Casts around nodes that ONNX Runtime computes in 32 bits because its CPU kernels lack 16. */
const insertedCast = 'InsertedPrecisionFreeCast_';

/**
 * Folds shape arithmetic and constants. Where ONNX Runtime lacks a kernel the graph comes back as it was: what does not
 * follow from shapes alone is then reported, node by node, by whoever needs it.
 *
 * Throws {@link ProgramError} `folding` when ONNX Runtime refuses the graph.
 */
export async function foldedModel(model: ModelProto, folder: string): Promise<ModelProto> {
  await mkdir(folder, { recursive: true });
  const modelPath = temporaryPath(folder, 'shaped.onnx');
  const optimizedPath = temporaryPath(folder, 'folded.onnx');
  try {
    await writeModel(model, modelPath, { externalData: 'never' });
    await fold({ op: 'optimize', modelPath, optimizedPath });
    return withoutInsertedCasts(await readModel(optimizedPath, { externalData: 'load' }));
  } catch (error) {
    if (error instanceof ProgramError && missingKernel.test(error.message)) return model;
    throw error;
  } finally {
    await Promise.all([modelPath, optimizedPath].map((path) => rm(path, { force: true })));
  }
}

const isInserted = ({ opType, name }: NodeProto): boolean => opType === 'Cast' && name.startsWith(insertedCast);

function withoutInsertedCasts(model: ModelProto): ModelProto {
  const { graph } = model;
  if (!graph.node.some(isInserted)) return model;
  const outputs = new Set(graph.output.map(({ name }) => name));
  /** Values under the names that stay. */
  const renamed = new Map<string, string>();
  const removed = new Set<NodeProto>();
  const made = new Set(graph.node.flatMap(({ output }) => output));
  for (const node of graph.node) {
    if (!isInserted(node)) continue;
    const [from = '', to = ''] = [node.input[0], node.output[0]];
    // Behind a node the cast gives the value its own name back; before a node it gives it another.
    if (to.startsWith(insertedCast)) renamed.set(to, from);
    else if (made.has(from) && !outputs.has(from)) renamed.set(from, to);
    else continue;
    removed.add(node);
  }
  const nameOf = (value: string): string => {
    let name = value;
    for (let next = renamed.get(name); next !== undefined; next = renamed.get(name)) name = next;
    return name;
  };
  const node = graph.node
    .filter((each) => !removed.has(each))
    .map((each) => Object.assign({}, each, { input: each.input.map(nameOf), output: each.output.map(nameOf) }));
  return { ...model, graph: { ...graph, node } };
}
