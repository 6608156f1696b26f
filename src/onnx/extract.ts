/** Cuts a sub-graph out of a model, as a model of its own. */
import { domainsOf } from './check.ts';
import { OnnxError } from './error.ts';
import { functionKey, Graph } from './graph.ts';
import { tensorType, type GraphNode } from './graph-node.ts';
import { isDefaultDomain } from './opset.ts';
import { allNodes, sparseName } from './scope.ts';
import type { FunctionProto, ModelProto, NodeProto, ValueInfoProto } from './types.ts';
import { given } from '../tools/index.ts';

/**
 * What to cut out:
 * - `nodes`: these nodes, by index in `graph.node` or by name. Inputs are the values they take from other nodes, outputs
 *   the values that other nodes (or the model) take from them; if there are none, the values that no node takes.
 * - `inputs` and `outputs`: everything that the outputs need, back to the inputs, which may be any values.
 */
export type Cut =
  | { readonly nodes: Iterable<number | string> }
  | { readonly inputs: readonly string[]; readonly outputs: readonly string[] };

export interface ExtractOptions {
  /** The model's graph if available, best with the shapes of a run, which become the shapes of the new inputs. */
  readonly graph?: Graph;
}

const cutError = (message: string): OnnxError => new OnnxError('bad-cut', message);

class Extraction {
  readonly model: ModelProto;
  readonly graph: Graph;
  readonly #declared: ReadonlyMap<string, ValueInfoProto>;

  constructor(model: ModelProto, graph: Graph) {
    this.model = model;
    this.graph = graph;
    const { input, output, valueInfo } = model.graph;
    this.#declared = new Map([...valueInfo, ...output, ...input].map((info) => [info.name, info]));
  }

  /** The file's declaration of a value, completed with shapes of a run; types other than tensors stay as they are. */
  info(name: string): ValueInfoProto {
    const declared = this.#declared.get(name);
    if (declared?.type !== undefined && declared.type.tensorType === undefined) return declared;
    const known = this.graph.type(name);
    const type = known?.elementType === undefined ? undefined : tensorType(known.elementType, known.shape);
    const { docString, metadataProps } = declared ?? {};
    return {
      name,
      ...given({ type, docString, metadataProps }),
    };
  }

  inputInfo(name: string): ValueInfoProto {
    const info = this.info(name);
    if (info.type === undefined) {
      throw cutError(`the cut goes through '${name}', whose element type is not known; give the shapes of a run`);
    }
    return info;
  }

  /** Whether a value is copied into every sub-graph that needs it instead of being passed. */
  constant(value: string): boolean {
    return this.graph.producer(value)?.constant ?? this.graph.weight(value) !== undefined;
  }

  /** Adds the constant nodes that the nodes need, and theirs. */
  withConstants(nodes: Iterable<GraphNode>): Set<GraphNode> {
    const chosen = new Set(nodes);
    const pending = [...chosen];
    for (let node = pending.pop(); node !== undefined; node = pending.pop()) {
      for (const value of node.uses) {
        const producer = this.graph.producer(value);
        if (producer?.constant === true && !chosen.has(producer)) {
          chosen.add(producer);
          pending.push(producer);
        }
      }
    }
    return chosen;
  }

  functionsFor(nodes: readonly NodeProto[]): FunctionProto[] {
    const needed = new Set<FunctionProto>();
    const pending = [...allNodes(nodes)];
    for (let node = pending.pop(); node !== undefined; node = pending.pop()) {
      const body = this.graph.functions.get(functionKey(node.domain, node.opType, node.overload));
      if (body === undefined || needed.has(body)) continue;
      needed.add(body);
      pending.push(...allNodes(body.node));
    }
    return (this.model.functions ?? []).filter((body) => needed.has(body));
  }

  /** The model of these nodes. `replaced` are values that become inputs although the model makes them itself. */
  build(
    chosen: ReadonlySet<GraphNode>,
    inputs: readonly string[],
    outputs: readonly string[],
    replaced: ReadonlySet<string>,
  ): ModelProto {
    const { graph: whole, functions: _functions, trainingInfo: _training, ...rest } = this.model;
    const used = new Set<string>(outputs);
    const own = new Set<string>();
    for (const node of chosen) {
      for (const value of node.uses) used.add(value);
      for (const value of node.outputs) own.add(value);
    }
    const taken = (name: string): boolean => used.has(name) && !replaced.has(name);
    const initializer = whole.initializer.filter(({ name }) => taken(name));
    const sparse = (whole.sparseInitializer ?? []).filter((item) => taken(sparseName(item)));
    const initialized = new Set([...initializer.map(({ name }) => name), ...sparse.map((item) => sparseName(item))]);
    // An input with a default stays one: models before IR version 4 list all initializers as inputs.
    const defaults = whole.input.filter(({ name }) => initialized.has(name));
    const edge = new Set([...inputs, ...outputs]);
    const node = this.graph.nodes.filter((item) => chosen.has(item)).map(({ proto }) => proto);
    const functions = this.functionsFor(node);
    const domains = domainsOf(node);
    for (const body of functions) {
      for (const { domain } of body.opsetImport) domains.add(domain === 'ai.onnx' ? '' : domain);
      domains.add(body.domain);
    }
    const annotations = (whole.quantizationAnnotation ?? []).filter(
      ({ tensorName }) => used.has(tensorName) || own.has(tensorName),
    );
    return {
      ...rest,
      opsetImport: this.model.opsetImport.filter(({ domain }) => isDefaultDomain(domain) || domains.has(domain)),
      ...(functions.length === 0 ? {} : { functions }),
      graph: {
        name: whole.name,
        node,
        initializer,
        input: [...inputs.map((name) => this.inputInfo(name)), ...defaults],
        output: outputs.map((name) => this.info(name)),
        valueInfo: whole.valueInfo.filter(({ name }) => own.has(name) && !edge.has(name)),
        ...(whole.docString === undefined ? {} : { docString: whole.docString }),
        ...(sparse.length === 0 ? {} : { sparseInitializer: sparse }),
        ...(annotations.length === 0 ? {} : { quantizationAnnotation: annotations }),
        ...(whole.metadataProps === undefined ? {} : { metadataProps: whole.metadataProps }),
      },
    };
  }

  byNodes(wanted: Iterable<number | string>): ModelProto {
    const { graph } = this;
    const byIndex = new Map(graph.nodes.map((node) => [node.index, node]));
    const byName = new Map(graph.nodes.map((node) => [node.name, node]));
    const asked = new Set<GraphNode>();
    for (const item of wanted) {
      const node = typeof item === 'number' ? byIndex.get(item) : byName.get(item);
      if (node === undefined) {
        throw cutError(typeof item === 'number' ? `the graph has no node ${item}` : `the graph has no node '${item}'`);
      }
      asked.add(node);
    }
    if (asked.size === 0) throw cutError('a sub-graph needs at least one node');
    const chosen = this.withConstants(asked);

    const made = new Set<string>();
    for (const node of chosen) for (const value of node.outputs) made.add(value);
    const inputs = new Set<string>();
    for (const node of chosen) {
      for (const value of node.uses) if (!made.has(value) && !this.constant(value)) inputs.add(value);
    }
    const whole = new Set(graph.outputs);
    const outputs: string[] = [];
    const unused: string[] = [];
    for (const node of graph.nodes) {
      if (!asked.has(node)) continue;
      for (const value of node.outputs) {
        const users = graph.consumers(value);
        if (whole.has(value) || (!node.constant && users.some((user) => !chosen.has(user)))) outputs.push(value);
        else if (users.length === 0) unused.push(value);
      }
    }
    // Only constants were requested; their users are outside, so their own outputs are meant.
    const fallback = unused.length > 0 ? unused : [...asked].flatMap((node) => node.outputs);
    const given = outputs.length > 0 ? outputs : fallback;
    return this.build(chosen, this.inOrder(inputs), given, new Set());
  }

  /** The model's inputs first and in its order, the others in the order of their nodes. */
  inOrder(values: ReadonlySet<string>): string[] {
    const declared = this.graph.inputs.filter((name) => values.has(name));
    const known = new Set(declared);
    const made = this.graph.nodes.flatMap(({ outputs }) => outputs.filter((name) => values.has(name)));
    for (const name of made) known.add(name);
    return [...declared, ...made, ...[...values].filter((name) => !known.has(name))];
  }

  byEdges(inputs: readonly string[], outputs: readonly string[]): ModelProto {
    const { graph } = this;
    const edge = new Set(inputs);
    if (edge.size < inputs.length) throw cutError('an input is named twice');
    if (outputs.length === 0) throw cutError('a sub-graph needs at least one output');
    if (new Set(outputs).size < outputs.length) throw cutError('an output is named twice');
    const given = new Set(graph.inputs);
    for (const name of inputs) {
      if (!given.has(name) && graph.producer(name) === undefined && graph.weight(name) === undefined) {
        throw cutError(`the graph has no value '${name}' to be an input`);
      }
    }
    const chosen = new Set<GraphNode>();
    const pending: { readonly value: string; readonly needed: string }[] = [];
    for (const name of outputs) {
      if (edge.has(name)) throw cutError(`'${name}' cannot be both an input and an output`);
      if (graph.producer(name) === undefined) throw cutError(`no node makes '${name}' to be an output`);
      pending.push({ value: name, needed: name });
    }
    for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
      const { value, needed } = next;
      if (edge.has(value)) continue;
      const producer = graph.producer(value);
      if (producer === undefined) {
        if (graph.weight(value) === undefined) throw cutError(`the output '${needed}' also needs the input '${value}'`);
        continue;
      }
      if (chosen.has(producer)) continue;
      chosen.add(producer);
      for (const use of producer.uses) pending.push({ value: use, needed });
    }
    // A chosen node may also make a value that is an input; only one of the two can have the name.
    for (const node of chosen) {
      const both = node.outputs.find((name) => edge.has(name));
      if (both !== undefined) {
        throw cutError(
          `'${both}' cannot be an input, since node '${node.name}' makes it beside a value that is needed`,
        );
      }
    }
    return this.build(chosen, inputs, outputs, edge);
  }
}

/**
 * Cuts a sub-graph out as a valid model. Included are the initializers it uses (external ones by their entries and
 * source), constants and values computed from them alone, the functions it calls, and the operator sets it needs.
 * Values that nested graphs capture become inputs. Inputs have types, and known shapes. Nodes and tensors are those of
 * `model`, not copies.
 * @throws OnnxError `bad-cut` for unknown names, for outputs that need more than the inputs, and for a cut through a
 * value of unknown element type
 */
export function extract(model: ModelProto, cut: Cut, { graph = new Graph(model) }: ExtractOptions = {}): ModelProto {
  const extraction = new Extraction(model, graph);
  return 'nodes' in cut ? extraction.byNodes(cut.nodes) : extraction.byEdges(cut.inputs, cut.outputs);
}
