/**
 * Which process a session is in, and how much memory all of them take.
 *
 * Small functions share a few processes, at most one per core; a function that asks for one gets a process of its own.
 * All processes stay within one memory budget. Processes without a session end here when a new session needs their
 * memory. Sessions end by the scheduler's order alone: it is asked for room, and a load waits for it in load-gate.ts.
 */
import { formatBytes } from '../../tools/index.ts';
import type { FrameMemory } from '../../tensor/index.ts';
import { CpuError, type InstanceSpec, type RoomWanted } from '../types.ts';
import { BlankSet } from './blank-set.ts';
import { Instance } from './instance.ts';
import type { InstanceLog } from './tasks.ts';
import { MemoryLedger, type MeasureProcess } from './ledger.ts';
import { Replica, type ReplicaEnd } from './replica.ts';

/** Memory that a list of instances holds from before its first load begins until its last one has. */
export interface Reservation extends Disposable {
  bytes: number;
}

export interface ReplicaRequest {
  readonly spec: InstanceSpec;
  readonly isAlone: boolean;
  /** It gets cores of its own. */
  readonly isLeased: boolean;
  /** Start a new process: a blank one has failed. */
  readonly anew: boolean;
  /** Expected size of its session, and what runs of it will keep beside it. */
  readonly bytes: number;
  readonly runBytes: number;
  /** False: the function has another replica, whose process it does not want. */
  readonly isFirst: boolean;
  /** It takes its memory from there. */
  readonly reservation: Reservation | undefined;
  readonly besides: readonly Instance[];
  /** What runs of the session, in a process of its own, keep was measured. */
  readonly onWeighed: (runBytes: number) => void;
  readonly onTurn: () => void;
  readonly onMove: (isAway: boolean) => void;
  readonly onEnd: (replica: Replica, end: ReplicaEnd) => void;
}

export interface ProcessesOptions {
  readonly memoryBytes: number;
  /** Limit of shared processes. */
  readonly sharedMax: number;
  readonly blankInstances: number;
  /** Processes of models without handlers have no network; such models then share no process with handlers. */
  readonly modelsOffline: boolean;
  readonly measureProcess: MeasureProcess;
  readonly log: InstanceLog;
  readonly replies: FrameMemory | undefined;
  /** Warns of a fault of the machine, not of a function. */
  readonly warn: (line: string) => void;
  /** There is no room for a session: others may end within this call, or later. */
  readonly onShort: (wanted: RoomWanted) => void;
  /** There may be room again. */
  readonly onRoom: () => void;
  /** What is taken has been measured. */
  readonly onMeasured: () => void;
}

/**
 * A shared process that has worked on one message for this long delays others. Calls that wait for it go to another
 * process, and one more may be started in its place. By then the scheduler counts its core as free for other functions.
 */
export const heldUpMs = 100;

const isHeldUp = (instance: Instance, nowMs: number): boolean => instance.stuckOn(nowMs, heldUpMs) !== undefined;

/** Part of the memory that blank processes may take beside sessions. */
const blanksShareMax = 1 / 8;
/** An empty shared process ends after this. */
const emptyMsMax = 60_000;
/** A process varies by as much from one measurement to the next. */
const weighedBytesMin = 2 ** 20;
/**
 * Handlers that a shared process may load, including released ones, since Node never forgets a module. After that it
 * takes no new ones.
 */
const handlersOfProcessMax = 200;

/** A shared process that one more session may go to. */
interface Candidate {
  readonly isHeldUp: boolean;
  readonly isUsable: boolean;
  /** Messages that it has, or that wait for room in it. */
  readonly backlog: number;
  /** It has room for a short message behind short ones. */
  readonly takesShort: boolean;
  readonly bytes: number;
}

/**
 * The shared process for one more session: a free one, else a new one (undefined) if one more is allowed, else the least
 * busy. In place of a process that is held up, one with a little work counts as free: it has loaded the session long
 * before a new process has begun to.
 *
 * @param sharedMax most shared processes beside those that are held up; of these there may be as many again
 */
export function processForSession<C extends Candidate>(candidates: readonly C[], sharedMax: number): C | undefined {
  const sound = candidates.filter((each) => !each.isHeldUp);
  const usable = sound.filter((each) => each.isUsable);
  const isInPlace = candidates.length >= sharedMax;
  const free = usable.filter(({ backlog, takesShort }) => backlog === 0 || (isInPlace && takesShort));
  const mayStart = sound.length < sharedMax && candidates.length < 2 * sharedMax;
  if (free.length === 0 && mayStart) return undefined;
  return (free.length > 0 ? free : usable).sort((a, b) => a.backlog - b.backlog || a.bytes - b.bytes)[0];
}

interface SharedProcess {
  readonly instance: Instance;
  readonly isOffline: boolean;
  handlers: number;
  /** Most that runs of one of its sessions keep: its heap serves all of them. */
  runBytes: number;
}

export class Processes {
  memoryBytes: number;
  readonly #options: ProcessesOptions;
  readonly #ledger: MemoryLedger;
  readonly #blanks: BlankSet<Instance>;
  readonly #shared = new Set<SharedProcess>();
  /** Replicas that are loading or loaded. */
  readonly #replicas = new Set<Replica>();
  /** Replicas that have ended: their processes have not given the memory back yet. */
  readonly #leaving = new Set<Replica>();
  /** Cores of replicas without a lease; undefined while nothing is leased. */
  #sharedCores: readonly number[] | undefined;
  readonly #unleased = new Set<Instance>();
  readonly #reservations = new Set<Reservation>();
  /** Functions that the scheduler knows to be short of room for their first session. */
  readonly #short = new Set<string>();
  #whenFreed: (() => void)[] = [];
  #isStopped = false;

  constructor(options: ProcessesOptions) {
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
      () =>
        this.#replicas.size === 0 ||
        (this.#mayKeepBlanks(this.#blanks.size + 1) &&
          this.usedBytes + this.#reservedBytes + this.#ledger.blankBytes <= this.memoryBytes),
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

  /**
   * What processes hold and what is reserved, without blank processes that would make room for a session, and without
   * what is on its way back: nothing has to go for that, unless its process is held up.
   */
  get heldBytes(): number {
    const { blankBytes } = this.#ledger;
    const blanksKept = Math.floor((this.memoryBytes * blanksShareMax) / blankBytes);
    const nowMs = performance.now();
    let leavingBytes = 0;
    for (const { bytes, instance } of this.#leaving) if (!isHeldUp(instance, nowMs)) leavingBytes += bytes;
    return (
      this.usedBytes - leavingBytes + this.#reservedBytes - Math.max(0, this.#blanks.size - blanksKept) * blankBytes
    );
  }

  get #reservedBytes(): number {
    let sum = 0;
    for (const { bytes } of this.#reservations) sum += bytes;
    return sum;
  }

  /**
   * A replica to load; undefined if there is no room. Then the scheduler has been asked for some, and a function that
   * waits for its first replica has to {@link forget} that it did.
   *
   * @throws CpuError `model-load-failed` if it would not fit even alone
   */
  open(request: ReplicaRequest): Replica | undefined {
    const { spec, isFirst, bytes, runBytes, reservation } = request;
    if (this.#isStopped) return undefined;
    if (bytes > this.memoryBytes) throw this.#tooLarge(request);
    const process = request.isAlone ? undefined : this.#sharedProcess(request);
    const pendingBytes = Math.max(0, runBytes - (process?.runBytes ?? 0));
    const needed =
      bytes + pendingBytes + (process === undefined && this.#blanks.size === 0 ? this.#ledger.blankBytes : 0);
    const held = Math.min(needed, reservation?.bytes ?? 0);
    const wanted: RoomWanted = { key: spec.key, bytes: needed - held, purpose: isFirst ? 'first' : 'spare' };
    if (held < needed && !this.#makeRoom(wanted, process === undefined ? 1 : 0)) {
      if (isFirst) this.#short.add(spec.key);
      return undefined;
    }
    if (reservation !== undefined) reservation.bytes -= held;
    this.forget(spec.key);
    const replica = this.#open(request, process, pendingBytes);
    this.#ledger.change(replica.instance, bytes);
    this.#ledger.pend(replica.instance, pendingBytes);
    this.#replicas.add(replica);
    return replica;
  }

  /** Memory for sessions in processes of their own, beside what the function has; undefined if there is no room. */
  async reserve(key: string, sessionsBytes: readonly number[]): Promise<Reservation | undefined> {
    const bytes = sessionsBytes.reduce((sum, each) => sum + each + this.#ledger.blankBytes, 0);
    while (!this.#makeRoom({ key, bytes, purpose: 'list' }, 0)) {
      if (this.#leaving.size === 0 || this.#isStopped) return undefined;
      await new Promise<void>((resolve) => this.#whenFreed.push(resolve));
    }
    const reservation: Reservation = {
      bytes,
      [Symbol.dispose]: () => {
        if (this.#reservations.delete(reservation)) this.settled();
      },
    };
    this.#reservations.add(reservation);
    this.#options.onMeasured();
    return reservation;
  }

  /** The replica has loaded: its process grew by `bytes`. */
  loaded(replica: Replica, bytes: number): void {
    this.#ledger.change(replica.instance, bytes - replica.bytes);
    replica.bytes = bytes;
    this.settled();
  }

  /** A run of the replica has ended. */
  ran(replica: Replica): void {
    if (replica.pendingBytes === 0 || !replica.hasRun) return;
    // The next measurement finds it.
    this.#ledger.pend(replica.instance, -replica.pendingBytes);
    this.#ledger.change(replica.instance, replica.pendingBytes);
    replica.pendingBytes = 0;
  }

  /** A load is over, or a replica is gone: there may be room for others. */
  settled(): void {
    if (this.#isStopped) return;
    this.#blanks.refill();
    this.#options.onRoom();
  }

  /** Keeps replicas without cores of their own on these cores. */
  pinUnleased(cores: readonly number[]): void {
    this.#sharedCores = cores;
    for (const instance of this.#unleased) instance.pin(cores);
  }

  /** Its memory, including the process if that is its own. */
  bytesOf({ bytes, runBytes, isAlone }: Pick<Replica, 'bytes' | 'runBytes' | 'isAlone'>): number {
    return bytes + (isAlone ? runBytes + this.#ledger.blankBytes : 0);
  }

  /** The function wants no room any more. */
  forget(key: string): void {
    if (this.#short.delete(key)) this.#options.onShort({ key, bytes: 0, purpose: 'first' });
  }

  /** Ends shared processes that have been empty for long. Called periodically. */
  retireEmpty(nowMs: number, forMs = emptyMsMax): void {
    for (const { instance } of this.#shared) {
      if (instance.sessions === 0 && instance.backlog === 0 && nowMs - instance.emptySinceMs >= forMs) {
        instance.kill('it held no session');
      }
    }
  }

  stop(): void {
    this.#isStopped = true;
    this.#blanks.stop();
    this.#ledger.stop();
    for (const { instance } of this.#shared) instance.kill('the host is stopping');
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
  #makeRoom(wanted: RoomWanted, blanksKept: number): boolean {
    let isAsked = false;
    for (;;) {
      // If no sessions are loaded, waiting would free nothing.
      const isAlone = this.#replicas.size + this.#leaving.size === 0 && wanted.purpose === 'first';
      if (isAlone || this.usedBytes + this.#reservedBytes + wanted.bytes <= this.memoryBytes) return true;
      const mayKeep = this.#blanks.size <= blanksKept || this.#mayKeepBlanks(this.#blanks.size);
      if (!mayKeep && this.#blanks.giveUp()) continue;
      if (!isAsked) {
        isAsked = true;
        this.#options.onShort(wanted);
        continue;
      }
      const before = this.#shared.size;
      this.retireEmpty(performance.now(), 0);
      if (this.#shared.size === before) return false;
    }
  }

  #sharedProcess({ spec, besides }: ReplicaRequest): SharedProcess | undefined {
    const nowMs = performance.now();
    const hasHandler = spec.handlerPath !== undefined;
    const isOffline = this.#isOffline(spec);
    const alike = [...this.#shared].filter((process) => process.isOffline === isOffline);
    const candidates = alike.map((process) => ({
      process,
      isHeldUp: isHeldUp(process.instance, nowMs),
      isUsable: !besides.includes(process.instance) && !(hasHandler && process.handlers >= handlersOfProcessMax),
      backlog: process.instance.backlog,
      takesShort: process.instance.takesShort,
      bytes: this.#ledger.bytesOf(process.instance),
    }));
    return processForSession(candidates, this.#options.sharedMax)?.process;
  }

  #open(
    { spec, isAlone, isLeased, anew, bytes, runBytes, onWeighed, onTurn, onMove, onEnd }: ReplicaRequest,
    shared: SharedProcess | undefined,
    pendingBytes: number,
  ): Replica {
    const instance = shared?.instance ?? this.#blanks.take(anew);
    const isOffline = this.#isOffline(spec);
    if (shared === undefined && isOffline) instance.goOffline();
    const replica: Replica = new Replica({
      instance,
      spec,
      isAlone,
      bytes,
      runBytes: isAlone ? runBytes : 0,
      pendingBytes,
      onWeighed,
      onTurn,
      onMove,
      onEnd: (end) => {
        this.#replicas.delete(replica);
        this.#leaving.add(replica);
        this.#ledger.pend(instance, -replica.pendingBytes);
        onEnd(replica, end);
      },
      onFreed: () => {
        this.#leaving.delete(replica);
        this.#ledger.change(instance, -replica.bytes);
        this.#whenFreed.splice(0).forEach((resolve) => resolve());
        this.settled();
      },
    });
    if (!isAlone) {
      const process = shared ?? { instance, isOffline, handlers: 0, runBytes: 0 };
      process.runBytes = Math.max(process.runBytes, runBytes);
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
    for (const replica of this.#replicas) if (replica.isAlone && replica.hasRun) this.#weigh(replica);
    this.#options.onMeasured();
    this.#options.onRoom();
  }

  #weigh(replica: Replica): void {
    const bytes = this.#ledger.weightOf(replica.instance);
    if (bytes === undefined) return;
    const runBytes = Math.max(0, bytes - this.#ledger.blankBytes - replica.bytes);
    if (Math.abs(runBytes - replica.runBytes) < weighedBytesMin) return;
    replica.runBytes = runBytes;
    replica.onWeighed(runBytes);
  }

  #tooLarge({ bytes, spec }: ReplicaRequest): CpuError {
    return new CpuError('model-load-failed', tooLargeText(spec.key, bytes, this.memoryBytes));
  }
}

/** Why a function can never run within the memory of all functions. */
export function tooLargeText(key: string, bytes: number, memoryBytes: number): string {
  const [own, all] = [bytes, memoryBytes].map(formatBytes);
  return `a session of ${key} takes about ${own}, more than the ${all} that all functions share (cpu.memory)`;
}
