/** The graph that unrolling writes: nodes in order, with unique names; each constant and cut is made once. */
import { getOrMake } from '../../tools/index.ts';
import {
  asExternal,
  elementBits,
  externalReference,
  isExternal,
  type Graph,
  nodeProto,
  type AttributeValue,
  allNodes,
  namesIn,
  tensorBytes,
  unusedName,
  withoutData,
  ElementType,
  type NodeProto,
  type TensorProto,
} from '../../onnx/index.ts';

/** Since opset 13, sizes of Split and axes of Unsqueeze are inputs. */
const argumentInputsOpset = 13;

export class OutputGraph {
  readonly nodes: NodeProto[] = [];
  /** Slices of weights, one for each direction. */
  readonly initializers: TensorProto[] = [];
  readonly #source: Graph;
  readonly #opset: number;
  readonly #valueNames: Set<string>;
  readonly #nodeNames: Set<string>;
  readonly #made = new Map<string, readonly string[]>();
  #constants = 0;

  constructor(source: Graph, opset: number) {
    this.#source = source;
    this.#opset = opset;
    this.#valueNames = new Set(['', ...namesIn(source.proto)]);
    this.#nodeNames = new Set([...source.nodes, ...allNodes(source.proto.node)].map(({ name }) => name));
  }

  /** A name for a new value: `wanted`, with a number if it is taken. */
  valueName(wanted: string): string {
    return unusedName(this.#valueNames, wanted);
  }

  nodeName(wanted: string): string {
    return unusedName(this.#nodeNames, wanted);
  }

  /** Adds a node that makes `output`, and returns `output`. */
  node(
    opType: string,
    name: string,
    inputs: readonly string[],
    attributes: Readonly<Record<string, AttributeValue>>,
    output: string,
  ): string {
    this.nodes.push(nodeProto(opType, inputs, [output], attributes, { name: this.nodeName(name) }));
    return output;
  }

  /** Like {@link node}; the output gets a new name, which is also the node's. */
  derived(opType: string, name: string, inputs: readonly string[]): string {
    return this.node(opType, name, inputs, {}, this.valueName(name));
  }

  /** A Constant node with these elements. */
  constant(elementType: number, shape: readonly number[], bytes: Uint8Array): string {
    const key = `constant ${elementType} [${shape.join(',')}] ${Buffer.from(bytes).toString('base64')}`;
    return this.once(key, () => {
      const output = this.valueName(`unrolled/constant_${this.#constants++}`);
      const tensor: TensorProto = { name: '', dims: shape.map(BigInt), dataType: elementType, rawData: bytes };
      this.node('Constant', output, [], { value: { tensor } }, output);
      return [output];
    })[0]!;
  }

  int64s(values: readonly number[], shape: readonly number[] = [values.length]): string {
    return this.constant(ElementType.INT64, shape, bytesOf(BigInt64Array.from(values, BigInt)));
  }

  int32s(values: readonly number[], shape: readonly number[] = [values.length]): string {
    return this.constant(ElementType.INT32, shape, bytesOf(Int32Array.from(values)));
  }

  /** Zero, for broadcasting. All zero bits are zero in every element type. */
  zero(elementType: number): string {
    return this.constant(elementType, [1], new Uint8Array(Math.ceil((elementBits(elementType) ?? 8) / 8)));
  }

  /** Cuts a value along an axis; repeated requests return the same cut. */
  split(value: string, axis: number, sizes: readonly number[], names: readonly string[]): readonly string[] {
    return this.once(`split ${axis} [${sizes.join(',')}] ${value}`, () => {
      const output = names.map((name) => this.valueName(name));
      const asInput = this.#opset >= argumentInputsOpset;
      const name = this.nodeName(`${value}/Split`);
      const inputs = asInput ? [value, this.int64s(sizes)] : [value];
      this.nodes.push(nodeProto('Split', inputs, output, asInput ? { axis } : { axis, split: sizes }, { name }));
      return output;
    });
  }

  /** Joins values along an axis; a single one gets an Identity. */
  concat(values: readonly string[], axis: number, output: string, name: string): string {
    const [first] = values;
    if (values.length === 1 && first !== undefined) return this.node('Identity', name, [first], {}, output);
    return this.node('Concat', name, values, { axis }, output);
  }

  transpose(value: string, perm: readonly number[], output: string, name: string): string {
    return this.node('Transpose', name, [value], { perm }, output);
  }

  /**
   * A value's parts along `axis`, one for each direction: slices of a weight (without a copy if its bytes are in
   * memory), or a Split of a computed value.
   */
  directions(value: string, axis: number): readonly [forward: string, reverse: string] {
    const names = [`${value}/forward`, `${value}/reverse`] as const;
    const tensor = this.#source.weight(value)?.tensor;
    const parts =
      tensor === undefined || axis !== 0 || tensor.dims[0] !== 2n
        ? this.split(value, axis, [1, 1], names)
        : this.once(`directions ${value}`, () =>
            names.map((wanted, index) => {
              const name = this.valueName(wanted);
              this.initializers.push(half(tensor, index, name));
              return name;
            }),
          );
    return [parts[0]!, parts[1]!];
  }

  /** Returns what was made under this key, or makes it. */
  once(key: string, make: () => readonly string[]): readonly string[] {
    return getOrMake(this.#made, key, make);
  }
}

const bytesOf = (view: ArrayBufferView): Uint8Array => new Uint8Array(view.buffer, view.byteOffset, view.byteLength);

/** One of the two equal parts of a tensor along its first dimension; bytes in other files stay there. */
function half(tensor: TensorProto, index: number, name: string): TensorProto {
  const part: TensorProto = { ...withoutData(tensor), name, dims: [1n, ...tensor.dims.slice(1)] };
  const cut = (bytes: Uint8Array): Uint8Array => {
    const size = bytes.byteLength / 2;
    return bytes.subarray(index * size, (index + 1) * size);
  };
  const { source } = tensor;
  const data = source === undefined ? {} : { source: () => cut(source()) };
  if (isExternal(tensor)) {
    const { location, offset } = externalReference(tensor);
    const length = (part.dims.map(Number).reduce((a, b) => a * b, 1) * (elementBits(tensor.dataType) ?? 0)) / 8;
    return { ...asExternal(part, location, offset + index * length, length), ...data };
  }
  return { ...part, ...(source === undefined ? { rawData: cut(tensorBytes(tensor)) } : data) };
}
