/** A scheduler with its functions, given events at instants, for figures that can be added up by hand. */
import {
  policies,
  Scheduler,
  type Action,
  type OfferSheet,
  type Policy,
  type SchedulerEvent,
} from '../../src/schedule/index.ts';
import { offerSheet, smallGpus, type OfferShape } from './offers.ts';

/** The best policy, with an eviction order by recency alone. */
export const best: Policy = { ...policies.best, eviction: 'lru-suffix' };

export class Bench {
  readonly scheduler: Scheduler;
  readonly #gpuCount: number;
  #functions = 0;

  constructor(
    policy: Policy,
    { gpus = 1, capacityBytes = 100, cpuCores = 1, cpuMemoryBytes = Infinity, uplinkBytesPerMs = 2 } = {},
  ) {
    this.scheduler = new Scheduler({
      gpus: smallGpus(gpus, capacityBytes, uplinkBytesPerMs),
      policy,
      cpu: { cores: cpuCores, memoryBytes: cpuMemoryBytes },
    });
    this.#gpuCount = gpus;
  }

  /** @param only the GPU that can run it; default: all */
  add(shape: OfferShape, rest: Partial<Omit<OfferSheet, 'gpus'>> = {}, only?: number): number {
    const functionIndex = this.#functions++;
    const { gpus, ...common } = offerSheet(this.#gpuCount, shape, rest);
    const sheet = { ...common, gpus: gpus.map((offer, gpu) => (only === undefined || gpu === only ? offer : null)) };
    this.at(0, { kind: 'function-added', functionIndex, sheet });
    return functionIndex;
  }

  at(nowMs: number, event: SchedulerEvent): readonly Action[] {
    return this.scheduler.handle(event, nowMs);
  }

  /** Invokes a function and completes the invocation. */
  visit(nowMs: number, invocation: number, functionIndex: number): readonly Action[] {
    const actions = this.at(nowMs, { kind: 'arrival', invocation, functionIndex });
    for (const action of actions) {
      if (action.kind === 'load' || (action.kind === 'run' && action.load !== null)) {
        for (const next of this.at(nowMs + 1, { kind: 'loaded', gpu: action.gpu, functionIndex })) {
          if (next.kind === 'run') this.at(nowMs + 2, { kind: 'finished', invocation });
        }
      }
      if (action.kind === 'run') this.at(nowMs + 2, { kind: 'finished', invocation });
    }
    return actions;
  }
}

export const kinds = (actions: readonly Action[]): string[] => actions.map(({ kind }) => kind);
export const runs = (actions: readonly Action[]): number[] =>
  actions.filter((action) => action.kind === 'run').map(({ invocation }) => invocation);
export const arrival = (
  invocation: number,
  functionIndex: number,
  own: { readonly sloMs?: number; readonly priority?: number; readonly isKeptOffGpus?: boolean } = {},
): SchedulerEvent => ({ kind: 'arrival', invocation, functionIndex, ...own });
export const finished = (invocation: number): SchedulerEvent => ({ kind: 'finished', invocation });
