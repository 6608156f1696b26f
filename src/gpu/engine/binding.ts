/**
 * A program on one GPU: its kernels loaded, its launches prepared, every address filled in. Where a layer's weights have
 * moved since the last run, the launches that read them are patched before they are submitted.
 */
import type { CudaGraph, CudaModule, CudaStream, DeviceAddress, Matmul, PreparedLaunch } from '../driver/types.ts';
import type { Launch, Operand, Program } from '../program/types.ts';
import type { DeviceBlock } from './device-memory.ts';

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
  readonly createMatmul: (launch: Launch & { kind: 'matmul' }) => Matmul;
}

export class Binding {
  readonly program: Program;
  /** One entry for each layer that has launches, in execution order. */
  readonly layers: readonly LayerLaunches[];
  readonly #submit: ((stream: CudaStream) => void)[] = [];
  readonly #prepared: PreparedLaunch[] = [];
  readonly #patches: Patch[][];
  readonly #bases: DeviceAddress[];
  /** Of a warm run with the addresses as they are now. */
  graph: CudaGraph | null = null;
  /** Warm runs since an address changed. */
  warmRuns = 0;
  /** What the algorithms that were chosen for the program's products really need. */
  workspaceBytes = 0;
  /** Set when a capture was refused: it would be again. */
  graphRefused = false;

  constructor(parts: BindingParts) {
    const { program, constants } = parts;
    this.program = program;
    const count = layerBase + program.layout.layers.length;
    this.#patches = Array.from({ length: count }, () => []);
    this.#bases = Array.from({ length: count }, () => -1);
    const layers: { layer: number; first: number; end: number }[] = [];
    for (const [index, launch] of program.launches.entries()) {
      this.#prepare(launch, parts);
      const last = layers.at(-1);
      if (last?.layer === launch.layer) last.end = index + 1;
      else layers.push({ layer: launch.layer, first: index, end: index + 1 });
    }
    this.layers = layers;
    if (constants !== null) this.#setBase(constantBase, constants.address);
  }

  setLayer(layer: number, address: DeviceAddress): void {
    this.#setBase(layerBase + layer, address);
  }

  setScratch(arena: DeviceAddress, workspace: DeviceAddress): void {
    this.#setBase(arenaBase, arena);
    this.#setBase(workspaceBase, workspace);
  }

  submit(index: number, stream: CudaStream): void {
    this.#submit[index]!(stream);
  }

  /** Takes the graph away; whoever gets it releases it once no run uses it. */
  takeGraph(): CudaGraph | null {
    const { graph } = this;
    this.graph = null;
    return graph;
  }

  /** True when the captured graph no longer has the right addresses. */
  stale = false;
  /** True once it was given back: who still wants to run the program has to bind it anew. */
  released = false;

  release(): void {
    this.released = true;
    this.graph?.release();
    this.graph = null;
    for (const prepared of this.#prepared) prepared.release();
  }

  #setBase(base: number, address: DeviceAddress): void {
    if (this.#bases[base] === address) return;
    this.#bases[base] = address;
    const patches = this.#patches[base]!;
    for (const patch of patches) patch(address);
    if (patches.length > 0) {
      this.stale = true;
      this.warmRuns = 0;
    }
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

  #prepare(launch: Launch, { module, createMatmul }: BindingParts): void {
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
      case 'matmul': {
        const matmul = createMatmul(launch);
        this.workspaceBytes = Math.max(this.workspaceBytes, matmul.workspaceBytes);
        const operands = { a: 0, b: 0, d: 0, bias: 0, workspace: 0 };
        this.#onBase(launch.a, (address) => (operands.a = address));
        this.#onBase(launch.b, (address) => (operands.b = address));
        this.#onBase(launch.d, (address) => (operands.d = address));
        if (launch.bias !== null) this.#onBase(launch.bias, (address) => (operands.bias = address));
        this.#patches[workspaceBase]!.push((address) => (operands.workspace = address));
        this.#submit.push((stream) => stream.matmul(matmul, operands));
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
