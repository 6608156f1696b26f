/**
 * The form of a model that is served: what its file says, for ONNX Runtime's JavaScript binding. The file itself stays
 * as it was published. The binding crashes on some nodes with unnamed outputs, has no BF16, and returns tensors alone;
 * here these get names, casts at the graph's edges, and tensors in place of sequences. Whatever opens a model opens this
 * form: the validator, instances, workers, and the GPU's compiler with its reference.
 */
import { dataTypeOf, elementTypeName } from './element-type.ts';
import { externalReference, isExternal } from './external-data.ts';
import { Graph } from './graph.ts';
import { tensorType, type ValueShape } from './graph-node.ts';
import { attributeOf } from './node-attributes.ts';
import { isDefaultDomain } from './opset.ts';
import { append } from '../tools/index.ts';
import { nodeProto } from './protos.ts';
import { readModel } from './read.ts';
import { allNodes, capturedBy, namesIn, namesOfNodes, renamed, unusedName, withGraphs } from './scope.ts';
import { tensorElementCount, tensorsOfGraph, withoutData } from './tensor-data.ts';
import {
  ElementType,
  type FunctionProto,
  type GraphProto,
  type ModelProto,
  type NodeProto,
  type TensorProto,
  type TypeProto,
  type ValueInfoProto,
} from './types.ts';

export interface ServedModel {
  readonly model: ModelProto;
  /** Whether the binding needs this form; if not, it opens the file. */
  readonly isMended: boolean;
  /** Inputs and outputs that are BF16 in the file, and FP32 here. */
  readonly bfloat16: ReadonlySet<string>;
  /** What is served otherwise than the file says: a sentence for each output that is no tensor. */
  readonly remarks: readonly string[];
}

/** {@link servedModel} of a file. @throws OnnxError as `readModel` */
export const readServed = async (path: string): Promise<ServedModel> => servedModel(await readModel(path));

/**
 * Makes the form that is served. Nodes and tensors that need no change are those of `file`, not copies.
 *
 * @param given inputs that a call gives although they have an initializer, which is left out then
 */
export function servedModel(file: ModelProto, given: ReadonlySet<string> = new Set()): ServedModel {
  const draft = new Draft(canonical(file, given));
  draft.nameOutputs();
  draft.mendExternalData();
  draft.keepTensors();
  draft.widenEdges();
  const { graph, functions, isMended, bfloat16, remarks } = draft;
  return { model: { ...draft.model, ...(functions && { functions }), graph }, isMended, bfloat16, remarks };
}

/**
 * Inputs that have an initializer, which a call may override. Before IR version 4 every initializer had to be an input
 * as well, and ONNX Runtime takes it for a constant.
 */
export function optionalInputs({ irVersion, graph }: ModelProto): ValueInfoProto[] {
  if (irVersion < 4n) return [];
  const initialized = new Set(graph.initializer.map(({ name }) => name));
  return graph.input.filter(
    ({ name, type }) => initialized.has(name) && dataTypeOf(type?.tensorType?.elemType ?? 0) !== undefined,
  );
}

/** Operators whose last output stands for any number; ONNX Runtime crashes if one has no name. */
const anyNumberOfOutputs: ReadonlySet<string> = new Set(['If', 'Loop', 'Scan', 'SequenceMap', 'Split']);

/** The newest operator set of ONNX that ONNX Runtime has: what it takes for a model that imports none. */
export const onnxOpsetNewest = 26n;

const isOwn = ({ domain }: NodeProto): boolean => isDefaultDomain(domain);

type OpsetImports = ModelProto['opsetImport'];

/** Each operator set once: as in ONNX Runtime the last entry counts, and `ai.onnx` is another name of ''. */
function importsOf(imports: OpsetImports, nodes: readonly NodeProto[]): OpsetImports {
  const versions = new Map(imports.map(({ domain, version }) => [isDefaultDomain(domain) ? '' : domain, version]));
  if (!versions.has('') && nodes.some(isOwn)) versions.set('', onnxOpsetNewest);
  return Array.from(versions, ([domain, version]) => ({ domain, version }));
}

const canonicalFunction = ({ opsetImport, ...body }: FunctionProto): FunctionProto => ({
  ...body,
  opsetImport: importsOf(opsetImport, []),
});

/** What ONNX Runtime makes of entries that the file has twice, or not at all. */
function canonical(file: ModelProto, given: ReadonlySet<string>): ModelProto {
  const { graph, functions } = file;
  // The last one counts.
  const initializers = new Map(graph.initializer.map((tensor) => [tensor.name, tensor]));
  for (const name of ['', ...given]) initializers.delete(name);
  const outputs = new Map(graph.output.toReversed().map((output) => [output.name, output]));
  const isSame = initializers.size === graph.initializer.length;
  return {
    ...file,
    opsetImport: importsOf(file.opsetImport, [...allNodes(graph.node)]),
    ...(functions && { functions: functions.map(canonicalFunction) }),
    graph: {
      ...graph,
      initializer: isSame ? graph.initializer : [...initializers.values()],
      output: outputs.size === graph.output.length ? graph.output : [...outputs.values()].toReversed(),
    },
  };
}

/** Why a value of this type cannot be served, behind its name in a sentence; undefined if it can. */
export function obstacleIn(type: TypeProto | undefined): string | undefined {
  if (type?.sequenceType !== undefined) return 'is a sequence';
  if (type?.mapType !== undefined) return 'is a map';
  if (type?.optionalType !== undefined) return 'is an optional';
  if (type?.sparseTensorType !== undefined) return 'is a sparse tensor';
  const elementType = type?.tensorType?.elemType ?? 0;
  if (elementType === 0 || dataTypeOf(elementType) !== undefined) return undefined;
  return `has the element type ${elementTypeName(elementType)}, which the protocol cannot carry`;
}

/** What an operator makes that is no tensor, for an output whose type the file does not say. */
const obstaclesMade: Readonly<Record<string, string>> = {
  Optional: 'is an optional',
  SequenceConstruct: 'is a sequence',
  SequenceEmpty: 'is a sequence',
  SequenceErase: 'is a sequence',
  SequenceInsert: 'is a sequence',
  SequenceMap: 'is a sequence',
  SplitToSequence: 'is a sequence',
  ZipMap: 'is a sequence',
};

function externalMended(tensor: TensorProto): TensorProto {
  if (!isExternal(tensor)) return tensor;
  if (tensorElementCount(tensor) === 0) return { ...withoutData(tensor), rawData: new Uint8Array() };
  const { externalData = [] } = tensor;
  if (!externalData.some(({ key, value }) => key === 'location' && value.split('/').includes('..'))) return tensor;
  const { location } = externalReference(tensor);
  const entries = externalData.map((each) => (each.key === 'location' ? { key: each.key, value: location } : each));
  return { ...tensor, externalData: entries };
}

const isNarrow = ({ type }: ValueInfoProto): boolean => type?.tensorType?.elemType === ElementType.BFLOAT16;

class Draft {
  readonly model: ModelProto;
  graph: GraphProto;
  functions: ModelProto['functions'];
  isMended = false;
  readonly bfloat16 = new Set<string>();
  readonly remarks: string[] = [];
  #names: Set<string> | undefined;

  constructor(model: ModelProto) {
    this.model = model;
    this.graph = model.graph;
    this.functions = model.functions;
  }

  /** ONNX Runtime runs these nodes into a null pointer. */
  nameOutputs(): void {
    const named = (nodes: readonly NodeProto[]): NodeProto[] => nodes.map((node) => this.#named(node, named));
    if (needsNames(this.graph.node)) this.#change({ node: named(this.graph.node) });
    if (this.functions?.some(({ node }) => needsNames(node)) === true) {
      this.functions = this.functions.map((body) => ({ ...body, node: named(body.node) }));
      this.isMended = true;
    }
  }

  #named(node: NodeProto, within: (nodes: readonly NodeProto[]) => NodeProto[]): NodeProto {
    const output = outputsOf(node, () => this.#unused('unnamed'));
    return withGraphs({ ...node, output }, (graph) => ({ ...graph, node: within(graph.node) }));
  }

  /**
   * ONNX Runtime maps the file of an external tensor, and cannot map one without bytes. A location through a folder that
   * it leaves again, as `sub/../w.bin`, needs that folder, which an upload does not bring.
   */
  mendExternalData(): void {
    if (![...tensorsOfGraph(this.graph)].some((tensor) => externalMended(tensor) !== tensor)) return;
    const within = (graph: GraphProto): GraphProto => ({
      ...graph,
      node: graph.node.map((node) => withGraphs(node, within)),
      initializer: graph.initializer.map(externalMended),
    });
    this.#change(within(this.graph));
  }

  /** Leaves the outputs that are no tensors out, or serves the tensors that they are made of. */
  keepTensors(): void {
    const producers = producersOf(this.graph.node);
    const obstacles = new Map<string, string>();
    for (const { name, type } of this.graph.output) {
      const made = type === undefined ? obstaclesMade[throughIdentity(producers, name)?.opType ?? ''] : undefined;
      const obstacle = obstacleIn(type) ?? made;
      if (obstacle !== undefined) obstacles.set(name, obstacle);
    }
    if (obstacles.size === 0) return;
    const types = new Graph({ ...this.model, graph: this.graph });
    const node = [...this.graph.node];
    const output: ValueInfoProto[] = [];
    const moved = new Map<string, string>();
    for (const info of this.graph.output) {
      const { name } = info;
      const obstacle = obstacles.get(name);
      if (obstacle === undefined) {
        output.push(info);
        continue;
      }
      const producer = throughIdentity(producers, name);
      const tensor = tensorBehind(producer, types);
      if (producer === undefined || tensor === undefined) {
        this.remarks.push(`the output '${name}' ${obstacle}; it is not served`);
        continue;
      }
      this.remarks.push(
        `the output '${name}' ${obstacle}; the tensor that ${producer.opType} makes it of is served in its place`,
      );
      // Other nodes may take the sequence.
      moved.set(name, this.#unused(`${name}_sequence`));
      node.push(nodeProto('Identity', [producer.input[0]!], [name], {}, { name: this.#unused(`${name}_tensor`) }));
      output.push(tensor.type === undefined ? { name } : { name, type: tensor.type });
    }
    const added = node.splice(this.graph.node.length);
    const dropped = [...obstacles.keys()].map((name) => moved.get(name) ?? name);
    const used = withoutUnused([...renamed(node, moved), ...added], dropped, output);
    const valueInfo = this.graph.valueInfo.filter(({ name }) => !obstacles.has(name));
    this.#change({ node: used, output, valueInfo });
  }

  /** FP32 holds every BF16, so casts at the edges change no value. */
  widenEdges(): void {
    const { graph } = this;
    const initialized = new Set(graph.initializer.map(({ name }) => name));
    const inputs = graph.input.filter((info) => isNarrow(info) && !initialized.has(info.name));
    const outputs = graph.output.filter(isNarrow);
    if (inputs.length === 0 && outputs.length === 0) return;
    const given = new Set(inputs.map(({ name }) => name));
    const names = new Map([...inputs, ...outputs].map(({ name }) => [name, this.#unused(`${name}_bf16`)]));
    const cast = (from: string, to: string, type: number): NodeProto =>
      nodeProto('Cast', [from], [to], { to: type }, { name: this.#unused(`${to}_cast`) });
    const before = inputs.map(({ name }) => cast(name, names.get(name)!, ElementType.BFLOAT16));
    // An input that is an output as well is passed on as it came.
    const after = outputs
      .filter(({ name }) => !given.has(name))
      .map(({ name }) => cast(names.get(name)!, name, ElementType.FLOAT));
    const wide = (info: ValueInfoProto): ValueInfoProto =>
      isNarrow(info) && names.has(info.name)
        ? { ...info, type: { tensorType: { ...info.type!.tensorType!, elemType: ElementType.FLOAT } } }
        : info;
    this.#change({
      node: [...before, ...renamed(graph.node, names), ...after],
      initializer: graph.initializer.map((tensor) => ({ ...tensor, name: names.get(tensor.name) ?? tensor.name })),
      // One with an initializer that is an output as well: a constant, under its new name.
      input: graph.input.filter(({ name }) => given.has(name) || !names.has(name)).map(wide),
      output: graph.output.map(wide),
      valueInfo: graph.valueInfo.filter(({ name }) => !names.has(name)),
    });
    for (const name of names.keys()) this.bfloat16.add(name);
  }

  #change(parts: Partial<GraphProto>): void {
    this.graph = { ...this.graph, ...parts };
    this.isMended = true;
  }

  /** A name that nothing has: `wanted`, or `wanted` with a number. */
  #unused(wanted: string): string {
    const { graph, functions = [] } = this.model;
    this.#names ??= new Set([...namesIn(graph), ...namesOfNodes(functions.flatMap(({ node }) => node))]);
    return unusedName(this.#names, wanted);
  }
}

const needsNames = (nodes: readonly NodeProto[]): boolean =>
  [...allNodes(nodes)].some((node) => outputsOf(node, () => 'named') !== node.output);

/** The outputs of a node with a name for each that ONNX Runtime needs one for; the same list if it needs none. */
function outputsOf(node: NodeProto, unused: () => string): string[] {
  if (!node.output.includes('') || !isOwn(node)) return node.output;
  const named = (): string[] => node.output.map((name) => (name === '' ? unused() : name));
  if (anyNumberOfOutputs.has(node.opType)) return named();
  // Its kernel counts the outputs: with more than one it computes new statistics.
  if (node.opType !== 'BatchNormalization') return node.output;
  const isTraining = attributeOf(node, 'training_mode', 0) === 1 || node.output.slice(1).some((name) => name !== '');
  return isTraining ? named() : node.output.slice(0, 1);
}

type Producers = ReadonlyMap<string, NodeProto>;

const producersOf = (nodes: readonly NodeProto[]): Producers =>
  new Map(nodes.flatMap((node) => node.output.map((name) => [name, node] as const)));

/** The node that makes a value, before any Identity. */
function throughIdentity(producers: Producers, value: string): NodeProto | undefined {
  const seen = new Set<NodeProto>();
  for (let node = producers.get(value); node !== undefined; node = producers.get(node.input[0] ?? '')) {
    if (node.opType !== 'Identity' || seen.has(node)) return node;
    seen.add(node);
  }
  return undefined;
}

/** The tensor that a node makes a sequence of. A type that the file leaves out is inferred by ONNX Runtime. */
function tensorBehind(node: NodeProto | undefined, graph: Graph): { readonly type: TypeProto | undefined } | undefined {
  const source = node?.input[0];
  if (node === undefined || source === undefined || source === '') return undefined;
  const { elementType, shape } = graph.type(source) ?? {};
  if (node.opType === 'SplitToSequence' && isOwn(node)) {
    return { type: elementType === undefined ? undefined : tensorType(elementType, shape) };
  }
  if (node.opType !== 'ZipMap' || node.domain !== 'ai.onnx.ml') return undefined;
  const scores = shape ?? scoresShape(node, graph.producer(source)?.proto);
  const isTold = elementType !== undefined || scores !== undefined;
  return { type: isTold ? tensorType(elementType ?? ElementType.FLOAT, scores) : undefined };
}

/** Scores have a row for each sample and a column for each class; undefined if they may come from elsewhere. */
function scoresShape(zipMap: NodeProto, producer: NodeProto | undefined): ValueShape | undefined {
  const isClassifier = producer?.domain === 'ai.onnx.ml' && /Classifier$|^Normalizer$/.test(producer.opType);
  const labels = zipMap.attribute.find(({ name }) => name.startsWith('classlabels_'));
  const classes = labels?.strings?.length ?? labels?.ints?.length;
  return isClassifier && classes !== undefined ? [undefined, classes] : undefined;
}

/**
 * The nodes without those that only the dropped values needed. Others that nothing needs stay, and so does each that makes
 * a value twice: ONNX Runtime may refuse the model for them.
 */
function withoutUnused(
  nodes: readonly NodeProto[],
  dropped: readonly string[],
  outputs: readonly ValueInfoProto[],
): NodeProto[] {
  const ofDropped = neededBy(nodes, dropped);
  const others = nodes.filter((node) => !ofDropped.has(node)).flatMap(usedBy);
  const needed = neededBy(nodes, [...outputs.map(({ name }) => name), ...others]);
  return nodes.filter((node) => !ofDropped.has(node) || needed.has(node));
}

const usedBy = (node: NodeProto): string[] => [...node.input, ...capturedBy(node)];

/** All nodes that make the values, and what these need. */
function neededBy(nodes: readonly NodeProto[], values: readonly string[]): Set<NodeProto> {
  const makers = new Map<string, NodeProto[]>();
  for (const node of nodes) for (const name of node.output) if (name !== '') append(makers, name, node);
  const needed = new Set(values.flatMap((value) => makers.get(value) ?? []));
  // What it gains meanwhile is visited too.
  for (const node of needed)
    for (const value of usedBy(node)) for (const maker of makers.get(value) ?? []) needed.add(maker);
  return needed;
}
