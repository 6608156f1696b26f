import { getOrMake } from '../../tools/index.ts';

/** Events that an operator should see, in bounded lists, the newest last. */
export type HostEvent = { readonly atMs: number } & (
  | {
      readonly kind: 'cold-start';
      readonly functionName: string;
      /** As in `X-Turntable-Placement`. */
      readonly placement: string;
      readonly loadMs: number;
      readonly latencyMs: number;
      readonly withinSlo: boolean;
    }
  | {
      readonly kind: 'eviction';
      readonly functionName: string;
      readonly cause: string;
      /** The cause as a word: `room`, `idle`, `reconfigured` and others of the places. */
      readonly why: string;
      /** The function that got its memory. */
      readonly by: string | undefined;
      readonly ageMs: number;
      readonly where: string;
    }
  | { readonly kind: 'instance-died'; readonly functionName: string; readonly reason: string }
  | { readonly kind: 'stopped'; readonly functionName: string; readonly version: string; readonly reason: string }
  | {
      readonly kind: 'reconfiguration';
      readonly functionName: string;
      /** '2x<1,t4,b8>', as in the pool's state. */
      readonly configuration: string;
      readonly cause: string;
      readonly tookMs: number;
    }
  | { readonly kind: 'slo-breach'; readonly functionName: string; readonly late: number; readonly sloMs: number }
  | { readonly kind: 'published' | 'removed'; readonly functionName: string; readonly version: string }
  /** The division of calls among versions has changed, or could not change. */
  | {
      readonly kind: 'traffic';
      readonly functionName: string;
      readonly message: string;
      readonly level: 'info' | 'warning';
    }
  | {
      readonly kind: 'host';
      readonly level: 'info' | 'warning';
      readonly message: string;
      /** The GPU process went down, for this reason. */
      readonly gpuDown?: string;
      /** The worker of this name fell silent. */
      readonly workerLost?: string;
    }
);

export type NewHostEvent = HostEvent extends infer H ? (H extends HostEvent ? Omit<H, 'atMs'> : never) : never;

const keptOverall = 500;
const keptByFunction = 50;
/** No function has this name: events of the host itself. */
export const ofHost = '';

/** Keeps the newest events, and passes each to the listeners. */
export class EventLog {
  readonly #all: HostEvent[] = [];
  readonly #byFunction = new Map<string, HostEvent[]>();
  readonly #listeners = new Set<(event: HostEvent) => void>();

  add(event: NewHostEvent, atMs = Date.now()): void {
    const dated = { ...event, atMs } as HostEvent;
    keep(this.#all, dated, keptOverall);
    const of = 'functionName' in dated ? dated.functionName : ofHost;
    const list = getOrMake(this.#byFunction, of, () => []);
    // A breach a second would soon push out what says why; their number stands in the history.
    const breach = list.length < keptByFunction ? -1 : list.findIndex(({ kind }) => kind === 'slo-breach');
    if (breach >= 0) list.splice(breach, 1);
    keep(list, dated, keptByFunction);
    for (const listener of this.#listeners) listener(dated);
  }

  all(): readonly HostEvent[] {
    return this.#all;
  }

  of(functionName: string): readonly HostEvent[] {
    return this.#byFunction.get(functionName) ?? [];
  }

  forget(functionName: string): void {
    this.#byFunction.delete(functionName);
  }

  /** Returns a function that removes the listener. */
  listen(listener: (event: HostEvent) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

function keep(list: HostEvent[], event: HostEvent, most: number): void {
  list.push(event);
  if (list.length > most) list.splice(0, list.length - most);
}
