/**
 * What each layer of a function costs on a GPU: bringing its weights, executing it with the weights in GPU memory, executing it
 * from host memory. The one-time profiling of DeepPlan (Jeong et al., EuroSys 2023, 4.3.1), by the GPU's own clock.
 */
import { cancelled } from '../engine/mutex.ts';
import type { Binding } from '../engine/binding.ts';
import type { Engine } from '../engine/index.ts';
import type { GpuLane } from '../engine/lane.ts';
import type { Residency } from '../engine/residency.ts';
import type { IoBuffers } from '../engine/io-buffers.ts';
import type { ColdStartPlan } from '../../plan/index.ts';
import type { MeasuredLayerProfile, MeasureOptions } from '../process/protocol.ts';
import type { Program } from '../program/types.ts';
import { sampleInput } from './inputs.ts';
import { putInputs, spreadOf, timed } from './timing.ts';

/** Consecutive launches of one layer that read the weights of the same layers. */
interface Segment {
  readonly layer: number;
  readonly first: number;
  readonly end: number;
  readonly reads: readonly number[];
}

/** Beyond this share of its loading time a layer is never planned to be read from host memory; said of layers not timed so. */
const unmeasuredLoads = 2;

/** A plan that puts every layer on the GPU over its own link. */
export function loadAllPlan({ layout }: Program, gpu: number): ColdStartPlan {
  return {
    mode: 'pipeswitch',
    primary: gpu,
    secondaries: [],
    bytesGpu: layout.bytes,
    layers: layout.layers.map(({ name, bytes }) => ({
      name,
      method: bytes > 0 ? 'load' : 'dha',
      link: bytes > 0 ? gpu : null,
    })),
  };
}

/**
 * Times every layer. Brings the whole function to the GPU first and leaves it there. Nothing else runs on the GPU meanwhile.
 *
 * @throws GpuError
 */
export async function measureLayers(
  engine: Engine,
  key: string,
  program: Program,
  options: MeasureOptions,
): Promise<MeasuredLayerProfile> {
  const { gpu, iterations = 10, allFromHost = true } = options;
  await engine.load(key, { gpu, plan: loadAllPlan(program, gpu) });
  const { lane, target, context } = engine.internals(key, gpu);
  const residency = target.residency(lane);
  using _lease = await context.store.lease(target.weights);
  const last = program.layout.layers.length - 1;
  if (last >= 0) await target.weights.layerFilled(last);
  using _residency = await residency.enter(undefined);
  if (program.layout.layers.some(({ index, bytes }) => bytes > 0 && !residency.has(index))) throw cancelled();
  const binding = await lane.bind(key, program);
  using _lane = await lane.mutex.lock();
  lane.prepareScratch(binding);
  const session = new MeasuringSession(lane, residency, binding, program, iterations);
  try {
    await session.putInputs(context.io);
    return await session.measure(allFromHost);
  } finally {
    const fence = lane.execution.fence();
    residency.lastUse = fence;
    lane.used(fence);
    await lane.execution.finished();
  }
}

class MeasuringSession {
  readonly #lane: GpuLane;
  readonly #residency: Residency;
  readonly #binding: Binding;
  readonly #program: Program;
  readonly #iterations: number;
  readonly #segments: readonly Segment[];

  constructor(lane: GpuLane, residency: Residency, binding: Binding, program: Program, iterations: number) {
    this.#lane = lane;
    this.#residency = residency;
    this.#binding = binding;
    this.#program = program;
    this.#iterations = iterations;
    this.#segments = segmentsOf(program);
  }

  async putInputs(io: IoBuffers): Promise<void> {
    const { layout, inputs } = this.#program;
    await putInputs(this.#lane, io, this.#program, (tensor) => sampleInput(layout, tensor, inputs));
  }

  async measure(allFromHost: boolean): Promise<MeasuredLayerProfile> {
    const { layers } = this.#program.layout;
    this.#place(() => false);
    // Kernels and algorithms are loaded at their first use.
    await this.#timeSegments();
    const warm = await this.#timeWhole();
    const inMemory = await this.#repeat(() => this.#timeSegments());
    const isTimedFromHost = (layer: number): boolean =>
      layers[layer]!.bytes > 0 && (allFromHost || layers[layer]!.kind === 'embedding');
    this.#place(isTimedFromHost);
    await this.#timeSegments();
    const fromHost = await this.#repeat(() => this.#timeSegments());
    this.#place(() => false);
    const loads = await this.#repeat(() => this.#timeLoads());

    const profile = layers.map(({ index, name, kind, bytes }) => {
      const exec = inMemory.map((times) => this.#sumOf(times, ({ layer }) => layer === index));
      const load = loads.map((times) => times[index] ?? 0);
      // Other layers that read these weights too are slower with them on the host: that is this layer's doing.
      const added = fromHost.map((times, iteration) =>
        this.#sumOf(
          times.map((ms, segment) => ms - inMemory[iteration]![segment]!),
          ({ reads }) => this.#largest(reads) === index,
        ),
      );
      const dha = exec.map((ms, iteration) => {
        if (bytes === 0) return ms;
        if (!isTimedFromHost(index)) return ms + unmeasuredLoads * load[iteration]!;
        return Math.max(0, ms + added[iteration]!);
      });
      const spread = { load: spreadOf(load), exec: spreadOf(exec), dha: spreadOf(dha) };
      const layer = {
        name,
        kind: kind as string,
        bytes,
        load: spread.load.medianMs,
        exec: spread.exec.medianMs,
        dha: spread.dha.medianMs,
      };
      return { layer, spread };
    });
    return {
      unit: 'ms',
      layers: profile.map(({ layer }) => layer),
      gpu: this.#lane.device.name,
      iterations: this.#iterations,
      spread: profile.map(({ spread }) => spread),
      warm: spreadOf(warm),
    };
  }

  /** Where the launches find each layer. */
  #place(isOnHost: (layer: number) => boolean): void {
    const { weights } = this.#residency;
    for (const { index, bytes } of this.#program.layout.layers) {
      if (bytes > 0)
        this.#binding.setLayer(index, isOnHost(index) ? weights.address(index) : this.#residency.address(index));
    }
  }

  async #repeat(time: () => Promise<number[]>): Promise<number[][]> {
    const all: number[][] = [];
    for (let iteration = 0; iteration < this.#iterations; iteration++) all.push(await time());
    return all;
  }

  #timeSegments(): Promise<number[]> {
    const { execution } = this.#lane;
    return timed(
      this.#lane,
      execution,
      this.#segments.map(({ first, end }) => () => {
        for (let index = first; index < end; index++) this.#binding.submit(index, execution.cuda);
      }),
    );
  }

  async #timeWhole(): Promise<number[]> {
    const { execution } = this.#lane;
    const all = (): void => {
      for (const index of this.#program.launches.keys()) this.#binding.submit(index, execution.cuda);
    };
    const times: number[] = [];
    for (let iteration = 0; iteration < this.#iterations; iteration++)
      times.push(...(await timed(this.#lane, execution, [all])));
    return times;
  }

  #timeLoads(): Promise<number[]> {
    const { load } = this.#lane;
    const { weights } = this.#residency;
    const copies = this.#program.layout.layers.map(({ index, bytes }) => {
      const block = this.#residency.block(index);
      return bytes === 0 || block === null
        ? (): void => undefined
        : (): void => load.cuda.copy(block.address, weights.address(index), bytes);
    });
    return timed(this.#lane, load, copies);
  }

  #sumOf(times: readonly number[], isWanted: (segment: Segment) => boolean): number {
    return times.reduce((sum, ms, index) => sum + (isWanted(this.#segments[index]!) ? ms : 0), 0);
  }

  /** Of several layers that a segment reads, the one with the most bytes is what its reads cost. */
  #largest(reads: readonly number[]): number | undefined {
    const { layers } = this.#program.layout;
    return reads.toSorted((a, b) => layers[b]!.bytes - layers[a]!.bytes)[0];
  }
}

function segmentsOf({ launches }: Program): Segment[] {
  const segments: { layer: number; first: number; end: number; reads: readonly number[] }[] = [];
  for (const [index, { layer, reads }] of launches.entries()) {
    const last = segments.at(-1);
    if (last?.layer === layer && reads.length === 0) last.end = index + 1;
    else if (last?.layer === layer && last.reads.join() === reads.join()) last.end = index + 1;
    else segments.push({ layer, first: index, end: index + 1, reads });
  }
  return segments;
}
