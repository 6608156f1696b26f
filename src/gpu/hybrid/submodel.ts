/**
 * Writes parts of a prepared graph as ONNX models for the CPU's share. A part has its own weights; all other values
 * from outside are its inputs.
 */
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import {
  dataTypeOf,
  elementTypeOf,
  type Graph,
  nestedGraphs,
  renamed,
  serializeModel,
  tensorProto,
  writeModel,
  type ModelProto,
  type TensorProto,
  type ValueInfoProto,
  tensorType,
} from '../../onnx/index.ts';
import { typedGraph } from '../../operators/index.ts';
import { elementBytes, elementCount, onnxRuntimeType } from '../../tensor/index.ts';
import { exists } from '../../tools/index.ts';
import { readRange } from '../program/files.ts';
import type { PreparedGraph, PreparedNode } from '../program/prepared.ts';
import { GpuError } from '../types.ts';

/** Whether ONNX Runtime can take the value as an input and return it as an output. */
export function canCross({ values }: PreparedGraph, graph: Graph, value: string): boolean {
  const datatype = values.get(value)?.datatype ?? dataTypeOf(graph.type(value)?.elementType ?? 0);
  return datatype !== undefined && onnxRuntimeType(datatype) !== undefined;
}

/** Some nodes, the values that they read from outside, and those of theirs that are read outside. */
export interface GraphPart {
  readonly nodes: readonly PreparedNode[];
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
}

/** @param made by nodes @param wanted values that are read outside the part, and the graph's outputs */
export function partOfGraph(
  { constants, inputs }: PreparedGraph,
  nodes: readonly PreparedNode[],
  made: { has(value: string): boolean },
  wanted: ReadonlySet<string>,
): GraphPart {
  const own = new Set(nodes.flatMap(({ outputs }) => outputs));
  const comes = (value: string): boolean =>
    !own.has(value) && !constants.has(value) && (made.has(value) || inputs.includes(value));
  return {
    nodes,
    inputs: [...new Set(nodes.flatMap(({ uses }) => uses.filter(comes)))],
    outputs: [...own].filter((value) => wanted.has(value) && !constants.has(value)),
  };
}

/** The weights and constants of a prepared graph, by name; undefined for other values. */
export function initializersOf({ base, model, weights, constants }: PreparedGraph) {
  const storedByName = new Map(model.graph.initializer.map((tensor) => [tensor.name, tensor]));
  return (name: string): { readonly tensor: TensorProto; readonly isWeight: boolean } | undefined => {
    const place = weights.get(name);
    const weight = place === undefined ? undefined : base.weights[place];
    if (weight !== undefined) {
      const { path, byteOffset } = weight.source;
      const bytes = elementCount(weight.shape) * elementBytes[weight.datatype];
      return {
        tensor: {
          name,
          dataType: elementTypeOf(weight.datatype),
          dims: weight.shape.map(BigInt),
          source: () => readRange(path, byteOffset, bytes),
        },
        isWeight: true,
      };
    }
    const constant = constants.get(name);
    if (constant !== undefined) return { tensor: tensorProto(name, constant), isWeight: false };
    const stored = storedByName.get(name);
    return stored === undefined ? undefined : { tensor: stored, isWeight: false };
  };
}

/** Writes parts of one prepared graph to the cache. Parts that differ only in the names of values share a file. */
export function partWriter(prepared: PreparedGraph, cacheFolder: string) {
  const { model } = prepared;
  const graph = typedGraph(model);
  const initializers = initializersOf(prepared);
  const info = (value: string, name: string): ValueInfoProto => {
    if (!canCross(prepared, graph, value)) {
      throw new GpuError('invalid', `'${value}' cannot cross between processors: ONNX Runtime is given no such values`);
    }
    const known = prepared.values.get(value);
    const type =
      known === undefined
        ? tensorType(graph.type(value)!.elementType!)
        : tensorType(elementTypeOf(known.datatype), known.shape);
    return { name, type };
  };
  /** @throws GpuError 'invalid' for an input or output that {@link canCross} refuses */
  return async (part: GraphPart, keepNames = part.nodes.some(({ proto }) => nestedGraphs(proto).length > 0)) => {
    const names = keepNames ? sameNames(part) : shortNames(part);
    const nameOf = (value: string): string => names.get(value) ?? value;
    const initializer: TensorProto[] = [];
    const identities: unknown[] = [];
    for (const value of new Set(part.nodes.flatMap(({ uses }) => uses))) {
      if (names.has(value)) continue;
      const found = initializers(value);
      if (found === undefined) continue;
      initializer.push(found.tensor);
      const { rawData, dims, dataType } = found.tensor;
      const content = rawData === undefined ? value : createHash('sha256').update(rawData).digest('hex');
      identities.push([value, dataType, dims.map(Number), found.isWeight, content]);
    }
    const protos = part.nodes.map(({ proto, name }, index) => ({ ...proto, name: keepNames ? name : `n${index}` }));
    const node = renamed(protos, names);
    const partModel: ModelProto = {
      ...model,
      graph: {
        name: 'part',
        node,
        initializer: [],
        input: part.inputs.map((value) => info(value, nameOf(value))),
        output: part.outputs.map((value) => info(value, nameOf(value))),
        valueInfo: [],
      },
    };
    const hash = createHash('sha256')
      .update(prepared.base.modelHash)
      .update(JSON.stringify(identities))
      .update(serializeModel(partModel))
      .digest('hex');
    const modelPath = join(cacheFolder, 'parts', `${hash.slice(0, 40)}.onnx`);
    if (!(await exists(modelPath))) {
      const whole = { ...partModel, graph: { ...partModel.graph, initializer } };
      await writeModel(whole, modelPath);
    }
    // `names`: the names in the file, by the names in the graph.
    return { modelPath, names };
  };
}

function sameNames({ nodes, inputs }: GraphPart): Map<string, string> {
  return new Map([...inputs, ...nodes.flatMap(({ outputs }) => outputs)].map((value) => [value, value]));
}

function shortNames({ nodes, inputs }: GraphPart): Map<string, string> {
  const names = new Map(inputs.map((value, index) => [value, `i${index}~`]));
  let made = 0;
  for (const { outputs } of nodes) for (const value of outputs) names.set(value, `v${made++}~`);
  return names;
}

/**
 * Writes nodes to a model file in the cache with their weights and names, to run or profile them on the CPU. They must not read
 * values of other nodes.
 */
export async function writePrepared(
  prepared: PreparedGraph,
  nodes: readonly PreparedNode[],
  wanted: readonly string[],
  cacheFolder: string,
) {
  const part = partOfGraph(prepared, nodes, new Set(), new Set(wanted));
  const { modelPath } = await partWriter(prepared, cacheFolder)(part, true);
  return { modelPath, inputs: part.inputs, outputs: part.outputs };
}
