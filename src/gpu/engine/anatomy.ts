/** Measures where the time of one run went, layer by layer, with events on the GPUs' own clocks. */
import type { CudaEvent } from '../driver/types.ts';
import type { ColdStartPlan, LayerTimes, Span, Timeline } from '../../plan/index.ts';
import type { GpuLane } from './lane.ts';
import type { OrderedStream } from './streams.ts';

/** Events on a GPU, whose times are known once they were reached. */
interface Marks {
  readonly lane: GpuLane;
  readonly start: CudaEvent;
  end: CudaEvent;
}

export class Anatomy {
  readonly #primary: GpuLane;
  /** The start of the run; on helping GPUs, a moment after it: their origin waits for the run's start once. */
  readonly #origins = new Map<GpuLane, CudaEvent>();
  readonly #copies = new Map<number, Marks>();
  readonly #migrations = new Map<number, Marks>();
  readonly #decodes = new Map<number, Marks>();
  readonly #executions = new Map<number, Marks>();
  readonly #issues = new Map<number, Span>();
  /** By layer: the layers whose arrival its execution waited for. */
  readonly #awaited = new Map<number, number[]>();
  readonly #calledMs: number;
  /** Of the layer that was launched last. */
  #lastEnd: CudaEvent | undefined;

  constructor(primary: GpuLane, origin: CudaEvent, calledMs: number) {
    this.#primary = primary;
    this.#origins.set(primary, origin);
    this.#calledMs = calledMs;
  }

  /** Makes a stream begin after the start of the run, so that its times can be measured from there. */
  follow(lane: GpuLane, stream: OrderedStream): void {
    stream.cuda.wait(this.#origins.get(this.#primary)!);
    if (this.#origins.has(lane)) return;
    this.#origins.set(lane, mark(lane, stream));
  }

  /** Records the time around the work that `submit` submits. */
  #around(
    marks: Map<number, Marks>,
    layers: readonly number[],
    lane: GpuLane,
    stream: OrderedStream,
    submit: () => void,
  ): void {
    const start = mark(lane, stream);
    submit();
    const end = mark(lane, stream);
    for (const layer of layers) marks.set(layer, { lane, start, end });
  }

  copy(layers: readonly number[], lane: GpuLane, submit: () => void): void {
    this.#around(this.#copies, layers, lane, lane.load, submit);
  }

  migration(layers: readonly number[], lane: GpuLane, submit: () => void): void {
    this.#around(this.#migrations, layers, lane, lane.migration, submit);
  }

  decode(layers: readonly number[], lane: GpuLane, submit: () => void): void {
    this.#around(this.#decodes, layers, lane, lane.migration, submit);
  }

  /** @param hasWaited whether the stream waits for something before the layer; if not, it starts where the last ended */
  executionStarts(layer: number, awaited: readonly number[], hasWaited: boolean): void {
    const { execution } = this.#primary;
    const start = (hasWaited ? undefined : this.#lastEnd) ?? mark(this.#primary, execution);
    this.#executions.set(layer, { lane: this.#primary, start, end: start });
    this.#awaited.set(layer, [...awaited]);
  }

  executionEnds(layer: number): void {
    this.#lastEnd = mark(this.#primary, this.#primary.execution);
    this.#executions.get(layer)!.end = this.#lastEnd;
  }

  /** When the CPU submitted a layer's copies, by its own clock. */
  issued(layer: number, startMs: number, endMs: number): void {
    this.#issues.set(layer, { startMs: startMs - this.#calledMs, endMs: endMs - this.#calledMs });
  }

  /** The timeline, once everything has ended. Releases the events. */
  timeline(plan: ColdStartPlan, resident: readonly number[], fromHost: ReadonlySet<number>): Timeline {
    let busyMs = 0;
    let stallSumMs = 0;
    const layers = plan.layers.map(({ name, method, link }, layer): LayerTimes => {
      const measured = this.#span(this.#executions.get(layer));
      const execution = measured ?? { startMs: busyMs, endMs: busyMs };
      const arrivedMs = Math.max(0, ...(this.#awaited.get(layer) ?? []).map((other) => this.#arrivalMs(other)));
      const stallMs = measured === undefined ? 0 : Math.max(0, Math.min(arrivedMs, execution.startMs) - busyMs);
      stallSumMs += stallMs;
      busyMs = Math.max(busyMs, execution.endMs);
      return {
        name,
        method,
        link,
        resident: resident.includes(layer),
        fromHost: fromHost.has(layer),
        issue: this.#issues.get(layer),
        copy: this.#span(this.#copies.get(layer)),
        migration: this.#span(this.#migrations.get(layer)),
        decode: this.#span(this.#decodes.get(layer)),
        execution,
        stallMs,
      };
    });
    return { latencyMs: busyMs, stallMs: stallSumMs, layers };
  }

  /** The origin belongs to the run, which made it. */
  release(): void {
    const given = new Set<CudaEvent>();
    for (const marks of [this.#copies, this.#migrations, this.#decodes, this.#executions]) {
      for (const { lane, start, end } of marks.values()) {
        // Layers that are copied together share their events, and so do those that execute one after the other.
        for (const event of [start, end]) {
          if (!given.has(event)) lane.giveTimers([event]);
          given.add(event);
        }
      }
      marks.clear();
    }
    for (const [lane, origin] of this.#origins) if (lane !== this.#primary) lane.giveTimers([origin]);
    this.#origins.clear();
  }

  #arrivalMs(layer: number): number {
    const marks = this.#decodes.get(layer) ?? this.#migrations.get(layer) ?? this.#copies.get(layer);
    return this.#span(marks)?.endMs ?? 0;
  }

  #span(marks: Marks | undefined): Span | undefined {
    if (marks === undefined) return undefined;
    const origin = this.#origins.get(marks.lane)!;
    return { startMs: Math.max(0, marks.start.msSince(origin)), endMs: Math.max(0, marks.end.msSince(origin)) };
  }
}

function mark(lane: GpuLane, stream: OrderedStream): CudaEvent {
  const event = lane.timer();
  stream.cuda.record(event);
  return event;
}
