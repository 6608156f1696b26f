/**
 * Runs the operators over a graph. Gives them buffers for values and an emitter for each node, and collects obstacles.
 */
import { requiredFrom, Unsupported } from '../../operators/index.ts';
import { attributeReader } from '../../onnx/index.ts';
import { getOrMake, namesIn } from '../../tools/index.ts';
import { type Tensor, elementBytes, elementCount, type DataType } from '../../tensor/index.ts';
import type { Buffer, Emitter, Operator, Series, Value } from '../operators/types.ts';
import { alignUp } from './arena.ts';
import type { PreparedGraph } from './prepared.ts';
import { Recorder } from './recorder.ts';
import type { Obstacle } from './types.ts';
import type { ProgramSettings } from '../types.ts';
import type { WorkGraph, WorkNode } from './work-graph.ts';

export type Storage =
  | { readonly kind: 'weight'; readonly weight: number; readonly bytes: number }
  | { readonly kind: 'constant'; readonly data: Uint8Array; readonly bytes: number }
  /** `storedType`: the type of the elements in memory, if not that of the graph. */
  | { readonly kind: 'activation'; readonly bytes: number; readonly storedType?: DataType | undefined };

export class Storages {
  readonly #all: Storage[] = [];

  add(storage: Storage): Buffer {
    this.#all.push(storage);
    return { id: this.#all.length - 1, byteOffset: 0, bytes: storage.bytes };
  }

  activation(bytes: number, storedType?: DataType): Buffer {
    return this.add({ kind: 'activation', bytes, storedType });
  }

  of({ id }: Pick<Buffer, 'id'>): Storage {
    const storage = this.#all[id];
    if (storage === undefined) throw new RangeError(`there is no storage ${id}`);
    return storage;
  }
}

/** Part of a buffer. */
export function partOf(buffer: Buffer, byteOffset: number, bytes: number): Buffer {
  if (byteOffset < 0 || bytes < 0 || byteOffset + bytes > buffer.bytes) {
    throw new RangeError(`bytes ${byteOffset} to ${byteOffset + bytes} are not in a buffer of ${buffer.bytes}`);
  }
  return { id: buffer.id, byteOffset: buffer.byteOffset + byteOffset, bytes };
}

/** Limit for a matrix product's scratch memory: cuBLAS's own default on Hopper. */
export const matmulWorkspaceBytes = 32 * 2 ** 20;

/** With other sizes ONNX Runtime may fold them away: a branch that depends on a shape, a loop that can be unrolled. */
const foldedBySize = namesIn('If Loop Scan');

/** The 16-bit type for 32-bit floats around products; undefined if they stay in 32 bits. */
export function narrowType({ precision }: ProgramSettings): 'FP16' | 'BF16' | undefined {
  if (precision === 'fp16') return 'FP16';
  return precision === 'bf16' ? 'BF16' : undefined;
}

/** The type in which a weight is kept. */
export function typeOfWeight(
  weight: { readonly datatype: DataType; readonly narrowable: boolean },
  settings: ProgramSettings,
): DataType {
  return (weight.narrowable ? narrowType(settings) : undefined) ?? weight.datatype;
}

/** An omitted input or output has an empty name, or none. */
function named(names: readonly string[], index: number): string | undefined {
  const name = names[index];
  return name === '' ? undefined : name;
}

export class Emission {
  readonly graph: WorkGraph;
  readonly settings: ProgramSettings;
  readonly recorder: Recorder;
  readonly storages = new Storages();
  readonly obstacles: Obstacle[] = [];
  readonly #prepared: PreparedGraph;
  readonly #buffers = new Map<string, Buffer>();
  /** Storages of inputs and early outputs, which no other output may share. */
  readonly #taken = new Set<number>();
  readonly #placed = new Set<string>();
  readonly #narrowed = new Map<string, DataType>();

  constructor(prepared: PreparedGraph, graph: WorkGraph, settings: ProgramSettings, recorder = new Recorder()) {
    this.recorder = recorder;
    this.#prepared = prepared;
    this.graph = graph;
    this.settings = settings;
    // An input without a known value (texts) is an obstacle already.
    for (const name of graph.inputs) if (graph.values.has(name)) this.#taken.add(this.buffer(name).id);
  }

  /** A value's buffer. The first call makes its storage. */
  buffer(name: string): Buffer {
    return getOrMake(this.#buffers, name, () => this.#newBuffer(name));
  }

  setBuffer(name: string, buffer: Buffer): void {
    this.#buffers.set(name, buffer);
  }

  #newBuffer(name: string): Buffer {
    const { weights, constants, values, viewed } = this.graph;
    const behind = viewed.get(name);
    if (behind !== undefined) {
      const bytes = elementBytes[this.storedType(behind.of)];
      return partOf(this.buffer(behind.of), behind.from * bytes, elementCount(values.get(name)!.shape) * bytes);
    }
    const place = weights.get(name);
    const weight = place === undefined ? undefined : this.#prepared.base.weights[place];
    if (place !== undefined && weight !== undefined) {
      const bytes = elementCount(weight.shape) * elementBytes[typeOfWeight(weight, this.settings)];
      return this.storages.add({ kind: 'weight', weight: place, bytes });
    }
    const constant = constants.get(name);
    if (constant !== undefined) {
      return this.storages.add({ kind: 'constant', data: constant.data, bytes: constant.data.byteLength });
    }
    const value = values.get(name);
    if (value === undefined) throw new Unsupported(`the shape of '${name}' is not known`);
    const storedType = this.#narrowed.get(name);
    return this.storages.activation(elementCount(value.shape) * elementBytes[storedType ?? value.datatype], storedType);
  }

  /** Keeps a value's bytes in another type than that of the graph: see narrow-values.ts. */
  storeAs(name: string, type: DataType): void {
    this.#narrowed.set(name, type);
    // The search for elementwise nodes may have made a buffer of the old type.
    this.#buffers.delete(name);
  }

  /** The type of a value's bytes, also of a view's: it may be narrower than that of the graph. */
  storedType(name: string): DataType {
    const { weights, values } = this.graph;
    const storage = this.storages.of(this.buffer(name));
    if (storage.kind === 'activation' && storage.storedType !== undefined) return storage.storedType;
    const place = weights.get(name) ?? (storage.kind === 'weight' ? storage.weight : undefined);
    const weight = place === undefined ? undefined : this.#prepared.base.weights[place];
    return weight === undefined ? values.get(name)!.datatype : typeOfWeight(weight, this.settings);
  }

  value(name: string): Value {
    const known = this.graph.values.get(name);
    if (known === undefined) throw new Unsupported(`the shape of '${name}' is not known`);
    const buffer = this.buffer(name);
    const { datatype, shape } = known;
    return {
      name,
      datatype,
      shape,
      elements: elementCount(shape),
      buffer,
      constant: this.storages.of(buffer).kind !== 'activation',
      storedType: this.storedType(name),
    };
  }

  emitter(node: WorkNode): Emitter {
    const { proto } = node;
    const input = (index: number): Value | undefined => {
      const name = named(proto.input, index);
      return name === undefined ? undefined : this.value(name);
    };
    return {
      settings: this.settings,
      node,
      opset: this.graph.opset,
      input,
      required: requiredFrom(input),
      constant: (index): Tensor | undefined => {
        const name = named(proto.input, index);
        return name === undefined ? undefined : this.graph.constants.get(name);
      },
      output: (index) => {
        const name = named(proto.output, index);
        if (name === undefined) return undefined;
        const wanted = index === 0 || this.graph.consumers(name).length > 0 || this.graph.isOutput(name);
        return wanted ? this.value(name) : undefined;
      },
      attribute: attributeReader(proto),
      scratch: (bytes) => this.storages.activation(bytes),
      part: partOf,
      weightsTogether: (inputs) => this.#weightsTogether(inputs.map((index) => named(proto.input, index) ?? '')),
      outputsTogether: () => this.#outputsTogether(proto.output),
      kernel: (hint, source) => this.recorder.kernel(hint, source),
      launch: (launch) => this.recorder.launch(launch),
      matmul: (description, operands) => {
        const tf32 = this.settings.precision === 'tf32';
        this.recorder.matmul({ ...description, tf32, workspaceBytesMax: matmulWorkspaceBytes }, operands);
      },
      copy: (from, to, bytes) => this.recorder.copy(from, to, bytes),
      fill: (to, byteValue, bytes) => this.recorder.fill(to, byteValue, bytes),
    };
  }

  #weightsTogether(names: readonly string[]): Series {
    const [first = '', ...others] = names;
    if (!others.every((name, index) => this.graph.follows(name, names[index]!)))
      throw new Unsupported(`the weights '${names.join("', '")}' do not lie side by side`);
    const { bytes } = this.buffer(first);
    const stepBytes = alignUp(bytes);
    const whole = stepBytes * (names.length - 1) + bytes;
    const weight = this.graph.weights.get(first) ?? 0;
    return { buffer: this.storages.add({ kind: 'weight', weight, bytes: whole }), stepBytes };
  }

  #outputsTogether(names: readonly string[]): Series {
    const { datatype, shape } = this.graph.values.get(names[0]!)!;
    const storedType = this.#narrowed.get(names[0]!);
    const bytes = elementCount(shape) * elementBytes[storedType ?? datatype];
    const stepBytes = alignUp(bytes);
    const buffer = this.storages.activation(stepBytes * (names.length - 1) + bytes, storedType);
    for (const [index, name] of names.entries()) this.setBuffer(name, partOf(buffer, index * stepBytes, bytes));
    return { buffer, stepBytes };
  }

  /** Emits a node by its operator, or records an obstacle. */
  emit(node: WorkNode, operator: Operator | undefined): void {
    this.attempt(node, () => {
      if (operator === undefined) {
        throw new Unsupported('the engine has no such operator', { isAnySize: !foldedBySize.has(node.type) });
      }
      const emitter = this.emitter(node);
      const viewed = operator.viewOf?.(emitter);
      if (viewed !== undefined) {
        this.setBuffer(node.proto.output[0]!, emitter.required(viewed).buffer);
        return;
      }
      this.recorder.at(node.layer, node.label);
      operator.emit(emitter);
    });
  }

  /**
   * Copies outputs that are weights, constants or inputs to bytes of their own, and those that share bytes with an
   * early output.
   */
  placeOutputs(): void {
    for (const name of this.graph.outputs) this.#placeOutput(name);
  }

  /**
   * The same for early outputs, right after the node that makes them: a copy at the program's end would be too late.
   */
  placeEarly(names: readonly string[]): void {
    for (const name of names) if (this.#prepared.early?.has(name) === true) this.#placeOutput(name);
  }

  #placeOutput(name: string): void {
    if (!this.graph.values.has(name) || this.#placed.has(name)) return;
    this.#placed.add(name);
    const from = this.buffer(name);
    const isOwn = this.storages.of(from).kind === 'activation' && !this.#taken.has(from.id);
    // The launch that completes an early output is found by its bytes alone, so it must not share them.
    const isEarly = this.#prepared.early?.has(name) === true;
    if (isEarly) this.#taken.add(from.id);
    if (isOwn) return;
    const to = this.storages.activation(from.bytes);
    const ownLayer = this.graph.weight(name)?.layer ?? 0;
    this.recorder.at(Math.max(this.recorder.launches.at(-1)?.layer ?? 0, ownLayer), `output ${name}`);
    this.recorder.copy(from, to, from.bytes);
    if (isEarly) this.#taken.add(to.id);
    this.setBuffer(name, to);
  }

  attempt(node: WorkNode, work: () => void): void {
    try {
      work();
    } catch (error) {
      if (!(error instanceof Unsupported)) throw error;
      const anySize = error.isAnySize ? { isAnySize: true as const } : {};
      this.obstacles.push({ node: node.name, operator: node.type, reason: error.message, ...anySize });
    }
  }
}
