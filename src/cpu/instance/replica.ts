/** One function loaded in a process, which it may share with others. A pool sends its runs to replicas. */
import type { Instance, Sender } from './instance.ts';
import type { Crash, LoadedModel, RunDone, RunOrder, SessionId } from './tasks.ts';
import type { SessionSettings } from './protocol.ts';
import { CpuError, type InstanceSpec } from '../types.ts';

/** Smaller sessions load within a millisecond or two. */
const quicklyLoadedBytes = 2 ** 20;

/** How a replica ended. */
export interface ReplicaEnd {
  readonly reason: string;
  /** It was released, while it had no work. */
  readonly isExpected: boolean;
  /** Its process ended by itself while working on this function, or because of its code. */
  readonly isSuspect: boolean;
  /** Set if the function's code ended it. */
  readonly crash: Crash | undefined;
  /** The function that its process was working for, if that was another. */
  readonly culprit: string | undefined;
}

export interface ReplicaOptions {
  readonly instance: Instance;
  readonly spec: InstanceSpec;
  /** No other function has a session in the process, which ends with this one. */
  readonly isAlone: boolean;
  /** Expected size, until it is measured. */
  readonly bytes: number;
  /** Memory that its runs will keep, if it has a process of its own; 0 in a shared one. */
  readonly runBytes: number;
  /** How much of the memory that runs keep its process has not taken yet; it is reserved until runs have. */
  readonly pendingBytes: number;
  readonly onWeighed: (runBytes: number) => void;
  /** It waited for room in its process ({@link Replica.takes}), and may send one run now. */
  readonly onTurn: () => void;
  /** A run leaves its process for a while, or is back. */
  readonly onMove: (isAway: boolean) => void;
  readonly onEnd: (end: ReplicaEnd) => void;
  /** After its end: its process has given the memory back, or is gone. */
  readonly onFreed: () => void;
}

export class Replica implements Sender {
  readonly instance: Instance;
  readonly spec: InstanceSpec;
  readonly isAlone: boolean;
  readonly #session: SessionId;
  readonly #options: ReplicaOptions;
  readonly #forgetDeath: () => void;
  #state: 'loading' | 'ready' | 'gone' = 'loading';
  /** Runs sent, with and without those that wait between their halves. */
  #runs = 0;
  #queued = 0;
  #holdsModel = false;
  #loadTurn: (() => void) | undefined;
  isShort: boolean;
  /** Bytes of the process that belong to its session and handler, without what runs keep. */
  bytes: number;
  runBytes: number;
  pendingBytes: number;
  readonly onWeighed: (runBytes: number) => void;
  /** Runs that have ended. */
  #ran = 0;
  /** Called when its process works for another function and may soon be ended because of that. */
  onEndangered: (() => void) | undefined;
  #idleSinceMs = performance.now();
  readySinceMs = 0;

  constructor(options: ReplicaOptions) {
    this.#options = options;
    this.instance = options.instance;
    this.spec = options.spec;
    this.isAlone = options.isAlone;
    this.bytes = options.bytes;
    this.runBytes = options.runBytes;
    this.pendingBytes = options.pendingBytes;
    this.onWeighed = options.onWeighed;
    this.isShort = options.bytes < quicklyLoadedBytes;
    this.#session = this.instance.open({
      spec: this.spec,
      divided: (more) => {
        this.#runs += more;
        this.#queued += more;
      },
      moved: (isAway) => {
        this.#queued += isAway ? -1 : 1;
        options.onMove(isAway);
      },
      endangered: () => this.onEndangered?.(),
    });
    this.#forgetDeath = this.instance.onDead(({ reason, suspect, crash }) => {
      const isSuspect = suspect === this.#session;
      const blame = {
        isSuspect,
        crash: isSuspect ? crash : undefined,
        culprit: isSuspect ? undefined : suspect?.spec.key,
      };
      this.#end({ reason, isExpected: false, ...blame });
      options.onFreed();
    });
  }

  get state(): 'loading' | 'idle' | 'busy' | 'gone' {
    if (this.#state !== 'ready') return this.#state;
    return this.#runs > 0 ? 'busy' : 'idle';
  }

  /** Milliseconds since its last run ended; -Infinity while it has one, or is loading. */
  idleForMs(nowMs: number): number {
    return this.state === 'idle' ? nowMs - this.#idleSinceMs : -Infinity;
  }

  /** Runs that are running or queued. */
  get queued(): number {
    return this.#queued;
  }

  /** Whether runs have taken the memory that they keep: the first one for its results, the second as it was planned. */
  get hasRun(): boolean {
    return this.#ran >= 2;
  }

  /** False while a model that loads at its first run is not loaded. */
  get holdsModel(): boolean {
    return this.#holdsModel;
  }

  /** Whether its process would begin a run at once. */
  get startsAtOnce(): boolean {
    return this.#state === 'ready' && this.instance.isFree;
  }

  /** Whether a run may be sent now; if not, {@link ReplicaOptions.onTurn} says when. */
  takes(): boolean {
    return this.#state === 'ready' && this.instance.takes(this);
  }

  onTurn(): void {
    const loadTurn = this.#loadTurn;
    this.#loadTurn = undefined;
    if (loadTurn === undefined) this.#options.onTurn();
    else loadTurn();
  }

  /** Whether its process has been working for so long on one message of this function, or of another one. */
  stuckOn(nowMs: number, forMs: number): 'this' | 'other' | undefined {
    const session = this.instance.stuckOn(nowMs, forMs);
    if (session === undefined) return undefined;
    return session === this.#session ? 'this' : 'other';
  }

  /** Rejects with {@link CpuError}; the replica is then gone. See {@link Instance.load}. */
  async load(limitMs: number, settings: SessionSettings, lazily: boolean): Promise<LoadedModel> {
    if (settings.cores !== undefined) this.instance.pin(settings.cores, settings.cores.slice(0, 1));
    try {
      const loaded = await new Promise<LoadedModel>((resolve, reject) => {
        // Begins within its turn: otherwise all waiting replicas would get their turns before the first has begun.
        const begin = (): void => {
          if (this.#state === 'gone')
            reject(new CpuError('instance-died', 'its process ended before it could load the model'));
          else resolve(this.instance.load(this.#session, limitMs, settings, lazily, !this.isShort));
        };
        if (this.#state === 'gone' || this.instance.takes(this)) begin();
        else this.#loadTurn = begin;
      });
      if (this.state !== 'loading') throw new CpuError('instance-died', 'its instance died as soon as it was loaded');
      this.#state = 'ready';
      this.#holdsModel = !lazily;
      this.readySinceMs = this.#idleSinceMs = performance.now();
      return loaded;
    } catch (error) {
      void this.release((error as Error).message);
      throw error;
    }
  }

  /** Sends calls as one run, for which its process has room: {@link takes}. `done` is called exactly once for each. */
  run(order: RunOrder, done: RunDone): void {
    this.#runs++;
    this.#queued++;
    this.instance.run(this.#session, order, !this.isShort, (outcome, calls) => {
      this.#runs--;
      // After any other outcome the process is gone, so nothing is counted any more.
      if (outcome.kind === 'ran') {
        this.#ran++;
        this.#queued--;
        if (outcome.result.loaded !== undefined) this.#holdsModel = true;
      }
      if (this.#runs === 0) this.#idleSinceMs = performance.now();
      done(outcome, calls);
    });
  }

  /** Ends it. Resolves when its memory is free. */
  async release(reason: string): Promise<void> {
    if (this.#state === 'gone') return;
    this.#end({ reason, isExpected: true, isSuspect: false, crash: undefined, culprit: undefined });
    if (this.isAlone) this.instance.kill(reason);
    else await this.instance.release(this.#session);
    this.#options.onFreed();
  }

  #end(end: ReplicaEnd): void {
    if (this.#state === 'gone') return;
    this.#state = 'gone';
    this.#forgetDeath();
    this.instance.forget(this);
    this.#loadTurn?.();
    this.#options.onEnd(end);
  }
}
