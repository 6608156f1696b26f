/** What is wrong with a model, in its own terms. ONNX Runtime decides whether it runs; these explain why it does not. */
import { OnnxError } from './error.ts';
import { checkExternal, externalReference, isExternal } from './external-data.ts';
import { nestedGraphs, sparseName } from './scope.ts';
import { topologicalOrder } from './order.ts';
import { checkTensorData, tensorByteLength, tensorsOfModel } from './tensor-data.ts';
import { AttributeType, type AttributeProto, type GraphProto, type ModelProto, type NodeProto } from './types.ts';

const bad = (message: string): OnnxError => new OnnxError('bad-model', message);

const normalDomain = (domain: string): string => (domain === 'ai.onnx' ? '' : domain);

/** Domains whose operators ONNX Runtime has, also without an import; '' is ai.onnx. */
export const domainsOfOnnxRuntime: ReadonlySet<string> = new Set([
  '',
  'ai.onnx.ml',
  'ai.onnx.training',
  'ai.onnx.preview',
  'ai.onnx.preview.training',
  'com.microsoft',
  'com.microsoft.experimental',
  'com.microsoft.nchwc',
  'com.ms.internal.nhwc',
  'org.pytorch.aten',
]);

/** The name of a node in an error. */
function label(node: NodeProto, index: number): string {
  return node.name === '' ? `node ${index} (${node.opType || 'no operator'})` : `node '${node.name}' (${node.opType})`;
}

const valueFieldOf: Readonly<Record<number, keyof AttributeProto>> = {
  [AttributeType.TENSOR]: 't',
  [AttributeType.GRAPH]: 'g',
  [AttributeType.SPARSE_TENSOR]: 'sparseTensor',
  [AttributeType.TYPE_PROTO]: 'tp',
};

function checkAttributes(node: NodeProto, index: number, inFunction: boolean): void {
  const names = new Set<string>();
  for (const attribute of node.attribute) {
    if (attribute.name === '') throw bad(`${label(node, index)} has an attribute without a name`);
    if (names.has(attribute.name)) throw bad(`${label(node, index)} has the attribute '${attribute.name}' twice`);
    names.add(attribute.name);
    if (attribute.refAttrName !== undefined && attribute.refAttrName !== '') {
      if (inFunction) continue;
      throw bad(`${label(node, index)} takes the attribute '${attribute.name}' from a function, but is in none`);
    }
    const field = valueFieldOf[attribute.type];
    if (field !== undefined && attribute[field] === undefined) {
      throw bad(`the attribute '${attribute.name}' of ${label(node, index)} has no value`);
    }
  }
}

interface Scope {
  /** Values of the enclosing graphs. */
  readonly outer: ReadonlySet<string>;
  readonly domains: ReadonlySet<string>;
  readonly inFunction: boolean;
  /** The name of the graph in an error; '' for the main graph. */
  readonly within: string;
}

function checkNodes(nodes: readonly NodeProto[], known: Set<string>, scope: Scope): void {
  const { within, domains, inFunction } = scope;
  // ONNX requires each node to come after its inputs. ONNX Runtime does not, and its own converters write unsorted
  // files.
  for (const [index, node] of nodes.entries()) {
    for (const name of node.output) {
      if (name === '') continue;
      if (known.has(name)) throw bad(`${label(node, index)}${within} makes '${name}', which exists already`);
      known.add(name);
    }
  }
  for (const [index, node] of nodes.entries()) {
    if (node.opType === '') throw bad(`${label(node, index)}${within} names no operator`);
    if (!domains.has(normalDomain(node.domain))) {
      const domain = node.domain === '' ? 'ai.onnx' : node.domain;
      throw bad(`${label(node, index)}${within} is of the domain '${domain}', which the model does not import`);
    }
    checkAttributes(node, index, inFunction);
    for (const name of node.input) {
      if (name !== '' && !known.has(name))
        throw bad(`${label(node, index)}${within} takes '${name}', which nothing makes`);
    }
    for (const graph of nestedGraphs(node)) {
      checkGraph(graph, { ...scope, outer: known, within: ` in a graph of ${label(node, index)}${within}` });
    }
  }
  topologicalOrder(nodes, within);
}

function checkGraph(graph: GraphProto, scope: Scope): void {
  const { outer, within } = scope;
  const nested = within !== '';
  const known = new Set(outer);
  const inputs = new Set<string>();
  for (const { name, type } of graph.input) {
    if (name === '') throw bad(`an input of the graph${within} has no name`);
    if (known.has(name)) throw bad(`the input '${name}'${within} is given twice`);
    if (!nested && type === undefined) throw bad(`the input '${name}' has no type`);
    known.add(name);
    inputs.add(name);
  }
  const initialized = new Set<string>();
  const names = [
    ...graph.initializer.map(({ name }) => name),
    ...(graph.sparseInitializer ?? []).map((sparse) => sparseName(sparse)),
  ];
  for (const name of names) {
    if (name === '') throw bad(`an initializer${within} has no name`);
    if (initialized.has(name)) throw bad(`the initializer '${name}'${within} is given twice`);
    // An initializer with the name of an input is that input's default.
    if (known.has(name) && !inputs.has(name)) throw bad(`the initializer '${name}'${within} hides another value`);
    initialized.add(name);
    known.add(name);
  }
  checkNodes(graph.node, known, scope);
  if (!nested && graph.output.length === 0) throw bad('the graph has no output');
  const outputs = new Set<string>();
  for (const { name } of graph.output) {
    if (!known.has(name)) throw bad(`the output '${name}'${within} is made by nothing`);
    if (!nested && outputs.has(name)) throw bad(`the output '${name}' is given twice`);
    outputs.add(name);
  }
}

/**
 * Checks that the model is well formed: operator sets are imported, each value is made once (in nested graphs and
 * functions too), outputs exist, and every tensor has as many bytes as its dimensions take. ONNX Runtime judges
 * operators and their types.
 * @param modelDir the model's folder: with it, external data must exist and have the right size; without it, only its
 * entries are checked
 * @throws OnnxError naming the node, value or tensor
 */
export function checkModel(model: ModelProto, modelDir?: string): void {
  if (model.irVersion < 1n) throw bad('the model says no IR version');
  if (model.opsetImport.length === 0) throw bad('the model imports no operator set');
  const domains = new Set(domainsOfOnnxRuntime);
  for (const { domain, version } of model.opsetImport) {
    const name = normalDomain(domain);
    if (version < 1n) throw bad(`the model imports version ${version} of the operator set '${name || 'ai.onnx'}'`);
    domains.add(name);
  }

  const functionNames = new Set<string>();
  for (const body of model.functions ?? []) {
    const within = ` in the function '${body.domain}.${body.name}'`;
    const key = JSON.stringify([body.domain, body.name, body.overload ?? '']);
    if (functionNames.has(key)) throw bad(`the function '${body.domain}.${body.name}' is given twice`);
    functionNames.add(key);
    const imported = new Set(body.opsetImport.map(({ domain }) => normalDomain(domain)));
    imported.add(normalDomain(body.domain));
    const known = new Set(body.input);
    checkNodes(body.node, known, { outer: known, domains: imported, inFunction: true, within });
    for (const name of body.output) {
      if (!known.has(name)) throw bad(`the output '${name}'${within} is made by nothing`);
    }
  }

  checkGraph(model.graph, { outer: new Set(), domains, inFunction: false, within: '' });

  for (const tensor of tensorsOfModel(model)) {
    checkTensorData(tensor);
    if (!isExternal(tensor)) continue;
    if (modelDir === undefined) externalReference(tensor);
    else checkExternal(tensor, tensorByteLength(tensor), modelDir);
  }
}
