/**
 * The host's side of one process: the messages that it takes strictly one after the other, and the limits of each. A
 * process holds any number of sessions; what they are is the business of replica.ts, and which goes next of turns.ts.
 */
import { compiledModule, startProcess, Watchdog, type Peer, takeTag } from '../../process/index.ts';
import type { Message } from '../../tensor/index.ts';
import { pinProcess } from './affinity.ts';
import { AwayRuns } from './away-runs.ts';
import { instanceEnvironment } from './environment.ts';
import {
  LoadTimeout,
  takeResults,
  tookTooLong,
  type InstanceLog,
  type LoadedModel,
  type RunOrder,
  type RunOutcome,
} from './instance-run.ts';
import type { FromInstance, Phase, SessionSettings, ToInstance } from './protocol.ts';
import type { Death, LoadTask, RunTask, SessionId, Task } from './tasks.ts';
import { CpuError, type InstanceSpec } from '../types.ts';
import { Turns } from './turns.ts';

/** A process that has not loaded ONNX Runtime by then hangs; on a machine at its limits it takes seconds. */
const startMsMax = 30_000;
/** A process that is told to load answers at once that it begins; one that is not heard of for this long hangs. */
const takeUpMsMax = 1000;
/** Sessions close their files once they are loaded; the rest is what handlers open. */
const filesMax = 4096;

export class Instance {
  readonly #peer: Peer<ToInstance>;
  readonly #watchdog = new Watchdog();
  /** Of the sessions that share the process. */
  readonly turns = new Turns(() => this.#away.isFull);
  #state: 'starting' | 'started' | 'dead' = 'starting';
  /** Handed over and not yet answered, in the order in which the process takes them; it is at the first. */
  readonly #tasks: Task[] = [];
  #atFirstSinceMs = 0;
  readonly #away = new AwayRuns((task, header, tensors) => {
    this.#push(task);
    this.#peer.send(header, tensors);
  });
  #nextAskAs = 0;
  #nextSession = 0;
  readonly #startTimer: NodeJS.Timeout;
  #onStarted: (() => void)[] = [];
  readonly #onDead = new Set<(death: Death) => void>();
  /** Loaded, or on their way. */
  readonly #sessions = new Map<number, SessionId>();
  /** When it last held none (performance.now()). */
  emptySinceMs = performance.now();

  /** @param memoryBytesMax of the models that it holds */
  constructor(log: InstanceLog, memoryBytesMax = Infinity) {
    this.#startTimer = setTimeout(() => this.#die(`it did not start within ${startMsMax} ms`), startMsMax);
    this.#startTimer.unref();
    this.#peer = startProcess<ToInstance, FromInstance>(
      {
        module: compiledModule('./instance-process.js', import.meta.url),
        environment: instanceEnvironment(),
        log: (line) => this.#log(log, line),
        // When memory runs out, an instance goes before the host does.
        memoryScore: 800,
        limits: { files: filesMax, ...(memoryBytesMax === Infinity ? {} : { memoryBytes: memoryBytesMax }) },
      },
      {
        message: (message) => this.#take(message),
        closing: (reason) => {
          if (this.#tasks.length === 0) this.#die(reason);
        },
        ended: ({ reason }) => this.#die(reason, this.#tasks[0]?.session),
      },
    );
  }

  /** Sessions that are loaded or on their way. */
  get sessions(): number {
    return this.#sessions.size;
  }

  get pid(): number {
    return this.#peer.pid;
  }

  /** It has loaded ONNX Runtime. */
  get hasStarted(): boolean {
    return this.#state === 'started';
  }

  /** Messages that it is at, or that lie ready, and sessions that wait for a turn. */
  get backlog(): number {
    return this.#tasks.length + this.turns.waiting;
  }

  /** Whether it has been at one message for so long, not of this session. */
  isStuck(nowMs: number, forMs: number, exceptFor?: SessionId): boolean {
    const [first] = this.#tasks;
    if (first === undefined || first.session === exceptFor || this.#state !== 'started') return false;
    return nowMs - this.#atFirstSinceMs >= forMs;
  }

  /** Called once, when the process is gone or of no more use. Gives the way to call it off. */
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

  open(spec: InstanceSpec): SessionId {
    const session = { number: this.#nextSession++, spec };
    this.#sessions.set(session.number, session);
    return session;
  }

  /**
   * Loads a session. Rejects with {@link CpuError}: `model-load-failed` where the model is to blame, or its time limit
   * ({@link LoadTimeout}), after which the process is dead; `instance-died` where the process ended by itself or did
   * not even begin.
   *
   * @param limitMs of the load itself; a process has limits of its own to start and to begin
   * @param lazily the handler alone is loaded now, and the model when it is first run
   */
  load(session: SessionId, limitMs: number, settings: SessionSettings, lazily: boolean): Promise<LoadedModel> {
    const { modelPath, handlerPath, inputNames, key } = session.spec;
    return new Promise((resolve, reject) => {
      if (this.#state === 'dead') {
        reject(new CpuError('instance-died', `an instance for ${key} died before it could load the model`));
        return;
      }
      this.#push({ kind: 'load', isLong: false, session, limitMs, hasBegun: false, resolve, reject });
      this.#peer.send({
        op: 'load',
        session: session.number,
        key,
        modelPath,
        settings,
        lazily,
        ...(inputNames === undefined ? {} : { inputNames }),
        ...(handlerPath === undefined ? {} : { handlerPath }),
      });
    });
  }

  /** For models without a handler: before it loads any, it gives up networks and further processes. */
  goOffline(): void {
    this.#peer.send({ op: 'go-offline' });
  }

  /** Hands over calls as one run, behind what it has already; `done` is called exactly once. */
  run(session: SessionId, order: RunOrder, done: (outcome: RunOutcome) => void): void {
    const { join, calls, tensors, runModel } = order;
    const phase: Phase = calls.some((call) => call.kind === 'request') ? 'preprocess' : 'infer';
    this.#push({ kind: 'run', isLong: false, session, order, done, startedMs: undefined, phase, call: 0 });
    const header = { op: 'run', session: session.number, join, calls } as const;
    this.#peer.send(runModel === undefined ? header : { ...header, askAs: this.#nextAskAs++ }, tensors);
  }

  /** Ends a session that has no run. Resolves when its memory has been given back. */
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

  /** Ends the process at once. What it was doing fails as if it had died by itself. */
  kill(reason: string): void {
    this.#die(reason);
  }

  /** Whether a turn would be granted to somebody who asks now. */
  get isFree(): boolean {
    return this.#state !== 'dead' && this.#tasks.length === 0 && this.turns.waiting === 0 && !this.#away.isFull;
  }

  #push(task: Task): void {
    task.isLong = this.turns.begun();
    this.#tasks.push(task);
    if (this.#tasks.length === 1) this.#turnToNext();
  }

  #take({ header, tensors }: Message<FromInstance>): void {
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
      case 'loaded': {
        const load = this.#shift('load');
        const { loadMs, bytes, sharedProblem } = header;
        load?.resolve({ loadMs, bytes, sharedProblem });
        this.turns.offer();
        return;
      }
      case 'load-failed':
        this.#shift('load')?.reject(new CpuError('model-load-failed', header.message));
        this.turns.offer();
        return;
      case 'released':
        this.#shift('release')?.resolve();
        this.turns.offer();
        return;
      case 'dying':
        this.#die(header.reason, this.#sessions.get(header.session ?? -1) ?? this.#tasks[0]?.session);
        return;
      case 'phase': {
        const [current] = this.#tasks;
        if (current?.kind !== 'run') return;
        current.phase = header.phase;
        current.call = header.call;
        this.#armPhase(current);
        return;
      }
      case 'run-model':
      case 'invoke': {
        const leaving = this.#shift('run');
        if (leaving === undefined) return;
        if (header.op === 'invoke') void this.#away.invokeOthers(header, leaving, tensors);
        else void this.#away.runModel(header.id, leaving, tensors);
        leaving.order.onAway?.();
        this.turns.offer();
        return;
      }
      case 'ran': {
        const answered = this.#shift('run');
        if (answered === undefined) return;
        const startedMs = answered.startedMs ?? performance.now();
        answered.done({ kind: 'ran', startedMs, result: takeResults(header, tensors) });
        this.turns.offer();
      }
    }
  }

  #shift<Kind extends Task['kind']>(kind: Kind): (Task & { kind: Kind }) | undefined {
    const [first] = this.#tasks;
    if (first?.kind !== kind) {
      this.#die(`it answered a ${kind} that it was not asked for`);
      return undefined;
    }
    this.#tasks.shift();
    this.turns.ended(first.isLong);
    this.#turnToNext();
    return first as Task & { kind: Kind };
  }

  /** The process turns to the first of its messages. */
  #turnToNext(): void {
    const [next] = this.#tasks;
    this.#atFirstSinceMs = performance.now();
    if (next === undefined || this.#state === 'starting') {
      this.#watchdog.disarm();
      return;
    }
    switch (next.kind) {
      case 'load':
        this.#watchdog.arm(takeUpMsMax, () => this.#expectBegun(next));
        return;
      case 'run':
        next.startedMs ??= performance.now();
        this.#armPhase(next);
        return;
      case 'release':
        this.#watchdog.arm(startMsMax, () => this.#die(`it did not release a session within ${startMsMax} ms`));
    }
  }

  /** Holds the first run to the limit of the step that it is at. */
  #armPhase(task: RunTask): void {
    const { limits } = task.order;
    switch (task.phase) {
      case 'load':
        this.#watchdog.arm(limits.loadTimeoutMs, () => this.#stepExpired(task));
        return;
      case 'infer':
        this.#watchdog.arm(limits.inferTimeoutMs, () => this.#stepExpired(task));
        return;
      case 'preprocess':
      case 'postprocess':
        this.#watchdog.arm(limits.handlerTimeoutMs, () => this.#stepExpired(task));
    }
  }

  #stepExpired(task: RunTask): void {
    if (this.#tasks[0] !== task) return;
    this.#tasks.shift();
    const { phase, call, order, done, session } = task;
    const error = tookTooLong(phase, session.spec.key, order.limits);
    this.#die(error.message, session, false);
    done({ kind: 'timeout', error, call: phase === 'infer' || phase === 'load' ? -1 : call });
  }

  /** Holds a load that its process is at to its limit. */
  #armLoad(): void {
    const [task] = this.#tasks;
    if (task?.kind !== 'load') return;
    task.hasBegun = true;
    const { limitMs, session, reject } = task;
    this.#watchdog.arm(limitMs, () => {
      const error = new LoadTimeout(session.spec.key, limitMs);
      if (this.#tasks[0] === task) this.#tasks.shift();
      this.#die(error.message, session, false);
      reject(error);
    });
  }

  #expectBegun(task: LoadTask): void {
    if (this.#tasks[0] === task && !task.hasBegun) {
      this.#die(`it did not begin to load within ${takeUpMsMax} ms`, undefined);
    }
  }

  #log(log: InstanceLog, line: string): void {
    const { number, text } = takeTag(line);
    const session = number === undefined ? this.#tasks[0]?.session : this.#sessions.get(number);
    log(this.pid, session?.spec.key, text);
  }

  /** @param isSuspect whether the first of its messages is what it died of */
  #die(reason: string, suspect?: SessionId, isSuspect = suspect !== undefined): void {
    if (this.#state === 'dead') return;
    this.#state = 'dead';
    clearTimeout(this.#startTimer);
    this.#watchdog.disarm();
    this.#peer.end(reason);
    const tasks = this.#tasks.splice(0);
    const away = this.#away.end();
    this.turns.end();
    for (const listener of this.#onDead) listener({ reason, suspect });
    // The last first, so that whoever puts them back at the front of a queue keeps their order.
    for (const [index, task] of [...tasks.entries()].reverse()) {
      switch (task.kind) {
        case 'load':
          task.reject(new CpuError('instance-died', `the instance that was loading it died: ${reason}`));
          break;
        case 'run':
          task.done({ kind: 'died', reason, suspect: isSuspect && index === 0 });
          break;
        case 'release':
          task.resolve();
      }
    }
    for (const task of away) task.done({ kind: 'died', reason, suspect: false });
  }
}
