/**
 * Which process a session is in, and how much memory all of them take.
 *
 * Small functions share a few processes, at most one per core; a function that asks for one gets a process of its own.
 * All processes stay within one memory budget. Who goes when a new session does not fit is the scheduler's decision: it
 * is asked for room, and evicts.
 */
import { formatBytes } from '../../tools/index.ts';
import type { FrameMemory } from '../../tensor/index.ts';
import { CpuError, type InstanceSpec, type RoomWanted } from '../types.ts';
import { BlankSet } from './blank-set.ts';
import { Instance } from './instance.ts';
import type { InstanceLog } from './tasks.ts';
import { MemoryLedger, type MeasureProcess } from './ledger.ts';
import { Replica, type ReplicaEnd } from './replica.ts';

/** The function that owns a replica. */
export interface Holder {
  readonly spec: InstanceSpec;
  /** Calls wait for its first replica. */
  readonly needsFirst: boolean;
  pump(): void;
}

export interface Wish {
  readonly holder: Holder;
  readonly isAlone: boolean;
  /** It gets cores of its own. */
  readonly isLeased: boolean;
  /** Start a new process: a blank one has failed. */
  readonly anew: boolean;
  /** Expected size of its session. */
  readonly bytes: number;
  /** False: it has another replica, whose process it does not want. */
  readonly isFirst: boolean;
  readonly besides: readonly Instance[];
  readonly onTurn: () => void;
  readonly onMove: (isAway: boolean) => void;
  readonly onEnd: (replica: Replica, end: ReplicaEnd) => void;
}

export interface ResidencyOptions {
  readonly memoryBytes: number;
  /** Limit of shared processes. */
  readonly sharedMax: number;
  readonly blankInstances: number;
  /** Processes of models without handlers have no network; such models then share no process with handlers. */
  readonly modelsOffline: boolean;
  readonly measureProcess: MeasureProcess;
  readonly log: InstanceLog;
  readonly replies: FrameMemory | undefined;
  /** Of the machine: it is not a function's fault. */
  readonly warn: (line: string) => void;
  /** There is no room for a session: others may end within this call, or later. */
  readonly onShort: (wanted: RoomWanted) => void;
  /** What is taken has been measured. */
  readonly onMeasured: () => void;
}

/**
 * A shared process that has worked on one message for this long delays others. Calls that wait for it go to another
 * process, and one more may be started in its place. By then the scheduler counts its core as free for other functions.
 */
export const heldUpMs = 100;
/** Part of the memory that blank processes may take beside sessions. */
const blanksShareMax = 1 / 8;
/** An empty shared process ends after this. */
const emptyMsMax = 60_000;
/**
 * Handlers that a shared process may load, including released ones, since Node never forgets a module. After that it
 * takes no new ones.
 */
const handlersOfProcessMax = 200;

interface SharedProcess {
  readonly instance: Instance;
  readonly isOffline: boolean;
  handlers: number;
}

export class Residency {
  memoryBytes: number;
  readonly #options: ResidencyOptions;
  readonly #ledger: MemoryLedger;
  readonly #blanks: BlankSet;
  readonly #shared = new Set<SharedProcess>();
  /** Replicas that are loading or loaded. */
  readonly #replicas = new Set<Replica>();
  /** Cores of replicas without a lease; undefined while nothing is leased. */
  #sharedCores: readonly number[] | undefined;
  readonly #unleased = new Set<Instance>();
  readonly #waiting = new Set<Holder>();
  /** While new instances of a function take over from old ones: bytes of the old ones, which are there twice. */
  readonly #overlaps = new Map<Holder, () => number>();
  #pumpIsScheduled = false;
  #isStopped = false;

  constructor(options: ResidencyOptions) {
    this.#options = options;
    this.memoryBytes = options.memoryBytes;
    this.#ledger = new MemoryLedger(options.measureProcess, () => this.#afterMeasuring());
    this.#blanks = new BlankSet(
      options.blankInstances,
      options.warn,
      () => {
        const instance = new Instance(options.log, options.memoryBytes, options.replies);
        this.#ledger.add(instance);
        return instance;
      },
      // Without sessions the memory would lie idle.
      () => this.#replicas.size === 0 || this.#mayKeepBlanks(this.#blanks.size + 1),
    );
    this.#blanks.refill();
  }

  setMemory(bytes: number): void {
    this.memoryBytes = bytes;
    this.#afterMeasuring();
  }

  /** See {@link BlankSet.started}. */
  started(): Promise<void> {
    return this.#blanks.started();
  }

  get usedBytes(): number {
    return this.#ledger.usedBytes;
  }

  /** What no session can have: processes, and what runs and handlers have allocated. */
  get takenBytes(): number {
    const { blankBytes } = this.#ledger;
    const blanksKept = Math.floor((this.memoryBytes * blanksShareMax) / blankBytes);
    let bytes = this.usedBytes - Math.max(0, this.#blanks.size - blanksKept) * blankBytes;
    for (const replica of this.#replicas) bytes -= this.bytesOf(replica);
    return Math.max(0, bytes);
  }

  /**
   * A replica to load; undefined if there is no room, or other holders have waited longer. A holder without any replica
   * is pumped once there is room.
   *
   * @throws CpuError `model-load-failed` if it would not fit even alone
   */
  place(wish: Wish): Replica | undefined {
    const { holder, isFirst, bytes } = wish;
    if (this.#isStopped) return undefined;
    if (bytes > this.memoryBytes) throw this.#tooLarge(wish);
    const longest = this.#firstInNeed();
    if (longest !== undefined && longest !== holder) {
      if (isFirst) this.#waiting.add(holder);
      return undefined;
    }
    const process = wish.isAlone ? undefined : this.#sharedProcess(wish);
    const needed = bytes + (process === undefined && this.#blanks.size === 0 ? this.#ledger.blankBytes : 0);
    if (!this.#makeRoom(needed, wish, process === undefined ? 1 : 0)) {
      if (isFirst) this.#waiting.add(holder);
      return undefined;
    }
    this.#endWait(holder);
    if (this.#waiting.size > 0) this.schedulePump();
    const replica = this.#open(wish, process);
    this.#ledger.change(replica.instance, bytes);
    this.#replicas.add(replica);
    return replica;
  }

  /** The replica has loaded: its process grew by `bytes`. */
  loaded(replica: Replica, bytes: number): void {
    this.#ledger.change(replica.instance, bytes - replica.bytes);
    replica.bytes = bytes;
    this.settled();
  }

  /** A load is over, or a replica is gone: there may be room for others. */
  settled(): void {
    if (!this.#isStopped) this.#blanks.refill();
    this.schedulePump();
  }

  /** Keeps replicas without cores of their own on these cores. */
  pinUnleased(cores: readonly number[]): void {
    this.#sharedCores = cores;
    for (const instance of this.#unleased) instance.pin(cores);
  }

  /** How much the holder may exceed the budget, until called again: while its instances are replaced by others. */
  allow(holder: Holder, bytes: (() => number) | undefined): void {
    if (bytes === undefined) this.#overlaps.delete(holder);
    else this.#overlaps.set(holder, bytes);
  }

  /** Its memory, including the process if that is its own. */
  bytesOf({ bytes, isAlone }: Pick<Replica, 'bytes' | 'isAlone'>): number {
    return bytes + (isAlone ? this.#ledger.blankBytes : 0);
  }

  forget(holder: Holder): void {
    this.#overlaps.delete(holder);
    this.#endWait(holder);
  }

  /** Ends shared processes that have been empty for long. Called periodically. */
  retireEmpty(nowMs: number, forMs = emptyMsMax): void {
    for (const { instance } of this.#shared) {
      if (instance.sessions === 0 && instance.backlog === 0 && nowMs - instance.emptySinceMs >= forMs) {
        instance.kill('it held no session');
      }
    }
  }

  /** Deferred and merged into one: a pool may be in the middle of its own pump. */
  schedulePump(): void {
    if (this.#pumpIsScheduled || this.#isStopped || this.#waiting.size === 0) return;
    this.#pumpIsScheduled = true;
    setImmediate(() => {
      this.#pumpIsScheduled = false;
      for (const holder of Array.from(this.#waiting)) holder.pump();
    });
  }

  stop(): void {
    this.#isStopped = true;
    this.#blanks.stop();
    this.#ledger.stop();
    for (const { instance } of this.#shared) instance.kill('the host is stopping');
  }

  /** The holder that has waited longest for its first replica. Holders whose clients have gone no longer wait. */
  #firstInNeed(): Holder | undefined {
    for (const holder of this.#waiting) {
      if (holder.needsFirst) return holder;
      this.#endWait(holder);
    }
    return undefined;
  }

  #endWait(holder: Holder): void {
    if (this.#waiting.delete(holder)) this.#options.onShort({ key: holder.spec.key, bytes: 0, isSpare: false });
  }

  /** Blank processes are worth less than sessions where they are a large part of the memory. */
  #mayKeepBlanks(count: number): boolean {
    return (
      count * this.#ledger.blankBytes <= this.memoryBytes * blanksShareMax ||
      this.usedBytes + this.#ledger.blankBytes <= this.memoryBytes * (1 - blanksShareMax)
    );
  }

  /** A load is about to take more than there is: processes without work are ended. */
  giveUpBlanks(): void {
    while (this.#blanks.giveUp());
    this.retireEmpty(performance.now(), 0);
  }

  /** @param blanksKept so many blank processes are about to be used */
  #makeRoom(bytes: number, { holder, isFirst }: Wish, blanksKept: number): boolean {
    let isAsked = false;
    for (;;) {
      // If no sessions are loaded, waiting would free nothing.
      const limitBytes = this.memoryBytes + (this.#overlaps.get(holder)?.() ?? 0);
      if (this.usedBytes + bytes <= limitBytes || this.#replicas.size === 0) return true;
      const mayKeep = this.#blanks.size <= blanksKept || this.#mayKeepBlanks(this.#blanks.size);
      if (!mayKeep && this.#blanks.giveUp()) continue;
      if (!isAsked) {
        isAsked = true;
        this.#options.onShort({ key: holder.spec.key, bytes, isSpare: !isFirst });
        continue;
      }
      const before = this.#shared.size;
      this.retireEmpty(performance.now(), 0);
      if (this.#shared.size === before) return false;
    }
  }

  /** The process for one more session: an idle one, else a new one if allowed, else the least busy. */
  #sharedProcess({ holder, besides }: Wish): SharedProcess | undefined {
    const nowMs = performance.now();
    const hasHandler = holder.spec.handlerPath !== undefined;
    const isOffline = this.#isOffline(holder.spec);
    const alike = [...this.#shared].filter((process) => process.isOffline === isOffline);
    const sound = alike.filter(({ instance }) => !instance.isStuck(nowMs, heldUpMs));
    const usable = sound.filter(
      ({ instance, handlers }) => !besides.includes(instance) && !(hasHandler && handlers >= handlersOfProcessMax),
    );
    const free = usable.filter(({ instance }) => instance.backlog === 0);
    const mayStart = sound.length < this.#options.sharedMax && alike.length < 2 * this.#options.sharedMax;
    if (free.length === 0 && mayStart) return undefined;
    const load = ({ instance }: SharedProcess): number => instance.backlog * 1e15 + this.#ledger.bytesOf(instance);
    const [least] = (free.length > 0 ? free : usable).sort((a, b) => load(a) - load(b));
    return least;
  }

  #open(
    { holder, isAlone, isLeased, anew, bytes, onTurn, onMove, onEnd }: Wish,
    shared: SharedProcess | undefined,
  ): Replica {
    const { spec } = holder;
    const instance = shared?.instance ?? this.#blanks.take(anew);
    const isOffline = this.#isOffline(spec);
    if (shared === undefined && isOffline) instance.goOffline();
    const replica: Replica = new Replica({
      instance,
      spec,
      isAlone,
      bytes,
      onTurn,
      onMove,
      onEnd: (end) => {
        this.#replicas.delete(replica);
        this.#ledger.change(instance, -replica.bytes);
        onEnd(replica, end);
        // A call arrived while its last replica was being released, and now there is no room for another.
        if (holder.needsFirst) this.#waiting.add(holder);
        this.settled();
      },
    });
    if (!isAlone) {
      const process = shared ?? { instance, isOffline, handlers: 0 };
      if (spec.handlerPath !== undefined) process.handlers++;
      if (shared === undefined) {
        this.#shared.add(process);
        instance.onDead(() => this.#shared.delete(process));
      }
    }
    if (shared === undefined && !isLeased) this.#follow(instance);
    return replica;
  }

  #isOffline({ handlerPath }: InstanceSpec): boolean {
    return this.#options.modelsOffline && handlerPath === undefined;
  }

  #follow(instance: Instance): void {
    this.#unleased.add(instance);
    instance.onDead(() => this.#unleased.delete(instance));
    if (this.#sharedCores !== undefined) instance.pin(this.#sharedCores);
  }

  /** Session sizes were estimates, and handlers and runs use more memory. */
  #afterMeasuring(): void {
    this.#options.onMeasured();
    this.schedulePump();
  }

  #tooLarge({ bytes, holder }: Wish): CpuError {
    return new CpuError('model-load-failed', tooLargeText(holder.spec.key, bytes, this.memoryBytes));
  }
}

/** Why a function can never run within the memory of all functions. */
export function tooLargeText(key: string, bytes: number, memoryBytes: number): string {
  const [own, all] = [bytes, memoryBytes].map(formatBytes);
  return `a session of ${key} takes about ${own}, more than the ${all} that all functions share (cpu.memory)`;
}
