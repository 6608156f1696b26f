/**
 * Builds an ONNX model node by node. Names follow PyTorch's exports: inside the scopes `encoder` and `layer.0` a node
 * is `/encoder/layer.0/MatMul`, its value `/encoder/layer.0/MatMul_output_0`, and a weight `encoder.layer.0.weight`.
 */
import { tensorType } from './graph-node.ts';
import type { Tensor } from '../tensor/index.ts';
import { checkedCount, GraphBuilderError, nodeProto, tensorProto, type AttributeValue } from './protos.ts';
import { renamed } from './scope.ts';
import {
  ElementType,
  type GraphProto,
  type ModelProto,
  type NodeProto,
  type TensorProto,
  type ValueInfoProto,
} from './types.ts';

/** Sizes of the dimensions, outermost first; a string names a varying one. */
export type SymbolicShape = readonly (number | string)[];

/**
 * A constant: INT64 or FLOAT elements (a bare number is a scalar, an array a vector unless `shape` says otherwise), or
 * any tensor.
 */
export type ConstantValue =
  | { readonly ints: number | readonly (number | bigint)[]; readonly shape?: readonly number[] }
  | { readonly floats: number | readonly number[]; readonly shape?: readonly number[] }
  | { readonly tensor: Omit<Tensor, 'name'> };

/** The elements of a weight, or a function that returns the same ones each time. */
export type WeightData = Float32Array | (() => Float32Array);

export interface GraphBuilderOptions {
  /** Version of the default operator set; default 17. */
  readonly opset?: number;
  /** Values of an enclosing graph that the nodes of a Loop's, If's or Scan's body may use. */
  readonly captures?: readonly string[];
}

interface NodeOptions {
  /** Last part of the node's name; default: the operator's name. */
  readonly name?: string;
  readonly domain?: string;
}

type Strings<N extends number, Found extends string[] = []> = number extends N
  ? string[]
  : Found['length'] extends N
    ? Found
    : Found['length'] extends 16
      ? string[]
      : Strings<N, [...Found, string]>;

export class GraphBuilder {
  readonly #name: string;
  readonly #opset: number;
  readonly #domains = new Set<string>();
  readonly #inputs: ValueInfoProto[] = [];
  readonly #outputs: ValueInfoProto[] = [];
  readonly #nodes: NodeProto[] = [];
  readonly #weights: TensorProto[] = [];
  readonly #values = new Set<string>(['']);
  readonly #nodeNames = new Set<string>();
  /** Occurrences of each node name so far, so that a repeated one is numbered without searching. */
  readonly #repeats = new Map<string, number>();
  readonly #constants = new Map<string, string>();
  /** Values of nodes that are outputs of the graph under another name. */
  readonly #renamed = new Map<string, string>();
  readonly #made = new Set<string>();
  #scopes: readonly string[] = [];

  constructor(name: string, options: GraphBuilderOptions = {}) {
    this.#name = name;
    this.#opset = options.opset ?? 17;
    for (const captured of options.captures ?? []) this.#values.add(captured);
  }

  /** Adds everything that `body` adds under the name `scope` ('layer.0') and returns the result of `body`. */
  scope<Result>(scope: string, body: () => Result): Result {
    const outer = this.#scopes;
    this.#scopes = [...outer, scope];
    try {
      return body();
    } finally {
      this.#scopes = outer;
    }
  }

  /** Declares an input of the model and returns its name. */
  input(name: string, elementType: ElementType, shape: SymbolicShape): string {
    this.#declare(name);
    this.#inputs.push(valueInfo(name, elementType, shape));
    return name;
  }

  /**
   * Adds FP32 weights and returns their name, which is `name` after its scopes. A function is called only when the
   * model is written, so a model may be larger than memory.
   */
  weight(name: string, shape: readonly number[], data: WeightData): string {
    const full = [...this.#scopes, name].join('.');
    this.#declare(full);
    const count = checkedCount(full, shape);
    const checked = (values: Float32Array): Uint8Array => {
      if (values.length !== count) {
        throw new GraphBuilderError(
          `weight '${full}' has ${values.length} elements, but its shape [${shape.join(',')}] takes ${count}`,
        );
      }
      return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
    };
    const tensor: TensorProto = { name: full, dims: shape.map(BigInt), dataType: ElementType.FLOAT };
    if (typeof data === 'function') tensor.source = () => checked(data());
    else tensor.rawData = checked(data);
    this.#weights.push(tensor);
    return full;
  }

  /** Adds an initializer of any datatype (quantised weights, for example) and returns its name. */
  initializer(tensor: Tensor): string {
    const full = [...this.#scopes, tensor.name].join('.');
    this.#declare(full);
    this.#weights.push(tensorProto(full, tensor));
    return full;
  }

  /**
   * Adds a Constant node and returns its value. Constants are separate from weights, which are initializers. An equal
   * constant is not added twice.
   */
  constant(value: ConstantValue): string {
    const tensor = constantTensor(value);
    const key = `${tensor.dataType} ${tensor.dims.join(',')} ${Buffer.from(tensor.rawData ?? []).toString('latin1')}`;
    const known = tensor.rawData === undefined ? undefined : this.#constants.get(key);
    if (known !== undefined) return known;
    const added = this.node('Constant', [], { value: { tensor } });
    this.#constants.set(key, added);
    return added;
  }

  /**
   * Adds a node and returns the name of its output; with `outputs` (a count, or a list of names), a name for each.
   * Inputs must exist already ('' leaves an optional one out), so the nodes are in a valid order.
   */
  node(
    opType: string,
    inputs: readonly string[],
    attributes?: Readonly<Record<string, AttributeValue>>,
    options?: NodeOptions & { readonly outputs?: undefined },
  ): string;
  node<const Names extends readonly string[]>(
    opType: string,
    inputs: readonly string[],
    attributes: Readonly<Record<string, AttributeValue>> | undefined,
    options: NodeOptions & { readonly outputs: Names },
  ): { -readonly [Index in keyof Names]: string };
  node<const Count extends number>(
    opType: string,
    inputs: readonly string[],
    attributes: Readonly<Record<string, AttributeValue>> | undefined,
    options: NodeOptions & { readonly outputs: Count },
  ): Strings<Count>;
  node(
    opType: string,
    inputs: readonly string[],
    attributes: Readonly<Record<string, AttributeValue>> = {},
    options: NodeOptions & { readonly outputs?: number | readonly string[] | undefined } = {},
  ): string | string[] {
    const { domain = '', outputs } = options;
    const name = this.#nodeName(options.name ?? opType);
    for (const input of inputs) {
      if (!this.#values.has(input)) {
        throw new GraphBuilderError(`node '${name}' takes '${input}', which nothing before it makes`);
      }
    }
    const made =
      typeof outputs === 'object'
        ? [...outputs]
        : Array.from({ length: outputs ?? 1 }, (_, index) => `${name}_output_${index}`);
    for (const output of made) {
      if (output === '') continue;
      this.#declare(output);
      this.#made.add(output);
    }
    this.#domains.add(domain);
    this.#nodes.push(nodeProto(opType, inputs, made, attributes, { name, domain }));
    const [first] = made;
    return outputs === undefined && first !== undefined ? first : made;
  }

  /** Makes `value` an output of the model, under `name` if given. */
  output(value: string, elementType: ElementType, shape: SymbolicShape, name: string = value): string {
    if (value === '' || !this.#values.has(value)) {
      throw new GraphBuilderError(`output '${name}' is '${value}', which nothing makes`);
    }
    if (this.#outputs.some((output) => output.name === name)) {
      throw new GraphBuilderError(`the output '${name}' is given twice`);
    }
    if (name !== value) {
      this.#declare(name);
      if (this.#made.has(value) && !this.#renamed.has(value) && !this.#outputs.some((other) => other.name === value)) {
        this.#renamed.set(value, name);
      } else {
        // An input, a weight, or a value that is already an output: only a node can give it another name.
        this.#nodes.push(nodeProto('Identity', [value], [name], {}, { name: this.#nodeName('Identity') }));
      }
    }
    this.#outputs.push(valueInfo(name, elementType, shape));
    return name;
  }

  /** Only the graph, for the body of a Loop, If or Scan. */
  buildGraph(): GraphProto {
    if (this.#outputs.length === 0) throw new GraphBuilderError(`the graph '${this.#name}' has no output`);
    return {
      name: this.#name,
      node: renamed(this.#nodes, this.#renamed),
      initializer: [...this.#weights],
      input: [...this.#inputs],
      output: [...this.#outputs],
      valueInfo: [],
    };
  }

  /** The model: IR version 8, which came with opset 17. */
  build(): ModelProto {
    const domains = [...this.#domains].filter((domain) => domain !== '');
    return {
      irVersion: 8n,
      opsetImport: [
        { domain: '', version: BigInt(this.#opset) },
        ...domains.map((domain) => ({ domain, version: 1n })),
      ],
      producerName: 'turntable',
      producerVersion: '',
      domain: '',
      modelVersion: 0n,
      docString: '',
      graph: this.buildGraph(),
      metadataProps: [],
    };
  }

  #declare(value: string): void {
    if (value === '') throw new GraphBuilderError('a value has an empty name');
    if (this.#values.has(value)) throw new GraphBuilderError(`the value '${value}' is made twice`);
    this.#values.add(value);
  }

  #nodeName(own: string): string {
    const base = ['', ...this.#scopes, own].join('/');
    let repeat = this.#repeats.get(base) ?? 0;
    let name = repeat === 0 ? base : `${base}_${repeat}`;
    while (this.#nodeNames.has(name)) name = `${base}_${++repeat}`;
    this.#repeats.set(base, repeat + 1);
    this.#nodeNames.add(name);
    return name;
  }
}

function valueInfo(name: string, elementType: ElementType, shape: SymbolicShape): ValueInfoProto {
  return { name, type: tensorType(elementType, shape) };
}

function constantTensor(value: ConstantValue): TensorProto {
  if ('tensor' in value) return tensorProto('', { ...value.tensor, name: '' });
  const [given, datatype] = 'ints' in value ? [value.ints, 'INT64' as const] : [value.floats, 'FP32' as const];
  const flat = typeof given === 'number' ? [given] : given;
  const shape = value.shape ?? (typeof given === 'number' ? [] : [flat.length]);
  const values = 'ints' in value ? BigInt64Array.from(flat, BigInt) : Float32Array.from(flat, Number);
  return tensorProto('', { name: '', datatype, shape, data: new Uint8Array(values.buffer) });
}
