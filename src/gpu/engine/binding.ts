/**
 * A program on one GPU: its kernels loaded, its launches prepared, every address filled in. When a layer's weights have
 * moved since the last run, the launches that read them are patched before they are submitted.
 *
 * A launch reads a layer in host memory through staging memory, into which the layer is copied first: otherwise a
 * product would read it once for every tile of rows, a normalization once for every row. Only rows of tables are read
 * in place.
 */
import {
  CudaError,
  type CudaGraph,
  type CudaModule,
  type CudaStream,
  type DeviceAddress,
  type PreparedLaunch,
} from '../driver/types.ts';
import { alignUp } from '../program/arena.ts';
import type { Launch, Operand, Program } from '../program/types.ts';
import type { DeviceBlock } from './device-memory.ts';
import type { Product } from './products.ts';
import type { LatestMs } from './run-ends.ts';
import { Staging } from './staging.ts';

type Patch = (base: DeviceAddress) => void;

/** Bases of addresses: a layer's block, or one of these. */
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

/**
 * Consecutive launches that one graph makes once all their layers are in place: the whole program in a warm run, and a
 * piece of whole layers where others are still to come. Launched one by one, a launch of an H200 takes 3.2 us more:
 * BERT-Base with nine tenths of its layers in place took 3.0 ms instead of 2.8.
 */
export interface Stretch {
  readonly first: number;
  readonly end: number;
  readonly layers: readonly LayerLaunches[];
  graph: CudaGraph | null;
  /** How many changes of addresses the graph knows. */
  changes: number;
  /** How often its launches could have been captured. */
  runs: number;
}

/** Of a piece at least, but for the last: launching a graph takes as long as two launches. */
const pieceLaunches = 16;

export interface BindingParts {
  readonly program: Program;
  /** Loaded kernels; null for a program without any. */
  readonly module: CudaModule | null;
  readonly constants: DeviceBlock | null;
  /** By launch; undefined for other launches than products. */
  readonly products: readonly (Product | undefined)[];
  /** Submits a copy from host memory to the stream of the launches. */
  readonly copyFromHost: (to: DeviceAddress, from: DeviceAddress, bytes: number) => void;
}

export class Binding {
  readonly program: Program;
  readonly whole: Stretch;
  /** In execution order; together they are the whole. */
  readonly pieces: readonly Stretch[];
  /** Layers with weights that the program reads: a part of a function does not read all of them. */
  readonly layersRead: readonly number[];
  /** Activations and workspace. */
  readonly scratchBytes: number;
  readonly #submit: ((stream: CudaStream) => void)[] = [];
  readonly #prepared: PreparedLaunch[] = [];
  readonly #products: readonly (Product | undefined)[];
  readonly #copyFromHost: BindingParts['copyFromHost'];
  /** They move as layers do. */
  readonly #constants: DeviceBlock | null;
  readonly #patches: Patch[][];
  /** By base: launches that have an address of it. */
  readonly #users: number[][];
  /** Changes of addresses so far, and by launch the latest of its own. */
  #changes = 0;
  readonly #changedAt: number[];
  readonly #bases: DeviceAddress[];
  /** Base of launches that read a layer in place. */
  readonly #inPlaceBase: number;
  /** By launch: layers that it reads as a whole, not just some rows of. */
  readonly #readsWhole: (readonly number[])[] = [];
  /** Addresses of layers that are in host memory. */
  readonly #onHost = new Map<number, DeviceAddress>();
  readonly #staging: Staging;
  /** Workspace that the chosen algorithms of the program's products really need. It comes after the activations. */
  #workspaceBytes = 0;
  readonly #workspaceAt: number;
  readonly latestMs: LatestMs = {};
  /** Set when a capture was refused: it would be refused again. */
  graphRefused = false;

  constructor(parts: BindingParts) {
    const { program, constants, products } = parts;
    this.program = program;
    this.#products = products;
    this.#copyFromHost = parts.copyFromHost;
    this.#constants = constants;
    const { layers: weightLayers } = program.layout;
    const read = program.layersRead ?? weightLayers.map(({ index }) => index);
    this.layersRead = read.filter((layer) => weightLayers[layer]!.bytes > 0);
    this.#staging = new Staging(weightLayers.map(({ bytes }) => bytes));
    this.#inPlaceBase = layerBase + weightLayers.length;
    const count = this.#inPlaceBase + weightLayers.length;
    this.#patches = Array.from({ length: count }, () => []);
    this.#users = Array.from({ length: count }, () => []);
    this.#bases = Array.from({ length: count }, () => -1);
    this.#changedAt = program.launches.map(() => 0);
    const layers: { layer: number; first: number; end: number }[] = [];
    for (const [index, launch] of program.launches.entries()) {
      this.#readsWhole.push(launch.reads.filter((layer) => !this.#readsInPlace(launch, layer)));
      if (launch.kind === 'matmul') this.#prepareProduct(index, launch, products[index]!);
      else this.#prepare(index, launch, parts.module);
      const last = layers.at(-1);
      if (last?.layer === launch.layer) last.end = index + 1;
      else layers.push({ layer: launch.layer, first: index, end: index + 1 });
    }
    this.whole = stretchOf(layers);
    this.pieces = piecesOf(layers);
    this.#workspaceAt = alignUp(program.arenaBytes);
    this.scratchBytes = this.#workspaceAt + alignUp(this.#workspaceBytes);
  }

  setLayer(layer: number, address: DeviceAddress, isOnHost: boolean): void {
    this.#setBase(this.#inPlaceBase + layer, address);
    if (!isOnHost) {
      this.#onHost.delete(layer);
      this.#setBase(layerBase + layer, address);
    } else if (this.#onHost.get(layer) !== address) {
      this.#onHost.set(layer, address);
      this.#changed(this.#users[layerBase + layer]!);
    }
  }

  /** Staging memory for the layers that are in host memory now: as much as a single launch reads of them. */
  get stagingBytes(): number {
    if (this.#onHost.size === 0) return 0;
    const { layers } = this.program.layout;
    const sizes = this.#readsWhole.map((read) =>
      read.reduce((sum, layer) => sum + (this.#onHost.has(layer) ? layers[layer]!.bytes : 0), 0),
    );
    return sizes.reduce((most, bytes) => Math.max(most, bytes), 0);
  }

  /** For one run, whose layers are set. @param staging of {@link stagingBytes}, unused if there are none */
  setScratch(scratch: DeviceAddress, staging: DeviceAddress): void {
    this.#setBase(arenaBase, scratch);
    this.#setBase(workspaceBase, scratch + this.#workspaceAt);
    if (this.#constants !== null) this.#setBase(constantBase, this.#constants.address);
    const { stagingBytes } = this;
    if (stagingBytes > 0 && this.#staging.begin(staging, stagingBytes)) this.#changed(this.#changedAt.keys());
  }

  submit(index: number, stream: CudaStream): void {
    if (this.#onHost.size > 0) this.#bring(index);
    this.#submit[index]!(stream);
  }

  /** Staged copies were not made after all: the graph with these copies could not be created. */
  forgetStaged(): void {
    this.#staging.forget();
  }

  /** Whether an address has changed since the graph was captured. */
  isStale({ first, end, changes }: Stretch): boolean {
    return changes !== this.#changes && this.#changedAt.slice(first, end).some((change) => change > changes);
  }

  captured(stretch: Stretch, graph: CudaGraph | null): void {
    stretch.graph = graph;
    stretch.changes = this.#changes;
  }

  /** Whether the launches copy layers from host memory: what they copy depends on the launches before them. */
  brings({ first, end }: Stretch): boolean {
    if (this.#onHost.size === 0) return false;
    return this.#readsWhole.slice(first, end).some((layers) => layers.some((layer) => this.#onHost.has(layer)));
  }

  #changed(launches: Iterable<number>): void {
    this.#changes++;
    for (const launch of launches) this.#changedAt[launch] = this.#changes;
  }

  /** Copies the layers that a launch reads from host memory to staging memory, unless an earlier launch already has. */
  #bring(index: number): void {
    const read = this.#readsWhole[index]!.filter((layer) => this.#onHost.has(layer));
    for (const { layer, address } of this.#staging.take(read)) {
      this.#copyFromHost(address, this.#onHost.get(layer)!, this.program.layout.layers[layer]!.bytes);
      // The same in every run with these layers on the host, so a graph of it stays valid.
      this.#patch(layerBase + layer, address);
    }
  }

  /** True after the library failed at a product: the program's next binding uses a kernel there. */
  outdated = false;

  release(): void {
    for (const stretch of [this.whole, ...this.pieces]) {
      stretch.graph?.release();
      stretch.graph = null;
    }
    for (const prepared of this.#prepared) prepared.release();
    for (const product of this.#products) product?.release();
  }

  #setBase(base: number, address: DeviceAddress): void {
    if (this.#patch(base, address)) this.#changed(this.#users[base]!);
  }

  /** Returns whether a launch has another address now. */
  #patch(base: number, address: DeviceAddress): boolean {
    if (this.#bases[base] === address) return false;
    this.#bases[base] = address;
    const patches = this.#patches[base]!;
    for (const patch of patches) patch(address);
    return patches.length > 0;
  }

  /**
   * Whether a launch reads a layer over the link in place: a copy reads every byte once, and a kernel only some rows of
   * a table.
   */
  #readsInPlace({ kind }: Launch, layer: number): boolean {
    return kind === 'copy' || (kind === 'kernel' && this.program.layout.layers[layer]!.kind === 'embedding');
  }

  /** Has a launch's address of an operand set when its base changes. */
  #onBase(index: number, operand: Operand, set: (address: DeviceAddress) => void): void {
    const weight = operand.space === 'weight' ? this.program.layout.weights[operand.weight]! : undefined;
    const offset = (weight?.byteOffset ?? 0) + operand.byteOffset;
    this.#use(index, this.#baseOf(index, operand, weight?.layer), (base) => set(base + offset));
  }

  #baseOf(index: number, { space }: Operand, layer: number | undefined): number {
    if (space === 'arena') return arenaBase;
    if (space === 'constant' || layer === undefined) return constantBase;
    return layer + (this.#readsInPlace(this.program.launches[index]!, layer) ? this.#inPlaceBase : layerBase);
  }

  #use(index: number, base: number, patch: Patch): void {
    this.#patches[base]!.push(patch);
    if (this.#users[base]!.at(-1) !== index) this.#users[base]!.push(index);
  }

  #prepareProduct(index: number, launch: Launch & { kind: 'matmul' }, product: Product): void {
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
      this.#onBase(index, operand, (address) => {
        operands[name] = address;
        if (parameter >= 0) prepared!.set(parameter, address);
      });
    }
    if (library === null) {
      this.#submit.push((stream) => stream.launch(prepared!));
      return;
    }
    this.#workspaceBytes = Math.max(this.#workspaceBytes, library.workspaceBytes);
    this.#use(index, workspaceBase, (address) => (operands.workspace = address));
    this.#submit.push((stream) => {
      try {
        stream.matmul(library, operands);
      } catch (error) {
        if (error instanceof CudaError && error.code === 'unsupported') {
          product.refuse();
          this.outdated = true;
        }
        throw error;
      }
    });
  }

  #prepare(index: number, launch: Exclude<Launch, { kind: 'matmul' }>, module: CudaModule | null): void {
    switch (launch.kind) {
      case 'kernel': {
        const { grid, block } = launch;
        const prepared = module!.kernel(launch.kernel).prepare(
          { grid, block },
          launch.arguments.map(({ type }) => type),
        );
        this.#prepared.push(prepared);
        for (const [at, argument] of launch.arguments.entries()) {
          if (argument.type === 'pointer')
            this.#onBase(index, argument.operand, (address) => prepared.set(at, address));
          else prepared.set(at, argument.value);
        }
        this.#submit.push((stream) => stream.launch(prepared));
        return;
      }
      case 'copy': {
        let from = 0;
        let to = 0;
        this.#onBase(index, launch.from, (address) => (from = address));
        this.#onBase(index, launch.to, (address) => (to = address));
        const layers = launch.reads;
        this.#submit.push((stream) => {
          const isFromHost = layers.some((layer) => this.#onHost.has(layer));
          if (isFromHost) this.#copyFromHost(to, from, launch.bytes);
          else stream.copy(to, from, launch.bytes);
        });
        return;
      }
      case 'fill': {
        let to = 0;
        this.#onBase(index, launch.to, (address) => (to = address));
        this.#submit.push((stream) => stream.fill(to, launch.byteValue, launch.bytes));
      }
    }
  }
}

const stretchOf = (layers: readonly LayerLaunches[]): Stretch => ({
  first: layers[0]?.first ?? 0,
  end: layers.at(-1)?.end ?? 0,
  layers,
  graph: null,
  changes: 0,
  runs: 0,
});

function piecesOf(layers: readonly LayerLaunches[]): Stretch[] {
  const pieces: Stretch[] = [];
  let from = 0;
  for (const [index, { end }] of layers.entries()) {
    if (end - layers[from]!.first < pieceLaunches && index + 1 < layers.length) continue;
    pieces.push(stretchOf(layers.slice(from, index + 1)));
    from = index + 1;
  }
  return pieces;
}
