/** One run of a program: missing layers are copied while present layers execute. */
import type { Tensor } from '../../tensor/index.ts';
import { CudaError, type CudaEvent, type CudaGraph } from '../driver/types.ts';
import { matchInputs } from '../program/input-shapes.ts';
import type { Program, ProgramTensor } from '../program/types.ts';
import { given } from '../../tools/index.ts';
import type { RunOptions, RunResult, StartKind } from '../types.ts';
import { Anatomy } from './anatomy.ts';
import type { Binding, Stretch } from './binding.ts';
import type { Exchange } from './exchange.ts';
import type { GpuLane } from './lane.ts';
import { cancelled, orCancelled } from './mutex.ts';
import type { EngineFunction, Residency } from './residency.ts';
import type { RunContext } from './run-context.ts';
import { runIoOf, type RunIo } from './run-io.ts';
import { CodedLayersWrong, type FollowedDecoding } from './coded-layers.ts';
import { bring } from './load.ts';
import { repair } from './repair.ts';
import { decodingOf, Transfer } from './transfer.ts';

/** Copies that are submitted before a graph, as a share of those before launches. */
const graphLookahead = 16;

/** Layers that the plan needs on the GPU and that are missing, and those that execute from host memory. */
interface Needs {
  readonly missing: readonly number[];
  readonly fromHost: ReadonlySet<number>;
}

/** What a run has found, and what has come for it since. */
class Begun {
  readonly resident: readonly number[];
  readonly start: StartKind;
  readonly startedMs = performance.now();
  readonly timers: readonly [CudaEvent, CudaEvent];
  readonly anatomy: Anatomy | null = null;
  readonly #lane: GpuLane;
  readonly layers = new Set<number>();
  loadedBytes = 0;
  fromDisk = false;

  constructor({ lane, layers }: Residency, missing: readonly number[], trace: boolean) {
    this.#lane = lane;
    this.resident = layers;
    this.start = missing.length === 0 ? 'warm' : layers.length === 0 ? 'cold' : 'partial';
    this.timers = [lane.timer(), lane.timer()];
    if (!trace) return;
    lane.execution.cuda.record(this.timers[0]);
    this.anatomy = new Anatomy(lane, this.timers[0], performance.now());
  }

  brought(layers: readonly number[], bytes: number): void {
    for (const layer of layers) this.layers.add(layer);
    this.loadedBytes += bytes;
  }

  release(): void {
    this.anatomy?.release();
    this.#lane.giveTimers(this.timers);
  }
}

interface Submitted {
  readonly begun: Begun;
  readonly done: Promise<unknown>;
  readonly decoding: FollowedDecoding;
  readonly io: RunIo;
  /** When it had the GPU. */
  readonly startedMs: number;
  readonly graph: boolean;
  readonly fromHost: ReadonlySet<number>;
}

export class Run {
  readonly #context: RunContext;
  readonly #residency: Residency;
  readonly #lane: GpuLane;
  readonly #program: Program;
  /** Without inputs that arrive during the run. */
  readonly #inputs: ReadonlyMap<string, Tensor>;
  readonly #options: RunOptions;
  readonly #exchange: Exchange | undefined;
  readonly #calledMs = performance.now();
  #begun: Begun | undefined;

  constructor(
    context: RunContext,
    target: EngineFunction,
    lane: GpuLane,
    program: Program,
    inputs: readonly Tensor[],
    options: RunOptions,
    exchange?: Exchange,
  ) {
    this.#context = context;
    this.#exchange = exchange;
    this.#lane = lane;
    this.#residency = target.residency(lane);
    this.#program = program;
    const arriving = exchange?.arriving;
    const given = matchInputs(
      program.inputs.filter(({ name }) => arriving?.has(name) !== true),
      inputs,
      'program',
    );
    this.#inputs = new Map(given.map((tensor) => [tensor.name, tensor]));
    this.#options = options;
    target.checkPlan(options.plan, lane.index);
  }

  async execute(): Promise<RunResult> {
    const { signal } = this.#options;
    const leases: Disposable[] = [];
    const release = (): void => leases.forEach((lease) => lease[Symbol.dispose]());
    let submitted: Submitted;
    try {
      await this.#lane.bind(this.#residency.weights.key, this.#program);
      submitted = await this.#submitOnceRead(leases);
    } catch (error) {
      // Copies under way still read host memory.
      void this.#drain().finally(() => {
        release();
        this.#begun?.release();
      });
      throw this.#context.failed(error);
    }
    const result = this.#finish(submitted).finally(release);
    return orCancelled(result, signal, ({ release }) => release?.());
  }

  /** While the disk is read for it, functions that share layers with it take their turns. */
  async #submitOnceRead(leases: Disposable[]): Promise<Submitted> {
    const { plan, signal } = this.#options;
    const { weights } = this.#residency;
    for (;;) {
      const turn = await this.#residency.enter(signal);
      let read: readonly number[];
      let needs: Needs;
      try {
        // The function may have been removed while this run waited for its program or its turn.
        weights.checkKept();
        await repair(this.#context, this.#residency);
        needs = this.#needs();
        read = [...needs.missing, ...needs.fromHost];
        this.#begun ??= new Begun(this.#residency, needs.missing, this.#options.trace === true);
        if (weights.areFilled(read)) {
          if (read.length > 0) leases.push(await weights.lease(read, signal));
          return await this.#submit(needs, this.#begun);
        }
      } finally {
        turn[Symbol.dispose]();
      }
      this.#begun.fromDisk = true;
      leases.push(await weights.lease(read, signal));
      const { anatomy } = this.#begun;
      const { bytes } = await bring(this.#context, this.#residency, plan, needs.missing, { signal, anatomy });
      this.#begun.brought(needs.missing, bytes);
      for (const layer of needs.fromHost) await orCancelled(weights.layerFilled(layer), signal);
    }
  }

  /** Layers that the plan needs on the GPU and that are missing, and layers that execute from host memory. */
  #needs(): Needs {
    const missing: number[] = [];
    const fromHost = new Set<number>();
    const { layers } = this.#options.plan;
    for (const { index, bytes, coded } of this.#program.layout.layers) {
      const isLoaded = layers[index]!.method === 'load';
      // A plan may keep more than a part of the function reads: what others share with it.
      if (bytes === 0 || (!isLoaded && this.#program.layersRead?.includes(index) === false)) continue;
      const isOfPlan = isLoaded || !this.#context.readsHost;
      const isCoded = coded !== undefined;
      if (this.#residency.has(index)) {
        // What another function has loaded stays for this one as well, if it is of its plan.
        if (isOfPlan) this.#residency.hold(index);
      } else if (isOfPlan || isCoded) missing.push(index);
      else fromHost.add(index);
    }
    return { missing, fromHost };
  }

  async #submit({ missing, fromHost }: Needs, begun: Begun): Promise<Submitted> {
    const { plan, trace = false, signal } = this.#options;
    const lane = this.#lane;
    const residency = this.#residency;
    const { weights } = residency;
    const { start, timers, anatomy } = begun;
    let io: RunIo | undefined;
    await residency.reserve(missing, signal);
    const decoding = await decodingOf(this.#context, residency, missing);
    // A warm run has nothing to copy. One that is traced goes layer by layer as others do.
    const transfer =
      start === 'warm' && missing.length === 0 && !trace
        ? undefined
        : new Transfer(this.#context, residency, plan, missing, decoding, anatomy);
    try {
      let { startedMs } = begun;
      using _lane = await lane.mutex.lock(signal);
      // The program may have been unbound while this run waited for the lane. Nothing is unbound while the run has it.
      const binding = await lane.bind(weights.key, this.#program);
      io = await this.#allocateIo();
      this.#placeLayers(binding, fromHost);
      // Its own layers may have been moved to make room for the activations.
      if (lane.prepareScratch(binding)) this.#placeLayers(binding, fromHost);
      if (start === 'warm') startedMs = performance.now();
      if (!trace) lane.execution.cuda.record(timers[0]);
      let graph = false;
      try {
        this.#copyInputs(io);
        if (transfer === undefined) graph = await this.#executeWarm(binding);
        else await this.#executeBehind(binding, transfer, missing, anatomy);
        this.#copyOutputs(io);
        lane.execution.cuda.record(timers[1]);
      } finally {
        const fence = lane.execution.fence();
        residency.lastUse = fence;
        lane.used(fence);
      }
      const streams = [lane.execution, ...(transfer?.streams ?? [])];
      const done = Promise.all(streams.map((stream) => stream.finished()));
      void lane.ends.follow(done, start, binding.latestMs, this.#options.onLaneFree);
      const followed = lane.decoding.follow(() => binding.layersRead.map((layer) => residency.block(layer)));
      // What is to execute from host memory, but is coded there, is on the GPU for this run alone.
      begun.brought(missing, transfer?.submittedBytes ?? 0);
      if (this.#context.readsHost)
        residency.release([...begun.layers].filter((layer) => plan.layers[layer]!.method !== 'load'));
      return { begun, done, decoding: followed, io, startedMs, graph, fromHost };
    } catch (error) {
      const held = io;
      void this.#drain().finally(() => held?.[Symbol.dispose]());
      throw error;
    } finally {
      transfer?.close();
    }
  }

  #placeLayers(binding: Binding, fromHost: ReadonlySet<number>): void {
    const residency = this.#residency;
    for (const layer of binding.layersRead) {
      const isOnHost = fromHost.has(layer);
      if (!isOnHost) residency.checkHas(layer);
      binding.setLayer(layer, residency.address(layer), isOnHost);
    }
  }

  /** Submits one layer's copies, and waits if too many are under way. */
  async #submitCopy(transfer: Transfer): Promise<void> {
    await transfer.submit();
    if (this.#options.signal?.aborted === true) throw cancelled();
  }

  /**
   * Launches each layer after its weights have arrived, with the copies some way ahead. Pieces of the program that are in
   * place already need no graph that waits: theirs are launched at once.
   */
  async #executeBehind(
    binding: Binding,
    transfer: Transfer,
    missing: readonly number[],
    anatomy: Anatomy | null,
  ): Promise<void> {
    const { execution } = this.#lane;
    if (this.#options.plan.mode === 'baseline') {
      while (transfer.next !== undefined) await this.#submitCopy(transfer);
      execution.waitForAll(this.#residency.layers.flatMap((layer) => this.#residency.ready(layer) ?? []));
    }
    const brought = new Set(missing);
    let executedBytes = 0;
    const startBytes = transfer.submittedBytes;
    const { lookaheadBytes } = this.#context;
    const submitAhead = async (last: number, aheadBytes: number): Promise<void> => {
      while (
        transfer.next !== undefined &&
        (transfer.next <= last || transfer.submittedBytes - startBytes - executedBytes < aheadBytes)
      ) {
        await this.#submitCopy(transfer);
      }
    };
    const { layers } = this.#program.layout;
    for (const piece of binding.pieces) {
      if (anatomy === null && this.#isInPlace(binding, piece, brought)) {
        // A graph is submitted so soon that the link does not wait for it.
        if (piece.graph !== null) await submitAhead(-1, lookaheadBytes / graphLookahead);
        if (this.#launchGraph(binding, piece)) continue;
      }
      for (const { layer, first, end } of piece.layers) {
        const reads = this.#readsOf(first, end);
        await submitAhead(Math.max(layer, ...reads), lookaheadBytes);
        if (brought.has(layer)) executedBytes += layers[layer]!.bytes;
        if (anatomy !== null) {
          // All waits at once, so that the time before them is a stall and the time after is execution.
          const waits = [...reads].map((read) => execution.wait(this.#residency.ready(read)));
          anatomy.executionStarts(layer, [...reads], waits.includes(true));
        }
        await this.#launch(binding, first, end);
        anatomy?.executionEnds(layer);
      }
    }
    while (transfer.next !== undefined) await this.#submitCopy(transfer);
  }

  /** Whether no launch of a piece has to wait for a layer. */
  #isInPlace(binding: Binding, piece: Stretch, brought: ReadonlySet<number>): boolean {
    if (binding.brings(piece)) return false;
    const reads = [...this.#readsOf(piece.first, piece.end)];
    return reads.every((layer) => !brought.has(layer) && this.#lane.execution.isBehind(this.#residency.ready(layer)));
  }

  #readsOf(first: number, end: number): Set<number> {
    const reads = new Set<number>();
    for (const launch of this.#program.launches.slice(first, end)) for (const layer of launch.reads) reads.add(layer);
    return reads;
  }

  async #launch(binding: Binding, first: number, end: number): Promise<void> {
    const { execution } = this.#lane;
    for (let index = first; index < end; index++) {
      if (this.#exchange?.before.has(index) === true) await this.#takeIn(this.#exchange, index);
      for (const layer of this.#program.launches[index]!.reads) execution.wait(this.#residency.ready(layer));
      binding.submit(index, execution.cuda);
      if (this.#exchange?.after.has(index) === true) this.#giveOut(this.#exchange, index);
    }
  }

  /** Copies use the execution stream itself: a later launch needs no event to wait for. */
  async #takeIn(exchange: Exchange, launch: number): Promise<void> {
    const { scratch } = this.#lane;
    for (const { name, byteOffset, bytes } of exchange.before.get(launch)!) {
      const address = await exchange.arrived(name);
      this.#lane.copyFromHost(scratch!.address + byteOffset, address, bytes);
    }
  }

  #giveOut(exchange: Exchange, launch: number): void {
    const { execution, scratch } = this.#lane;
    const tensors = exchange.after.get(launch)!;
    for (const { name, byteOffset, bytes } of tensors) {
      execution.cuda.copy(exchange.placeOf(name), scratch!.address + byteOffset, bytes);
    }
    void this.#tellOfLeaving(exchange, tensors);
  }

  async #tellOfLeaving(exchange: Exchange, tensors: readonly ProgramTensor[]): Promise<void> {
    try {
      await this.#lane.execution.finished();
      for (const { name } of tensors) exchange.left(name);
    } catch (error) {
      exchange.failed(this.#context.failed(error));
    }
  }

  /** All layers are there. Returns whether a captured graph ran. */
  async #executeWarm(binding: Binding): Promise<boolean> {
    const { execution } = this.#lane;
    const { whole } = binding;
    // A graph cannot wait for events recorded outside of it.
    if (this.#isCaptured(binding, whole))
      for (const layer of this.#residency.layers) execution.wait(this.#residency.ready(layer));
    if (this.#launchGraph(binding, whole)) return true;
    await this.#launch(binding, whole.first, whole.end);
    return false;
  }

  /** Whether launches run as a graph. Their first run goes launch by launch, because libraries load their kernels then. */
  #isCaptured(binding: Binding, { first, end, runs }: Stretch): boolean {
    return this.#exchange === undefined && this.#context.graphs && !binding.graphRefused && runs > 0 && end - first > 1;
  }

  /** Runs launches whose layers are in place as a graph. Returns false if they have to go one by one. */
  #launchGraph(binding: Binding, stretch: Stretch): boolean {
    const { execution } = this.#lane;
    const isCaptured = this.#isCaptured(binding, stretch);
    stretch.runs++;
    if (!isCaptured) return false;
    const earlier = stretch.graph;
    if (earlier === null || binding.isStale(stretch)) {
      let graph: CudaGraph | null = null;
      try {
        graph = execution.cuda.capture(() => {
          for (let index = stretch.first; index < stretch.end; index++) binding.submit(index, execution.cuda);
        }, earlier ?? undefined);
      } catch (error) {
        if (!(error instanceof CudaError) || error.isFatal) throw error;
        binding.graphRefused = true;
        binding.forgetStaged();
      }
      binding.captured(stretch, graph);
      if (earlier !== null && graph !== earlier) this.#lane.retireGraph(earlier);
    }
    if (stretch.graph === null) return false;
    execution.cuda.launchGraph(stretch.graph);
    return true;
  }

  #allocateIo(): Promise<RunIo> {
    const { inputs, outputs } = this.#program;
    const given = inputs.flatMap((tensor) => {
      const found = tensor.bytes === 0 ? undefined : this.#inputs.get(tensor.name);
      return found === undefined ? [] : [{ tensor, given: found }];
    });
    const results = outputs.filter(({ name }) => this.#exchange?.results.has(name) !== false);
    return runIoOf(this.#context, given, results, this.#options.lends === true);
  }

  #copyInputs({ inputs }: RunIo): void {
    const arena = this.#lane.scratch!.address;
    for (const { tensor, address } of inputs) this.#lane.copyFromHost(arena + tensor.byteOffset, address, tensor.bytes);
  }

  #copyOutputs({ outputs }: RunIo): void {
    const { execution, scratch } = this.#lane;
    for (const { tensor, address } of outputs)
      execution.cuda.copy(address, scratch!.address + tensor.byteOffset, tensor.bytes);
  }

  async #finish(submitted: Submitted): Promise<RunResult> {
    const { begun, io, startedMs, graph, decoding } = submitted;
    const { start, timers, loadedBytes, fromDisk, anatomy } = begun;
    let isLent = false;
    try {
      await submitted.done;
      const wrong = decoding.wrong();
      if (wrong > 0) throw new CodedLayersWrong(this.#residency.weights.key, wrong);
      const outputs = io.outputs.map(({ tensor, view }): Tensor => {
        const { name, datatype, shape } = tensor;
        return { name, datatype, shape, data: this.#options.lends === true ? view : view.slice() };
      });
      const gpuMs = timers[1].msSince(timers[0]);
      const timeline = anatomy?.timeline(this.#options.plan, begun.resident, submitted.fromHost);
      const totalMs = performance.now() - this.#calledMs;
      const timings = { waitMs: startedMs - this.#calledMs, gpuMs, totalMs };
      const result = { outputs, start, loadedBytes, fromDisk, graph, timings, ...given({ timeline }) };
      if (this.#options.lends !== true) return result;
      isLent = true;
      return { ...result, release: () => io[Symbol.dispose]() };
    } catch (error) {
      throw this.#context.failed(error);
    } finally {
      decoding[Symbol.dispose]();
      begun.release();
      if (!isLent) io[Symbol.dispose]();
    }
  }

  /** Resolves when no work of this run is under way, however it ended. */
  async #drain(): Promise<void> {
    const gpus = new Set([this.#lane.index, ...this.#options.plan.secondaries]);
    await Promise.all([...gpus].map(async (gpu) => this.#context.lane(gpu)?.drained()));
  }
}
