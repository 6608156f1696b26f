/**
 * What all programs of a function share: its weights by layers, and its graph with the weights as inputs. So ONNX
 * Runtime folds shape arithmetic without reading weights, and cannot change one. The layout depends on the model alone,
 * and residency and plans hold for every input shape.
 */
import { createHash } from 'node:crypto';
import { mkdir, rm, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { temporaryPath, writeWhole } from '../../tools/index.ts';
import {
  capturedBy,
  dataTypeOf,
  elementTypeOf,
  extract,
  modelOf,
  readStructure,
  servedModel,
  serializeModel,
  tensorBytes,
  weightLocations,
  writeModel,
  type Graph,
  type GraphNode,
  type ModelProto,
  type NodeProto,
  type Weight,
  type WeightLocation,
  tensorType,
} from '../../onnx/index.ts';
import { factsOf, layers, typedGraph, type Layer, type Narrow } from '../../operators/index.ts';
import type { DataType, Tensor } from '../../tensor/index.ts';
import { ProgramError } from './error.ts';
import { runModel } from './fold-client.ts';
import { jointWeights } from './joint-weights.ts';
import { hashModel } from './model-hash.ts';
import type { WeightSource } from './types.ts';
import { isFrontierKept, isWeight, takesArgument } from './weights.ts';

export interface BaseWeight {
  /** The value's name in the graph. */
  readonly name: string;
  readonly datatype: DataType;
  readonly shape: readonly number[];
  readonly layer: number;
  readonly source: WeightSource;
  /** It may be kept in 16 bits: only products, recurrent layers and lookups read it, as their weight or a product's bias. */
  readonly narrowable: boolean;
}

export type FunctionBase = Awaited<ReturnType<typeof prepareBase>>;

interface Draft extends Omit<BaseWeight, 'source'> {
  readonly location: WeightLocation | undefined;
  /** The content, for weights without a location. */
  readonly bytes: () => Uint8Array;
}

/** For each result of an Identity, the value that it copies. */
function aliases(graph: Graph): Map<string, string> {
  const alias = new Map<string, string>();
  for (const { proto, outputs } of graph.nodes) {
    const [output] = outputs;
    const [input] = proto.input;
    if (proto.opType !== 'Identity' || proto.domain !== '' || output === undefined || input === undefined) continue;
    alias.set(output, alias.get(input) ?? input);
  }
  return alias;
}

/**
 * Values that follow from weights alone and that a node of a call reads: they are computed once. Views stay in the
 * graph, since they cost nothing. So do lookups in a table, and transposes that a product takes along.
 */
function derivedValues(graph: Graph): Map<string, GraphNode> {
  const derived = new Map<string, GraphNode>();
  const seen = new Set<string>();
  const visit = (value: string): void => {
    if (seen.has(value)) return;
    seen.add(value);
    const producer = graph.producer(value);
    if (producer?.constant !== true || graph.weight(value) !== undefined) return;
    if (!graph.weightsBehind(value).some((weight) => isWeight(weight))) return;
    if (isFrontierKept(graph, producer)) {
      for (const input of producer.uses) visit(input);
    } else {
      derived.set(value, producer);
    }
  };
  for (const node of graph.nodes) if (!node.constant) for (const value of node.uses) visit(value);
  for (const value of graph.outputs) visit(value);
  return derived;
}

async function computeDerived(
  model: ModelProto,
  graph: Graph,
  names: readonly string[],
  folder: string,
): Promise<readonly Tensor[]> {
  if (names.length === 0) return [];
  const modelPath = temporaryPath(folder, 'derive.onnx');
  try {
    await writeModel(extract(model, names, graph), modelPath);
    const derived = await runModel(modelPath, [], false);
    const text = derived.find(({ datatype }) => datatype === 'BYTES');
    if (text !== undefined) throw new ProgramError('folding', `the constant '${text.name}' holds text, not numbers`);
    return derived;
  } finally {
    await Promise.all([modelPath, `${modelPath}.data`].map((path) => rm(path, { force: true })));
  }
}

/** The layer of each value. */
function layersOfValues(layerList: readonly Layer[]): Map<string, number> {
  const result = new Map<string, number>();
  for (const { index, nodes } of layerList) {
    for (const { outputs } of nodes) for (const value of outputs) result.set(value, index);
  }
  return result;
}

/** Nodes that an output depends on, without Identity nodes. */
function livingNodes(graph: Graph, alias: ReadonlyMap<string, string>, given: ReadonlySet<string>): NodeProto[] {
  const needed = new Set(graph.outputs);
  const living: NodeProto[] = [];
  for (const { proto, outputs, uses } of graph.nodes.toReversed()) {
    const wanted = outputs.filter((value) => needed.has(value) && !given.has(value));
    if (wanted.length === 0) continue;
    const input = proto.input.map((value) => alias.get(value) ?? value);
    living.push({ ...proto, input });
    for (const value of input) needed.add(value);
    // Values that nested graphs capture are not renamed.
    for (const value of uses) if (!proto.input.includes(value)) needed.add(value);
  }
  return living.toReversed();
}

/** The model with its weights as inputs, so that ONNX Runtime knows their shapes but not their elements. */
function withWeightsAsInputs(
  model: ModelProto,
  node: readonly NodeProto[],
  weights: readonly BaseWeight[],
): ModelProto {
  const names = new Set(weights.map(({ name }) => name));
  const { trainingInfo: _training, ...rest } = model;
  const used = new Set(node.flatMap((each) => [...each.input, ...capturedBy(each)]));
  const { graph } = model;
  const defaults = new Set(graph.initializer.map(({ name }) => name));
  return {
    ...rest,
    graph: {
      name: graph.name,
      node: [...node],
      initializer: graph.initializer.filter(({ name }) => !names.has(name)),
      input: [
        ...graph.input.filter(({ name }) => !names.has(name) && !defaults.has(name)),
        ...weights
          .filter(({ name }) => used.has(name) || graph.output.some((output) => output.name === name))
          .map(({ name, datatype, shape }) => ({ name, type: tensorType(elementTypeOf(datatype), shape) })),
      ],
      output: graph.output,
      valueInfo: [],
      ...(graph.sparseInitializer === undefined ? {} : { sparseInitializer: graph.sparseInitializer }),
    },
  };
}

/** Whether only products add the bias. They need it in the type of their result. */
function isNarrowableBias(graph: Graph, value: string): boolean {
  const users = graph.consumers(value);
  if (users.length === 0 || graph.outputs.includes(value)) return false;
  return users.every(({ proto }) => {
    if (factsOf(proto)?.matrices === 'general')
      return proto.input.every((input, place) => input !== value || place === 2);
    const other = proto.input.find((input) => input !== value) ?? '';
    const product = graph.producer(other)?.proto;
    if (proto.opType !== 'Add' || product === undefined || factsOf(product)?.matrices !== 'plain') return false;
    return graph.weightsBehind(product.input[1]!).length > 0;
  });
}

/** The inputs of products, recurrent layers and lookups that are weights. */
const weightPlaces: Partial<Record<Narrow, readonly number[]>> = { product: [1], recurrent: [1, 2], lookup: [0] };

/** Whether a weight is only read as that of products, convolutions, recurrent layers and lookups, perhaps transposed. */
function isNarrowable(graph: Graph, value: string): boolean {
  const users = graph.consumers(value);
  if (users.length === 0 || graph.outputs.includes(value)) return false;
  return users.every(({ proto, outputs }) => {
    if (proto.opType === 'Identity') return outputs.every((output) => isNarrowable(graph, output));
    if (proto.opType === 'Transpose') return outputs.every((output) => isNarrowable(graph, output));
    const places = weightPlaces[factsOf(proto)?.narrow ?? 'row'] ?? [];
    return proto.input.every((input, place) => input !== value || places.includes(place));
  });
}

/** Values in use, and those that a node reads as an argument (a shape, axes): these are no weights. */
function usesOf(
  graph: Graph,
  alias: ReadonlyMap<string, string>,
  nodes: readonly NodeProto[],
): { readonly inUse: ReadonlySet<string>; readonly asArgument: ReadonlySet<string> } {
  const asArgument = new Set<string>();
  const inUse = new Set(graph.outputs.map((value) => alias.get(value) ?? value));
  for (const node of nodes) {
    for (const [place, value] of node.input.entries()) {
      inUse.add(value);
      if (takesArgument(node, place)) asArgument.add(value);
    }
  }
  return { inUse, asArgument };
}

interface DraftSources extends ReturnType<typeof usesOf> {
  readonly graph: Graph;
  readonly layers: ReturnType<typeof layers>;
  readonly layerOfValue: ReadonlyMap<string, number>;
  readonly alias: ReadonlyMap<string, string>;
  readonly locations: ReadonlyMap<string, WeightLocation>;
  readonly derived: Awaited<ReturnType<typeof computeDerived>>;
}

/**
 * The weights in use, in the order of the layout: by layers, and within a layer those of joint products first, then the
 * order of the file.
 */
function draftsOf(sources: DraftSources): Draft[] {
  const { graph, layerOfValue, alias, locations, derived, inUse, asArgument } = sources;
  const layerOfWeight = new Map<Weight, number>();
  for (const { index, weights } of sources.layers) for (const weight of weights) layerOfWeight.set(weight, index);
  const joint = new Map(
    jointWeights(graph, layerOfWeight, alias).flatMap(({ layer, names }) =>
      names.map((name, place) => [name, { layer, place }] as const),
    ),
  );

  const drafts: Draft[] = [];
  for (const weight of graph.weights) {
    const { name, tensor, elementType, dims } = weight;
    const datatype = dataTypeOf(elementType);
    const layer = joint.get(name)?.layer ?? layerOfWeight.get(weight);
    if (tensor === undefined || datatype === undefined || layer === undefined) continue;
    if (!isWeight(weight) || !inUse.has(name) || asArgument.has(name)) continue;
    drafts.push({
      name,
      datatype,
      shape: dims,
      layer,
      location: weight.origin === 'initializer' ? locations.get(name) : undefined,
      bytes: () => tensorBytes(tensor),
      narrowable: datatype === 'FP32' && (dims.length >= 2 ? isNarrowable : isNarrowableBias)(graph, name),
    });
  }
  for (const { name, datatype, shape, data } of derived) {
    const layer = layerOfValue.get(name);
    if (layer === undefined || !inUse.has(name)) continue;
    const narrowable = datatype === 'FP32' && shape.length >= 2 && isNarrowable(graph, name);
    drafts.push({ name, datatype, shape, layer, location: undefined, bytes: () => data, narrowable });
  }
  const placeOf = ({ name }: Draft): number => joint.get(name)?.place ?? joint.size;
  return drafts.sort((a, b) => a.layer - b.layer || placeOf(a) - placeOf(b));
}

/** Finds the bytes of each weight, and writes those that are in no file of the model to `derivedPath`. */
async function placeWeights(drafts: readonly Draft[], derivedPath: string): Promise<BaseWeight[]> {
  const parts: Uint8Array[] = [];
  let derivedBytes = 0;
  const sourceOf = ({ location, bytes }: Draft): WeightSource => {
    if (location !== undefined) return { path: location.path, byteOffset: location.byteOffset };
    const content = bytes();
    const byteOffset = derivedBytes;
    const padding = new Uint8Array((64 - (content.byteLength % 64)) % 64);
    parts.push(content, padding);
    derivedBytes += content.byteLength + padding.byteLength;
    return { path: derivedPath, byteOffset };
  };
  const weights = drafts.map((draft): BaseWeight => {
    const { name, datatype, shape, layer, narrowable } = draft;
    return { name, datatype, shape, layer, narrowable, source: sourceOf(draft) };
  });
  await writeWhole(derivedPath, Buffer.concat(parts));
  return weights;
}

/**
 * What programs are made from: the graph, and how its weights are laid out. The weights' bytes and the model's
 * description stay out, so that versions with other weights have the same programs.
 */
function hashGraph(model: ModelProto, ...others: readonly unknown[]): string {
  const unnamed = {
    docString: '',
    domain: '',
    metadataProps: [],
    modelVersion: 0n,
    producerName: '',
    producerVersion: '',
  };
  const bare: ModelProto = { ...model, ...unnamed, graph: { ...model.graph, name: '' } };
  return createHash('sha256').update(JSON.stringify(others)).update(serializeModel(bare)).digest('hex');
}

/** @throws OnnxError as `readModel`; ProgramError 'folding' if constants cannot be computed */
export async function prepareBase(modelPath: string, cacheFolder: string) {
  const structure = readStructure(modelPath);
  const locations = weightLocations(structure, modelPath);
  const modelHash = await hashModel(modelPath, locations.values());
  const { model } = servedModel(modelOf(structure, modelPath));
  const graph = typedGraph(model);
  const layerList = layers(graph);
  const alias = aliases(graph);
  const layerOfValue = layersOfValues(layerList);
  const folder = join(cacheFolder, 'functions', modelHash);
  await mkdir(folder, { recursive: true });
  const now = new Date();
  await utimes(folder, now, now);

  const derivedNodes = derivedValues(graph);
  const derived = await computeDerived(model, graph, [...derivedNodes.keys()], folder);
  const living = livingNodes(graph, alias, new Set(derived.map(({ name }) => name)));
  const drafts = draftsOf({
    graph,
    layers: layerList,
    layerOfValue,
    alias,
    locations,
    derived,
    ...usesOf(graph, alias, living),
  });
  const derivedPath = join(folder, 'derived.bin');
  const weights = await placeWeights(drafts, derivedPath);

  const names = new Set(weights.map(({ name }) => name));
  const isWeightNode = ({ opType, output }: NodeProto): boolean => opType === 'Constant' && names.has(output[0] ?? '');
  const node = living.filter((each) => !isWeightNode(each));
  const withInputs = withWeightsAsInputs(model, node, weights);
  const laidOut = weights.map(({ source: _source, ...weight }) => weight);
  const named = layerList.map(({ name, kind }) => ({ name, kind }));
  return {
    modelHash,
    graphHash: hashGraph(withInputs, laidOut, named, [...layerOfValue], graph.inputs),
    modelPath,
    /** A file for weights that are not contiguous in the model's files: results of constant nodes, and typed fields. */
    derivedPath,
    layers: named,
    /** By layers, in execution order. */
    weights,
    /** The layer that makes a value of the model, by name. */
    layerOfValue,
    /** The graph with its weights as inputs, also those that constant nodes made. */
    model: withInputs,
    /** The inputs that a caller gives. */
    inputs: graph.inputs,
  };
}
