/**
 * A program on one GPU: its kernels loaded, its launches prepared, every address filled in. Where a layer's weights
 * have moved since the last run, the launches that read them are patched before they are submitted.
 */
import {
  CudaError,
  type CudaGraph,
  type CudaModule,
  type CudaStream,
  type DeviceAddress,
  type PreparedLaunch,
} from '../driver/types.ts';
import type { Launch, Operand, Program } from '../program/types.ts';
import type { DeviceBlock } from './device-memory.ts';
import type { Product } from './products.ts';

type Patch = (base: DeviceAddress) => void;

/** What addresses are counted from: a layer's block, or one of these. */
const arenaBase = 0;
const constantBase = 1;
const workspaceBase = 2;
const layerBase = 3;

/** Consecutive launches of one layer. */
export interface LayerLaunches {
  readonly layer: number;
  readonly first: number;
  readonly end: number;
}

export interface BindingParts {
  readonly program: Program;
  /** Loaded kernels; null for a program without any. */
  readonly module: CudaModule | null;
  readonly constants: DeviceBlock | null;
  /** By launch; undefined for what is no product. */
  readonly products: readonly (Product | undefined)[];
}

export class Binding {
  readonly program: Program;
  /** One entry for each layer that has launches, in execution order. */
  readonly layers: readonly LayerLaunches[];
  readonly #submit: ((stream: CudaStream) => void)[] = [];
  readonly #prepared: PreparedLaunch[] = [];
  readonly #products: readonly (Product | undefined)[];
  readonly #patches: Patch[][];
  readonly #bases: DeviceAddress[];
  /** Layers that are read from host memory. */
  readonly #onHost = new Set<number>();
  /** Of a warm run, with the addresses as they are now unless it is stale. */
  graph: CudaGraph | null = null;
  /** Of all that could have been captured. */
  warmRuns = 0;
  /** What the algorithms that were chosen for the program's products really need. */
  workspaceBytes = 0;
  /** Set when a capture was refused: it would be again. */
  graphRefused = false;

  constructor(parts: BindingParts) {
    const { program, constants, products } = parts;
    this.program = program;
    this.#products = products;
    const count = layerBase + program.layout.layers.length;
    this.#patches = Array.from({ length: count }, () => []);
    this.#bases = Array.from({ length: count }, () => -1);
    const layers: { layer: number; first: number; end: number }[] = [];
    for (const [index, launch] of program.launches.entries()) {
      if (launch.kind === 'matmul') this.#prepareProduct(launch, products[index]!);
      else this.#prepare(launch, parts.module);
      const last = layers.at(-1);
      if (last?.layer === launch.layer) last.end = index + 1;
      else layers.push({ layer: launch.layer, first: index, end: index + 1 });
    }
    this.layers = layers;
    if (constants !== null) this.#setBase(constantBase, constants.address);
  }

  setLayer(layer: number, address: DeviceAddress, isOnHost: boolean): void {
    if (isOnHost) this.#onHost.add(layer);
    else this.#onHost.delete(layer);
    this.#setBase(layerBase + layer, address);
  }

  setScratch(arena: DeviceAddress, workspace: DeviceAddress): void {
    this.#setBase(arenaBase, arena);
    this.#setBase(workspaceBase, workspace);
  }

  submit(index: number, stream: CudaStream): void {
    this.#submit[index]!(stream);
  }

  /** True when an address has changed since the graph was captured. */
  stale = false;
  /** True when the library failed at a product of it: the next binding of the program has a kernel there. */
  outdated = false;
  /** True once it was given back: who still wants to run the program has to bind it anew. */
  released = false;

  release(): void {
    this.released = true;
    this.graph?.release();
    this.graph = null;
    for (const prepared of this.#prepared) prepared.release();
    for (const product of this.#products) product?.release();
  }

  #setBase(base: number, address: DeviceAddress): void {
    if (this.#bases[base] === address) return;
    this.#bases[base] = address;
    const patches = this.#patches[base]!;
    for (const patch of patches) patch(address);
    if (patches.length > 0) this.stale = true;
  }

  #onBase(operand: Operand, set: (address: DeviceAddress) => void): void {
    const { byteOffset } = operand;
    switch (operand.space) {
      case 'arena':
        this.#patches[arenaBase]!.push((base) => set(base + byteOffset));
        return;
      case 'constant':
        this.#patches[constantBase]!.push((base) => set(base + byteOffset));
        return;
      case 'weight': {
        const weight = this.program.layout.weights[operand.weight]!;
        const offset = weight.byteOffset + byteOffset;
        this.#patches[layerBase + weight.layer]!.push((base) => set(base + offset));
      }
    }
  }

  #prepareProduct(launch: Launch & { kind: 'matmul' }, product: Product): void {
    const { library, own } = product;
    const { a, b, d, bias } = launch;
    const given = { a, b, d, ...(bias === null ? {} : { bias }) };
    const operands = { a: 0, b: 0, d: 0, bias: 0, workspace: 0 };
    const prepared = own?.kernel.prepare(
      own.shape,
      own.operands.map(() => 'pointer'),
    );
    if (prepared !== undefined) this.#prepared.push(prepared);
    for (const [name, operand] of Object.entries(given) as [keyof typeof given, Operand][]) {
      const parameter = own?.operands.indexOf(name) ?? -1;
      this.#onBase(operand, (address) => {
        operands[name] = address;
        if (parameter >= 0) prepared!.set(parameter, address);
      });
    }
    if (library === null) {
      this.#submit.push((stream) => stream.launch(prepared!));
      return;
    }
    this.workspaceBytes = Math.max(this.workspaceBytes, library.workspaceBytes);
    this.#patches[workspaceBase]!.push((address) => (operands.workspace = address));
    this.#submit.push((stream) => {
      if (prepared !== undefined && launch.reads.some((layer) => this.#onHost.has(layer))) {
        stream.launch(prepared);
        return;
      }
      try {
        stream.matmul(library, operands);
      } catch (error) {
        if (error instanceof CudaError && error.kind === 'unsupported') {
          product.refuse();
          this.outdated = true;
        }
        throw error;
      }
    });
  }

  #prepare(launch: Exclude<Launch, { kind: 'matmul' }>, module: CudaModule | null): void {
    switch (launch.kind) {
      case 'kernel': {
        const { grid, block, sharedBytes } = launch;
        const prepared = module!.kernel(launch.kernel).prepare(
          { grid, block, sharedBytes },
          launch.arguments.map(({ type }) => type),
        );
        this.#prepared.push(prepared);
        for (const [index, argument] of launch.arguments.entries()) {
          if (argument.type === 'pointer') this.#onBase(argument.operand, (address) => prepared.set(index, address));
          else prepared.set(index, argument.value);
        }
        this.#submit.push((stream) => stream.launch(prepared));
        return;
      }
      case 'copy': {
        let from = 0;
        let to = 0;
        this.#onBase(launch.from, (address) => (from = address));
        this.#onBase(launch.to, (address) => (to = address));
        this.#submit.push((stream) => stream.copy(to, from, launch.bytes));
        return;
      }
      case 'fill': {
        let to = 0;
        this.#onBase(launch.to, (address) => (to = address));
        this.#submit.push((stream) => stream.fill(to, launch.byteValue, launch.bytes));
      }
    }
  }
}
