/** Folds a function's graph for given input shapes, and finds the shape of every value. */
import { join } from 'node:path';
import { LRUCache } from 'lru-cache';
import { getOrStart, temporaryFile } from '../../tools/index.ts';
import {
  attributeOf,
  isDefaultDomain,
  opsetOf,
  dataTypeOf,
  elementTypeOf,
  tensorBytes,
  writeModel,
  type Graph,
  type GraphNode,
  type ModelProto,
  type ValueType,
  withInputShapes,
} from '../../onnx/index.ts';
import { factsOf, inferShapes, typedGraph, type InferredShapes, type ShapeOptions } from '../../operators/index.ts';
import {
  bytesOfNumbers,
  elementBytes,
  elementCount,
  elements,
  type DataType,
  type Tensor,
} from '../../tensor/index.ts';
import type { FunctionBase } from './base.ts';
import { ProgramError } from './error.ts';
import { runOnZeros } from './fold-client.ts';
import { foldedModel, type FoldedModel } from './folded-model.ts';
import type { PreparedGraph, PreparedNode, PreparedValue } from './prepared.ts';
import { shapedByShapes, whyShapeless } from './shaped-by-shapes.ts';
import { withValues } from './sizing-inputs.ts';
import { inputShape, shapeIn } from './input-shapes.ts';
import type { InputShape, InputShapes, Obstacle } from './types.ts';

const shapeText = (sizes: readonly (number | string | undefined)[]): string =>
  `[${sizes.map((size) => size ?? '?').join(',')}]`;

/**
 * The shapes in the order of the model's inputs; those that the model fixes may be missing. @throws ProgramError
 * 'bad-shapes'
 */
export function checkShapes(base: FunctionBase, shapes: InputShapes): InputShapes {
  const { graph } = base.model;
  const unknown = shapes.find(({ name }) => !base.inputs.includes(name))?.name;
  if (unknown !== undefined) throw new ProgramError('bad-shapes', `the model has no input '${unknown}'`);
  return base.inputs.map((name): InputShape => {
    const input = inputShape(shapes, name);
    const given = input?.shape;
    const info = graph.input.find((each) => each.name === name)?.type?.tensorType;
    if (info === undefined) throw new ProgramError('bad-shapes', `the input '${name}' is no tensor`);
    const declared = info.shape?.dim.map(({ dimValue, dimParam }) =>
      dimValue === undefined ? dimParam : Number(dimValue),
    );
    if (input === undefined || given === undefined) {
      const known = declared?.filter((size) => typeof size === 'number');
      if (known !== undefined && known.length === declared?.length) return { name, shape: known };
      throw new ProgramError('bad-shapes', `the input '${name}' has no shape given, and the model leaves it open`);
    }
    if (given.some((size) => !Number.isSafeInteger(size) || size < 0)) {
      throw new ProgramError('bad-shapes', `the input '${name}' cannot have the shape ${shapeText(given)}`);
    }
    const fits =
      declared === undefined ||
      (declared.length === given.length &&
        declared.every((size, axis) => typeof size !== 'number' || size === given[axis]));
    if (!fits) {
      throw new ProgramError(
        'bad-shapes',
        `the input '${name}' has the shape ${shapeText(declared)}, which ${shapeText(given)} does not fit`,
      );
    }
    if (input.values !== undefined && input.values.length !== elementCount(given)) {
      throw new ProgramError(
        'bad-shapes',
        `the input '${name}' has ${input.values.length} values, which ${shapeText(given)} does not fit`,
      );
    }
    return input;
  });
}

/**
 * Shapes of values without a shape rule, from a run on zeros. {@link shapedByShapes} nodes have the same shapes for any
 * input.
 */
async function shapesByRun(
  model: ModelProto,
  graph: Graph,
  names: readonly string[],
  folder: string,
): Promise<Map<string, ValueType>> {
  // Outputs without a type: ONNX Runtime infers it, which the rules may not be able to.
  const output = names.map((name) => ({ name }));
  await using file = temporaryFile(folder, 'run.onnx');
  try {
    await writeModel({ ...model, graph: { ...model.graph, output } }, file.path, { externalData: 'never' });
    const inputs = graph.inputs.flatMap((name) => {
      const { elementType = 0, shape = [] } = graph.type(name) ?? {};
      const datatype = dataTypeOf(elementType);
      return datatype === undefined ? [] : [{ name, datatype, shape: shape.map(Number) }];
    });
    const outputs = await runOnZeros(file.path, inputs);
    return new Map(outputs.map(({ name, datatype, shape }) => [name, { elementType: elementTypeOf(datatype), shape }]));
  } catch {
    // The values stay without a shape, and are reported as obstacles.
    return new Map();
  }
}

/** All inputs have sizes, so a size that is still open depends on a run. */
const closed: ShapeOptions = { openSize: () => undefined };

/** Shapes by the rules and ONNX Runtime's inference; by the rules alone if the two disagree. */
function shapesOf(graph: Graph, types: ReadonlyMap<string, ValueType>): InferredShapes {
  const shapeElsewhere = (value: string): readonly number[] | undefined => {
    const shape = types.get(value)?.shape;
    return shape?.every((size) => typeof size === 'number') === true ? shape : undefined;
  };
  const inferred = inferShapes(graph, { ...closed, shapeElsewhere });
  return inferred.disputed.length === 0 ? inferred : inferShapes(graph, closed);
}

/** The first result of a node, and the others that are read. Masks and indices seldom are, and then need no shape. */
const takenFrom = (graph: Graph, { outputs }: GraphNode): readonly string[] =>
  outputs.filter((value, place) => place === 0 || graph.consumers(value).length > 0 || graph.outputs.includes(value));

/** `unknown` becomes the nodes with a result in use that has no shape, also if it is not their first. */
function withLaterResults(graph: Graph, inferred: InferredShapes): InferredShapes {
  const open = graph.nodes.filter((node) => takenFrom(graph, node).some((value) => !inferred.values.has(value)));
  return { ...inferred, unknown: open.map(({ name }) => name) };
}

/** The layer of a node is that of its results in the model, but not before that of its weights and inputs. */
function layersOfNodes(graph: Graph, base: FunctionBase, weights: ReadonlyMap<string, number>): PreparedNode[] {
  const layerOf = new Map<string, number>();
  const nodes = graph.nodes.map((node): PreparedNode => {
    let layer = 0;
    for (const value of node.outputs) layer = Math.max(layer, base.layerOfValue.get(value) ?? 0);
    for (const value of node.uses) {
      const weight = weights.get(value);
      layer = Math.max(layer, layerOf.get(value) ?? 0, (weight === undefined ? 0 : base.weights[weight]?.layer) ?? 0);
    }
    for (const value of node.outputs) layerOf.set(value, layer);
    return { ...node, layer };
  });
  return nodes.sort((a, b) => a.layer - b.layer);
}

const isInteger = (datatype: DataType): datatype is 'INT64' | 'INT32' => datatype === 'INT64' || datatype === 'INT32';

/** The known values of a graph, its constants, and the obstacles: values of unknown type or shape. */
function valuesOf(
  graph: Graph,
  inferred: InferredShapes,
): Pick<PreparedGraph, 'obstacles'> & {
  readonly values: Map<string, PreparedValue>;
  readonly constants: Map<string, Tensor>;
} {
  const values = new Map<string, PreparedValue>();
  const constants = new Map<string, Tensor>();
  const obstacles: Obstacle[] = [];

  const addConstant = (value: string): void => {
    const weight = graph.weight(value);
    if (weight?.tensor === undefined || constants.has(value)) return;
    const datatype = dataTypeOf(weight.elementType);
    if (datatype === undefined || datatype === 'BYTES') return;
    constants.set(value, { name: value, datatype, shape: weight.dims, data: tensorBytes(weight.tensor) });
    values.set(value, { datatype, shape: weight.dims });
  };
  /** Values whose obstacle is reported, so that it is reported once. */
  const refused = new Set<string>();
  const whyUnknown = (producer: GraphNode | undefined, isShapeless: boolean): string => {
    const owner = producer === undefined ? 'values' : 'result';
    if (!isShapeless) return `the element type of its ${owner} is none that the engine has`;
    return producer === undefined ? 'its shape is not known' : whyShapeless(graph, inferred, producer);
  };
  const addValue = (value: string): void => {
    if (values.has(value) || refused.has(value)) return;
    addConstant(value);
    if (values.has(value)) return;
    const type = graph.type(value);
    const datatype = dataTypeOf(type?.elementType ?? 0);
    const known = inferred.values.get(value);
    const producer = graph.producer(value);
    if (datatype === undefined || datatype === 'BYTES' || known === undefined) {
      refused.add(value);
      // One obstacle for a node, even if it has several results.
      for (const output of producer?.outputs ?? []) refused.add(output);
      obstacles.push({
        node: producer?.name ?? value,
        operator: producer === undefined ? 'input' : operatorName(producer),
        reason: whyUnknown(producer, known === undefined),
        ...(known === undefined ? {} : { isAnySize: true as const }),
      });
      return;
    }
    values.set(value, { datatype, shape: known.dims });
    const exact = producer !== undefined && (factsOf(producer.proto)?.arithmetic ?? 'none') !== 'none';
    if (exact && known.ints?.length === elementCount(known.dims) && isInteger(datatype)) {
      constants.set(value, {
        name: value,
        datatype,
        shape: known.dims,
        data: bytesOfNumbers(datatype, known.ints),
      });
    }
  };
  for (const name of graph.inputs) addValue(name);
  for (const node of graph.nodes) {
    for (const value of node.proto.input) if (value !== '') addValue(value);
    for (const value of takenFrom(graph, node)) addValue(value);
  }
  for (const name of graph.outputs) addValue(name);
  return { values, constants, obstacles };
}

/** By graph and shapes: functions with equal graphs fold them once. */
const folded = new LRUCache<string, Promise<FoldedModel>>({ max: 8 });

function foldedOf({ graphHash, model }: FunctionBase, shapes: InputShapes, folder: string): Promise<FoldedModel> {
  const key = JSON.stringify([graphHash, shapes]);
  return getOrStart(folded, key, () => {
    const shaped = withInputShapes(model, (name) => shapeIn(shapes, name));
    return foldedModel(withValues(shaped, shapes), folder);
  });
}

/**
 * @param cacheFolder for temporary files
 * @throws ProgramError 'bad-shapes', or 'folding' if ONNX Runtime refuses the graph
 */
export async function prepareGraph(
  base: FunctionBase,
  given: InputShapes,
  cacheFolder: string,
): Promise<PreparedGraph> {
  const shapes = checkShapes(base, given);
  const folder = join(cacheFolder, 'functions', base.modelHash);
  const { model, types } = await foldedOf(base, shapes, folder);
  let graph = typedGraph(model, types);
  let inferred = shapesOf(graph, types);
  const unknown = (value: string): boolean => !inferred.values.has(value);
  const byRun = shapedByShapes(graph, withLaterResults(graph, inferred)).flatMap((node) =>
    takenFrom(graph, node).filter(unknown),
  );
  if (byRun.length > 0) {
    graph = typedGraph(model, new Map([...types, ...(await shapesByRun(model, graph, byRun, folder))]));
    inferred = shapesOf(graph, types);
  }

  const weights = new Map<string, number>();
  for (const [place, { name }] of base.weights.entries()) weights.set(name, place);
  const { values, constants, obstacles } = valuesOf(graph, inferred);
  for (const [name, place] of weights) {
    const weight = base.weights[place];
    if (weight !== undefined) values.set(name, { datatype: weight.datatype, shape: weight.shape });
  }
  checkLookups(graph.nodes, values, constants);
  return {
    base,
    shapes,
    model,
    opset: opsetOf(model) ?? 17,
    nodes: layersOfNodes(graph, base, weights),
    inputs: base.inputs,
    outputs: graph.outputs,
    values,
    constants,
    weights,
    obstacles,
  };
}

/**
 * Refuses texts that are longer than a table of positions: here the indices are constants, while ONNX Runtime fails
 * only when it runs. @throws ProgramError 'bad-shapes'
 */
function checkLookups(
  nodes: readonly GraphNode[],
  values: ReadonlyMap<string, PreparedValue>,
  constants: ReadonlyMap<string, Tensor>,
): void {
  for (const { proto, name } of nodes) {
    const [table = '', places = ''] = proto.input;
    const indices = proto.opType === 'Gather' ? constants.get(places) : undefined;
    const axis = attributeOf(proto, 'axis', 0);
    const rows = values.get(table)?.shape.at(axis);
    if (indices === undefined || rows === undefined || !isInteger(indices.datatype)) continue;
    for (const index of elements(indices)) {
      if (Number(index) < rows && Number(index) >= -rows) continue;
      throw new ProgramError(
        'bad-shapes',
        `Gather '${name}' looks up place ${index} of ${rows}: these inputs are too long`,
      );
    }
  }
}

/** The operator's type, with its domain unless that is ONNX's: 'com.microsoft.Gelu'. */
export function operatorName({ proto }: GraphNode): string {
  return isDefaultDomain(proto.domain) ? proto.opType : `${proto.domain}.${proto.opType}`;
}

export const bytesOf = ({ datatype, shape }: PreparedValue): number => elementCount(shape) * elementBytes[datatype];
