/** From a function's base and input shapes to a folded graph with every shape known. */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import {
  dataTypeOf,
  Graph,
  tensorBytes,
  writeModel,
  type GraphNode,
  type ModelProto,
  type ValueInfoProto,
  type ValueType,
} from '../../onnx/index.ts';
import { inferShapes, type ShapeOptions } from '../../profile/index.ts';
import { elementBytes, elementCount, onnxRuntimeType, type DataType, type Tensor } from '../../tensor/index.ts';
import type { FunctionBase } from './base.ts';
import { ProgramError } from './error.ts';
import { temporaryPath } from './files.ts';
import { fold } from './fold-client.ts';
import { foldedModel } from './folded-model.ts';
import type { PreparedGraph, PreparedNode, PreparedValue } from './prepared.ts';
import { shapedByShapes } from './shaped-by-shapes.ts';
import type { InputShapes, Obstacle } from './types.ts';

const shapeText = (sizes: readonly (number | string | undefined)[]): string =>
  `[${sizes.map((size) => size ?? '?').join(',')}]`;

/** Checks the shapes against the model's inputs and gives them in the model's order. Throws {@link ProgramError} `bad-shapes`. */
export function checkShapes(base: FunctionBase, shapes: InputShapes): InputShapes {
  const { graph } = base.model;
  const unknown = Object.keys(shapes).find((name) => !base.inputs.includes(name));
  if (unknown !== undefined) throw new ProgramError('bad-shapes', `the model has no input '${unknown}'`);
  return Object.fromEntries(
    base.inputs.map((name) => {
      const given = shapes[name];
      const info = graph.input.find((input) => input.name === name)?.type?.tensorType;
      if (info === undefined) throw new ProgramError('bad-shapes', `the input '${name}' is no tensor`);
      const declared = info.shape?.dim.map(({ dimValue, dimParam }) =>
        dimValue === undefined ? dimParam : Number(dimValue),
      );
      if (given === undefined) {
        if (declared?.every((size) => typeof size === 'number') === true) return [name, declared];
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
      return [name, given];
    }),
  );
}

/** What the file says of outputs may name open dimensions that are closed now. */
function withoutShape(info: ValueInfoProto): ValueInfoProto {
  const elemType = info.type?.tensorType?.elemType;
  return elemType === undefined ? info : { name: info.name, type: { tensorType: { elemType } } };
}

function withShapes(model: ModelProto, shapes: InputShapes): ModelProto {
  const { graph } = model;
  const sized = (info: ValueInfoProto): ValueInfoProto => {
    const shape = shapes[info.name];
    const tensor = info.type?.tensorType;
    if (shape === undefined || tensor === undefined) return info;
    const dim = shape.map((size) => ({ dimValue: BigInt(size) }));
    return { ...info, type: { tensorType: { elemType: tensor.elemType, shape: { dim } } } };
  };
  return { ...model, graph: { ...graph, input: graph.input.map(sized), output: graph.output.map(withoutShape) } };
}

/**
 * The shapes of values that no rule gives, by a run on zeros: of {@link shapedByShapes} nodes, what zeros give is what any
 * input gives.
 */
async function shapesByRun(
  model: ModelProto,
  graph: Graph,
  names: readonly string[],
  folder: string,
): Promise<Map<string, ValueType>> {
  const output = names.map((name) => ({
    name,
    type: { tensorType: { elemType: graph.type(name)?.elementType ?? 0 } },
  }));
  const modelPath = temporaryPath(folder, 'run.onnx');
  try {
    await writeModel({ ...model, graph: { ...model.graph, output } }, modelPath, { externalData: 'never' });
    const inputs = graph.inputs.map((name) => {
      const type = graph.type(name);
      const datatype = dataTypeOf(type?.elementType ?? 0);
      return { name, type: (datatype && onnxRuntimeType(datatype)) ?? 'none', shape: (type?.shape ?? []).map(Number) };
    });
    const outputs = await fold({ op: 'run', modelPath, inputs });
    return new Map(outputs.map(({ name, shape }) => [name, { elementType: undefined, shape }]));
  } catch {
    // Then the values stay without a shape, and are reported by name.
    return new Map();
  } finally {
    await rm(modelPath, { force: true });
  }
}

/** All inputs have their sizes, so that a size that stays open is one that only a run can tell. */
const closed: ShapeOptions = { openSize: () => undefined };

/** The layer of each node: where its result is made in the model; else with its weights; never before what it takes. */
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

const integers = new Set<DataType>(['INT64', 'INT32']);
/** Whose whole numbers the shape rules compute exactly, broadcasts included. */
const exactArithmetic = new Set(
  'Shape Size Gather Concat Slice Unsqueeze Squeeze Reshape Flatten Cast Add Sub Mul Div'.split(' '),
);

function intTensor(name: string, datatype: DataType, shape: readonly number[], ints: readonly number[]): Tensor {
  const values = datatype === 'INT64' ? BigInt64Array.from(ints, BigInt) : Int32Array.from(ints);
  return { name, datatype, shape, data: new Uint8Array(values.buffer) };
}

/**
 * Folds a function's graph for fixed input shapes. `cacheFolder` takes temporary files.
 *
 * Throws {@link ProgramError}: `bad-shapes`, and `folding` where ONNX Runtime refuses the graph.
 */
export async function prepareGraph(
  base: FunctionBase,
  given: InputShapes,
  cacheFolder: string,
): Promise<PreparedGraph> {
  const shapes = checkShapes(base, given);
  const folder = join(cacheFolder, 'functions', base.modelHash);
  const model = await foldedModel(withShapes(base.model, shapes), folder);
  let graph = new Graph(model);
  let inferred = inferShapes(graph, closed);
  const byRun = shapedByShapes(graph, inferred).flatMap(({ outputs }) => outputs.slice(0, 1));
  if (byRun.length > 0) {
    graph = graph.withShapes(await shapesByRun(model, graph, byRun, folder));
    inferred = inferShapes(graph, closed);
  }

  const weights = new Map<string, number>();
  for (const [place, { name }] of base.weights.entries()) weights.set(name, place);
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
  /** Once, however many operators have them to do with. */
  const refused = new Set<string>();
  const addValue = (value: string): void => {
    if (values.has(value) || refused.has(value)) return;
    addConstant(value);
    if (values.has(value)) return;
    const type = graph.type(value);
    const datatype = dataTypeOf(type?.elementType ?? 0);
    const known = inferred.values.get(value);
    const producer = graph.producer(value);
    if (datatype === undefined || datatype === 'BYTES' || known === undefined) {
      const what = known === undefined ? 'shape depends on data' : 'element type is none that the engine has';
      refused.add(value);
      obstacles.push({
        node: producer?.name ?? value,
        operator: producer === undefined ? 'input' : operatorName(producer),
        reason: `the ${what} of its ${producer === undefined ? 'values' : 'result'}`,
      });
      return;
    }
    values.set(value, { datatype, shape: known.dims });
    const exact = producer !== undefined && exactArithmetic.has(producer.proto.opType);
    if (exact && known.ints?.length === elementCount(known.dims) && integers.has(datatype)) {
      constants.set(value, intTensor(value, datatype, known.dims, known.ints));
    }
  };
  for (const name of graph.inputs) addValue(name);
  for (const node of graph.nodes) {
    for (const value of node.proto.input) if (value !== '') addValue(value);
    for (const value of node.outputs) {
      // Further results that nobody takes (masks, indices) need no shape.
      if (value === node.outputs[0] || graph.consumers(value).length > 0 || graph.outputs.includes(value)) {
        addValue(value);
      }
    }
  }
  for (const name of graph.outputs) addValue(name);
  for (const [name, place] of weights) {
    const weight = base.weights[place];
    if (weight !== undefined) values.set(name, { datatype: weight.datatype, shape: weight.shape });
  }
  const opset = model.opsetImport.find(({ domain }) => domain === '' || domain === 'ai.onnx')?.version ?? 17n;
  return {
    base,
    shapes,
    model,
    opset: Number(opset),
    nodes: layersOfNodes(graph, base, weights),
    inputs: base.inputs,
    outputs: graph.outputs,
    values,
    constants,
    weights,
    obstacles,
  };
}

/** The operator with its domain, where that is not ONNX's own: 'com.microsoft.Gelu'. */
export function operatorName({ proto }: GraphNode): string {
  return proto.domain === '' || proto.domain === 'ai.onnx' ? proto.opType : `${proto.domain}.${proto.opType}`;
}

export const bytesOf = ({ datatype, shape }: PreparedValue): number => elementCount(shape) * elementBytes[datatype];
