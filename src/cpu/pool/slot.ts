/** The instances of a function, each with its place in the list that serves. */
import type { Processes, Replica, ReplicaEnd } from '../instance/index.ts';
import type { GiveUpCause, PoolState } from '../types.ts';
import type { PlannedInstance } from './configuration.ts';
import type { CoreLease } from './cores.ts';
import { ListSwaps, type ListMember } from './list-swaps.ts';

/** An instance and its place in the list. */
export interface Slot extends ListMember {
  /** Rows of a run in the active configuration. */
  batch: number;
  replica: Replica | undefined;
  /** `leaving`: ends when it has answered; takes no more calls. */
  state: 'starting' | 'ready' | 'down' | 'leaving';
  leavingCause: GiveUpCause;
  deathsInRow: number;
  restartTimer: NodeJS.Timeout | undefined;
  /** How its last replica ended, if it ended by itself. */
  lastEnd: ReplicaEnd | undefined;
}

export function makeSlot({ threads, batch }: PlannedInstance, lease: CoreLease | undefined): Slot {
  return {
    threads,
    batch,
    lease,
    replica: undefined,
    state: 'starting',
    leavingCause: 'reconfigured',
    deathsInRow: 0,
    restartTimer: undefined,
    lastEnd: undefined,
  };
}

/** All slots of a pool. What it iterates over and counts are the slots that serve, unless a method says otherwise. */
export class Slots extends ListSwaps<Slot> {
  [Symbol.iterator](): IterableIterator<Slot> {
    return this.serving.values();
  }

  override remove(slot: Slot): void {
    clearTimeout(slot.restartTimer);
    super.remove(slot);
  }

  count(matches: (slot: Slot) => boolean): number {
    let count = 0;
    for (const slot of this.serving) if (matches(slot)) count++;
    return count;
  }

  /** Replicas that hold the model or load it. */
  get instances(): number {
    return this.count(({ replica }) => replica !== undefined);
  }

  get ready(): number {
    return this.count(({ state }) => state === 'ready');
  }

  some(state: Slot['state'], matches: (slot: Slot) => boolean = () => true): boolean {
    return this.count((slot) => slot.state === state && matches(slot)) > 0;
  }

  /** Memory of the instances that serve or leave. A list that is about to take over has a reservation of its own. */
  bytes(processes: Processes): number {
    let bytes = 0;
    for (const { replica } of [...this.serving, ...this.leaving])
      if (replica !== undefined) bytes += processes.bytesOf(replica);
    return bytes;
  }

  /** Milliseconds since its replicas became idle; -Infinity while one has work, or is starting. */
  idleForMs(nowMs: number): number {
    let idleMs = Infinity;
    for (const { state, replica } of this.serving)
      idleMs = Math.min(idleMs, state === 'ready' && replica !== undefined ? replica.idleForMs(nowMs) : -Infinity);
    return idleMs;
  }

  /** The state of every instance, whether it serves, starts or leaves. */
  state(processes: Processes): PoolState['instances'] {
    return this.all.flatMap(({ replica, state, threads, lease }) => {
      if (replica === undefined) return [];
      const shown = state === 'starting' ? 'loading' : replica.state === 'busy' ? 'busy' : 'idle';
      const { instance, isAlone, holdsModel } = replica;
      return [
        {
          pid: instance.pid,
          state: shown,
          threads,
          cores: lease?.cores ?? [],
          bytes: processes.bytesOf(replica),
          ...(isAlone ? {} : { isShared: true }),
          ...(holdsModel || shown === 'loading' ? {} : { holdsModel }),
        },
      ];
    });
  }
}

/** The higher the rank, the sooner an instance is dropped: those that are not ready first, busy ones last. */
export function leavingRank({ state, replica }: Slot): number {
  if (state !== 'ready') return 2;
  return replica?.state === 'busy' ? 0 : 1;
}
