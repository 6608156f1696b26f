/**
 * The host's side of one process: its messages, which the process takes strictly one after the other, and their time
 * limits. A process holds any number of sessions; replica.ts knows what they are. The scheduler has ordered the calls:
 * senders for which the process has no room are told in their order when it has.
 */
import {
  compiledModule,
  niceness,
  HangCheck,
  startProcess,
  type Peer,
  type PeerEnd,
  takeTag,
} from '../../process/index.ts';
import { processesShort } from '../../hardware/index.ts';
import type { FrameMemory, Message } from '../../tensor/index.ts';
import { pinProcess } from './affinity.ts';
import { AwayRuns } from './away-runs.ts';
import {
  droppedResults,
  takeResults,
  type FromInstance,
  type Phase,
  type SessionSettings,
  type ToInstance,
} from './protocol.ts';
import type {
  Crash,
  Death,
  InstanceLog,
  LoadedModel,
  LoadTask,
  RunDone,
  RunOrder,
  RunTask,
  SessionId,
  Task,
} from './tasks.ts';
import { CpuError, type CallStage } from '../types.ts';
import { limitMsOf, LoadTimeout, tookTooLong, Watchdog } from './watchdog.ts';

/** A process that has not loaded ONNX Runtime within this time, and is not starved, hangs. */
const startMsMax = 30_000;
/** Where the system allows no more processes, one that does nothing for this long waits for a thread it never gets. */
const shortMsMax = 2000;
/** A process that is told to load confirms at once that it has begun; if not within this time, and it is not starved, it hangs. */
const takeUpMsMax = 2000;
/** A shorter limit leaves the sessions of other functions no time to leave the process. */
const endangeredMsMin = 200;
/** Sessions close their files after loading; the rest is for files that handlers open. */
const filesMax = 4096;

/**
 * Limit of short messages (some hundred microseconds) that a process may have at once. Then it need not wait for the host,
 * which on a busy machine takes longer than the work.
 */
const shortMessagesMax = 8;
/** Limit of a process's calls whose model runs elsewhere. Each keeps its request and the handler's state in memory. */
const awayMax = 16;

/** Signals that the kernel sends to a thread for what that does; all others come from outside. */
const faultSignals: ReadonlySet<string> = new Set([
  'SIGSEGV',
  'SIGBUS',
  'SIGABRT',
  'SIGILL',
  'SIGFPE',
  'SIGTRAP',
  'SIGSYS',
]);

/** Sends messages to a process. */
export interface Sender {
  /** Its messages are so short that others may be queued behind them. */
  readonly isShort: boolean;
  /** It may send one message now, within this call. */
  onTurn(): void;
}

export class Instance {
  readonly pid: number;
  readonly #peer: Peer<ToInstance>;
  readonly #watchdog = new Watchdog();
  #state: 'starting' | 'started' | 'dead' = 'starting';
  /** Sent and not yet answered, in order; the process is working on the first. */
  readonly #tasks: Task[] = [];
  #atFirstSinceMs = 0;
  /** Senders that wait until the process has room for a message, in their order. */
  readonly #senders = new Set<Sender>();
  #turnOf: Sender | undefined;
  readonly #away = new AwayRuns((task, header, tensors) => {
    // It had a long message's turn with its first half: from now on others may be sent behind it.
    task.isLong = false;
    this.#push(task);
    this.#peer.send(header, tensors);
  });
  #nextSession = 0;
  #startTimer: NodeJS.Timeout | undefined;
  #onStarted: (() => void)[] = [];
  readonly #onDead = new Set<(death: Death) => void>();
  /** Sessions that are loaded or loading, by number. */
  readonly #sessions = new Map<number, SessionId>();
  /** When the process last became empty (performance.now()). */
  emptySinceMs = performance.now();

  /**
   * @param memoryBytesMax for the models that it holds
   * @param replies the memory account in which replies count while they arrive
   */
  constructor(log: InstanceLog, memoryBytesMax = Infinity, replies?: FrameMemory) {
    this.#peer = startProcess<ToInstance, FromInstance>(
      {
        module: compiledModule('./instance-process.js', import.meta.url),
        log: (line) => this.#log(log, line),
        // A handler may fetch from anywhere.
        connects: true,
        // When memory runs out, the kernel kills an instance before the host.
        memoryScore: 800,
        purpose: 'sessions',
        niceness: niceness.run,
        sharesTensors: true,
        limits: { files: filesMax, ...(memoryBytesMax === Infinity ? {} : { memoryBytes: memoryBytesMax }) },
      },
      {
        message: (message) => this.#take(message),
        account: replies && { memory: replies, counts: ({ op }) => op === 'ran' },
        closing: (reason) => {
          if (this.#tasks.length === 0) this.#die(reason);
        },
        ended: (end) => this.#ended(end),
      },
    );
    this.pid = this.#peer.pid;
    this.#expectStarted();
  }

  /** Sessions that are loaded or loading. */
  get sessions(): number {
    return this.#sessions.size;
  }

  /** Whether it has loaded ONNX Runtime. */
  get hasStarted(): boolean {
    return this.#state === 'started';
  }

  /** Whether it loads a model: the load's peak takes more memory than what stays. */
  get isLoading(): boolean {
    const [first] = this.#tasks;
    return first?.kind === 'load' || (first?.kind === 'run' && first.phase === 'load');
  }

  /** Messages that it is working on or that it was sent, plus senders for which it has no room. */
  get backlog(): number {
    return this.#tasks.length + this.#senders.size;
  }

  /** Whether it has nothing to do, and would take any message. */
  get isFree(): boolean {
    return this.#tasks.length === 0 && this.#senders.size === 0 && this.#away.models < awayMax;
  }

  /** Whether it has room for a short message behind those that it has. */
  get takesShort(): boolean {
    return this.#senders.size === 0 && this.#hasRoomFor({ isShort: true });
  }

  /** Whether it takes a message of this sender now; if not, {@link Sender.onTurn} is called when it does. */
  takes(sender: Sender): boolean {
    const isNext = this.#turnOf === sender || this.#senders.size === 0;
    if (!isNext || !this.#hasRoomFor(sender)) {
      this.#senders.add(sender);
      return false;
    }
    this.#turnOf = undefined;
    return true;
  }

  /** The sender has nothing to send any more. */
  forget(sender: Sender): void {
    this.#senders.delete(sender);
  }

  /** The session whose message it has been working on for so long; undefined if there is none. */
  stuckOn(nowMs: number, forMs: number): SessionId | undefined {
    const [first] = this.#tasks;
    if (first === undefined || this.#state !== 'started') return undefined;
    return nowMs - this.#atFirstSinceMs >= forMs ? first.session : undefined;
  }

  /** Called once, when the process is gone or unusable. Returns a function that removes the listener. */
  onDead(listener: (death: Death) => void): () => void {
    this.#onDead.add(listener);
    return () => this.#onDead.delete(listener);
  }

  /** Called when ONNX Runtime is loaded; at once if it is. Not called for an instance that dies first. */
  whenStarted(listener: () => void): void {
    if (this.#state === 'starting') this.#onStarted.push(listener);
    else listener();
  }

  /** Keeps the process on these cores, and the thread that runs the models on `mainCores`. */
  pin(cores: readonly number[], mainCores: readonly number[] = cores): void {
    if (this.#state !== 'dead' && this.pid > 0) pinProcess(this.pid, cores, mainCores);
  }

  open(session: Omit<SessionId, 'number'>): SessionId {
    const opened = { number: this.#nextSession++, ...session };
    this.#sessions.set(opened.number, opened);
    return opened;
  }

  /**
   * Loads a session. Rejects with {@link CpuError}: `model-load-failed` if the model or its time limit ({@link
   * LoadTimeout}) is the reason; after a timeout the process is dead. `instance-died` if the process ended by itself or
   * did not even begin.
   *
   * @param limitMs of the load itself; starting the process and beginning the load have limits of their own
   * @param lazily load only the handler now, and the model at its first run
   * @param isLong no other message is sent behind it
   */
  load(
    session: SessionId,
    limitMs: number,
    settings: SessionSettings,
    lazily: boolean,
    isLong: boolean,
  ): Promise<LoadedModel> {
    const { modelPath, handlerPath, inputNames, opening, key } = session.spec;
    return new Promise((resolve, reject) => {
      if (this.#state === 'dead') {
        reject(new CpuError('instance-died', `an instance for ${key} died before it could load the model`));
        return;
      }
      this.#push({ kind: 'load', isLong, session, limitMs, hasBegun: false, resolve, reject });
      this.#peer.send({
        op: 'load',
        session: session.number,
        key,
        modelPath,
        settings,
        lazily,
        ...(inputNames === undefined ? {} : { inputNames }),
        ...(opening === undefined ? {} : { opening }),
        ...(handlerPath === undefined ? {} : { handlerPath }),
      });
    });
  }

  /** For models without a handler: before the first load, the process gives up network access and child processes. */
  goOffline(): void {
    this.#peer.send({ op: 'go-offline' });
  }

  /**
   * Sends calls as one run, behind the messages that it already has; `done` is called exactly once for each of them.
   *
   * @param isLong no other message is sent behind it
   */
  run(session: SessionId, order: RunOrder, isLong: boolean, done: RunDone): void {
    const { join, tensors } = order;
    const calls = order.calls.map(({ call }) => call);
    const phase: Phase = calls.some(({ kind }) => kind === 'request') ? 'preprocess' : 'infer';
    const asksForModel = order.calls.some(({ modelRun }) => modelRun !== undefined);
    this.#push({
      kind: 'run',
      isLong,
      session,
      order,
      calls: order.calls,
      done,
      startedMs: undefined,
      phase,
      call: order.calls[0],
    });
    const header = { op: 'run', session: session.number, join, calls } as const;
    this.#peer.send(asksForModel ? { ...header, asksForModel } : header, tensors);
  }

  /** Ends a session that has no run. Resolves when its memory is free. */
  release(session: SessionId): Promise<void> {
    this.#sessions.delete(session.number);
    if (this.sessions === 0) this.emptySinceMs = performance.now();
    return new Promise((resolve) => {
      if (this.#state === 'dead') {
        resolve();
        return;
      }
      this.#push({ kind: 'release', isLong: false, session, resolve });
      this.#peer.send({ op: 'release', session: session.number });
    });
  }

  /** Ends the process at once. Its current work fails as if it had died by itself. */
  kill(reason: string): void {
    this.#die(reason);
  }

  #push(task: Task): void {
    this.#tasks.push(task);
    if (this.#tasks.length === 1) this.#turnToNext();
  }

  #hasRoomFor({ isShort }: Pick<Sender, 'isShort'>): boolean {
    if (this.#away.models >= awayMax) return false;
    if (this.#tasks.length === 0) return true;
    return isShort && this.#tasks.length < shortMessagesMax && !this.#tasks.some(({ isLong }) => isLong);
  }

  /** Messages have ended: the senders get their turns until there is no room for the next one. */
  #offer(): void {
    for (const sender of this.#senders) {
      // A long message gets its turn when the process is empty, so no other may go first until then.
      if (!this.#hasRoomFor(sender)) return;
      this.#senders.delete(sender);
      this.#turnOf = sender;
      sender.onTurn();
      this.#turnOf = undefined;
    }
  }

  #take({ header, tensors, whyDropped }: Message<FromInstance>): void {
    switch (header.op) {
      case 'started': {
        clearTimeout(this.#startTimer);
        if (this.#state === 'starting') this.#state = 'started';
        if (this.#tasks.length > 0) this.#turnToNext();
        const listeners = this.#onStarted;
        this.#onStarted = [];
        for (const listener of listeners) listener();
        return;
      }
      case 'loading':
        this.#armLoad();
        return;
      case 'loaded':
        this.#shift('load')?.resolve(header);
        this.#offer();
        return;
      case 'load-failed':
        this.#shift('load')?.reject(new CpuError('model-load-failed', header.message));
        this.#offer();
        return;
      case 'released':
        this.#shift('release')?.resolve();
        this.#offer();
        return;
      case 'dying': {
        const suspect = this.#sessions.get(header.session ?? -1) ?? this.#tasks[0]?.session;
        this.#die(header.reason, suspect, true, suspect && this.#crash(null));
        return;
      }
      case 'phase': {
        const [current] = this.#tasks;
        if (current?.kind !== 'run') return;
        current.phase = header.phase;
        current.call = current.calls[header.call];
        const stage = stageOf[header.phase];
        if (stage === 'handler') current.call?.stages?.enter(stage);
        else for (const { stages } of current.calls) stages?.enter(stage);
        this.#armPhase(current);
        return;
      }
      case 'ask': {
        const leaving = this.#leaving(header.call);
        if (leaving === undefined) return;
        void this.#away.ask(header, leaving, tensors);
        leaving.session.moved(true);
        this.#offer();
        return;
      }
      case 'ran': {
        const answered = this.#shift('run');
        if (answered === undefined) return;
        const startedMs = answered.startedMs ?? performance.now();
        const result =
          whyDropped === undefined
            ? takeResults(header, tensors)
            : droppedResults(header, performance.now() - startedMs, whyDropped.message);
        answered.done({ kind: 'ran', startedMs, result }, answered.calls);
        this.#offer();
      }
    }
  }

  /** A call waits for the host: its run leaves the process, or it leaves a run with others. */
  #leaving(at: number): RunTask | undefined {
    const [first] = this.#tasks;
    if (first?.kind !== 'run' || first.calls.length <= 1) return this.#shift('run');
    const call = first.calls[at] ?? first.calls[0]!;
    first.calls = first.calls.filter((each) => each !== call);
    first.session.divided(1);
    return { ...first, calls: [call], call };
  }

  #shift<Kind extends Task['kind']>(kind: Kind): (Task & { kind: Kind }) | undefined {
    const [first] = this.#tasks;
    if (first?.kind !== kind) {
      this.#die(`it answered a ${kind} that it was not asked for`);
      return undefined;
    }
    this.#tasks.shift();
    this.#turnToNext();
    return first as Task & { kind: Kind };
  }

  /** The process begins the first of its messages. */
  #turnToNext(): void {
    const [next] = this.#tasks;
    this.#atFirstSinceMs = performance.now();
    if (next === undefined || this.#state === 'starting') {
      this.#watchdog.disarm();
      return;
    }
    switch (next.kind) {
      case 'load':
        this.#expectBegun(next, new HangCheck(this.pid, takeUpMsMax));
        return;
      case 'run':
        next.startedMs ??= performance.now();
        this.#armPhase(next);
        return;
      case 'release':
        this.#watchdog.arm(startMsMax, () => this.#die(`it did not release a session within ${startMsMax} ms`));
    }
  }

  /** Applies the time limit of the first run's current step. */
  #armPhase(task: RunTask): void {
    this.#arm(limitMsOf(task.phase, task.order.limits), () => this.#stepExpired(task));
  }

  /** The process may be ended when the limit is over: at half of it, sessions of other functions are told to leave. */
  #arm(limitMs: number, expired: () => void): void {
    this.#watchdog.arm(limitMs, expired, limitMs < endangeredMsMin ? undefined : this.#tellOthers);
  }

  readonly #tellOthers = (): void => {
    const own = this.#tasks[0]?.session;
    for (const session of Array.from(this.#sessions.values())) if (session !== own) session.endangered();
  };

  #stepExpired(task: RunTask): void {
    if (this.#tasks[0] !== task) return;
    this.#tasks.shift();
    const { phase, call, calls, order, done, session } = task;
    const error = tookTooLong(phase, session.spec.key, order.limits);
    this.#die(error.message, session, false);
    const slowCall = phase === 'infer' || phase === 'load' ? undefined : call;
    done({ kind: 'timeout', error, call: slowCall === undefined ? -1 : calls.indexOf(slowCall) }, calls);
  }

  /** Applies the time limit to a load that its process is working on. */
  #armLoad(): void {
    const [task] = this.#tasks;
    if (task?.kind !== 'load') return;
    task.hasBegun = true;
    const { limitMs, session, reject } = task;
    this.#arm(limitMs, () => {
      const error = new LoadTimeout(session.spec.key, limitMs);
      if (this.#tasks[0] === task) this.#tasks.shift();
      this.#die(error.message, session, false);
      reject(error);
    });
  }

  #expectStarted(): void {
    const check = new HangCheck(this.pid, startMsMax);
    let shortCheck: HangCheck | undefined;
    let looks = 0;
    this.#startTimer = setInterval(() => {
      looks++;
      shortCheck = processesShort() === undefined ? undefined : (shortCheck ?? new HangCheck(this.pid, startMsMax));
      if (shortCheck?.hangs() === true) this.#die(`it stood still before it had started (for ${shortMsMax} ms)`);
      else if (looks % (startMsMax / shortMsMax) === 0 && check.hangs()) {
        this.#die(`it hung before it had started (limit ${startMsMax} ms)`);
      }
    }, shortMsMax).unref();
  }

  #expectBegun(task: LoadTask, check: HangCheck): void {
    this.#watchdog.arm(takeUpMsMax, () => {
      if (this.#tasks[0] !== task || task.hasBegun) return;
      if (check.hangs()) this.#die(`it hung before it began to load (limit ${takeUpMsMax} ms)`, undefined);
      else this.#expectBegun(task, check);
    });
  }

  #log(log: InstanceLog, line: string): void {
    const { number, text } = takeTag(line);
    const session = number === undefined ? this.#tasks[0]?.session : this.#sessions.get(number);
    log(this.pid > 0 ? this.pid : undefined, session?.spec.key, text);
  }

  #ended({ reason, signal, exitCode }: PeerEnd): void {
    const [first] = this.#tasks;
    const isOwnFault = signal === null ? exitCode !== null : faultSignals.has(signal);
    // A process that has not begun cannot have died of its function.
    const hasBegun = this.#state === 'started' && (first?.kind !== 'load' || first.hasBegun);
    const crash =
      isOwnFault && hasBegun && !(first?.kind === 'run' && isOfNoRows(first)) ? this.#crash(signal) : undefined;
    this.#die(reason, first?.session, first !== undefined, crash);
  }

  /** What it is doing now. */
  #crash(signal: NodeJS.Signals | null): Crash {
    const [first] = this.#tasks;
    return {
      during: doing(first),
      isOfOneCall: first?.kind !== 'run' || first.calls.length === 1,
      isDivision: signal === 'SIGFPE' && first?.kind === 'run' && first.phase === 'infer',
    };
  }

  /**
   * @param isSuspect whether its first message may have caused the death
   * @param crash if it did so by a fault of its code
   */
  #die(reason: string, suspect?: SessionId, isSuspect = suspect !== undefined, crash?: Crash): void {
    if (this.#state === 'dead') return;
    this.#state = 'dead';
    clearTimeout(this.#startTimer);
    this.#watchdog.disarm();
    this.#peer.end(reason);
    const tasks = this.#tasks.splice(0);
    const away = this.#away.end();
    this.#senders.clear();
    for (const listener of this.#onDead) listener({ reason, suspect, crash });
    // The last first, so that a caller that puts each back at the front of a queue keeps their order.
    for (const [index, task] of [...tasks.entries()].reverse()) {
      switch (task.kind) {
        case 'load':
          task.reject(new CpuError('instance-died', `the instance that was loading it died: ${reason}`));
          break;
        case 'run':
          task.done(
            index === 0
              ? { kind: 'died', reason, suspect: isSuspect, isDivision: crash?.isDivision === true }
              : { kind: 'died', reason, suspect: false, isDivision: false },
            task.calls,
          );
          break;
        case 'release':
          task.resolve();
      }
    }
    for (const task of away) task.done({ kind: 'died', reason, suspect: false, isDivision: false }, task.calls);
  }
}

/** ONNX Runtime aborts in some operators for inputs without elements: that says nothing about other inputs. */
function isOfNoRows({ order: { calls, tensors } }: RunTask): boolean {
  return calls.every(({ call }) => call.kind === 'tensors') && tensors.some(({ shape }) => shape.includes(0));
}

const stageOf: Readonly<Record<Phase, CallStage>> = {
  preprocess: 'handler',
  load: 'load',
  infer: 'model',
  postprocess: 'handler',
};

function doing(task: Task | undefined): string {
  if (task === undefined) return 'between two calls';
  switch (task.kind) {
    case 'load':
      return 'while it was loaded';
    case 'release':
      return 'while it was unloaded';
    case 'run':
      return task.phase === 'load'
        ? 'while it was loaded'
        : task.phase === 'infer'
          ? 'in a run of the model'
          : `in the handler's ${task.phase}`;
  }
}
