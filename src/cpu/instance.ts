/** The host's side of one instance: its process, its socket, and the one thing it is doing. */
import { spawn, type ChildProcess } from 'node:child_process';
import type { Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { encodeMessage, FrameDecoder, type Message, type Tensor } from '../tensor/index.ts';
import { OutputLines } from './output-lines.ts';
import { pinProcess } from './affinity.ts';
import {
  LoadTimeout,
  takeResults,
  tookTooLong,
  type InstanceLog,
  type InstanceState,
  type LoadedModel,
  type RunOrder,
  type RunOutcome,
} from './instance-run.ts';
import type { FromInstance, Phase, SessionSettings, ToInstance } from './protocol.ts';
import { CpuError, type InstanceSpec } from './types.ts';

/** From src/ (tests, tsx) the process runs the compiled file all the same: Node 20 cannot run TypeScript. */
const processPath = fileURLToPath(
  new URL(
    import.meta.url.endsWith('.ts') ? '../../dist/cpu/instance-process.js' : './instance-process.js',
    import.meta.url,
  ),
);

/** How long the end of a process may lag behind the end of its socket. */
const exitWaitMs = 100;

/** Calls whose model runs elsewhere that one instance keeps at a time: each holds its request and the handler's state. */
const awayMax = 16;

/** A process that has not loaded ONNX Runtime by then hangs; on a machine at its limits it takes seconds. */
const startMsMax = 30_000;

/** A blank process has lain about unseen: one that is not heard of for this long when it is told to load hangs. */
const takeUpMsMax = 1000;

interface LoadTask {
  readonly timeoutMs: number;
  hasBegun: boolean;
  readonly resolve: (loaded: LoadedModel) => void;
  readonly reject: (error: CpuError) => void;
}

interface RunTask {
  readonly order: RunOrder;
  readonly done: (outcome: RunOutcome) => void;
  /** When the instance first turned to it; undefined until then. */
  startedMs: number | undefined;
  phase: Phase;
  call: number;
}

export class Instance {
  readonly #child: ChildProcess;
  readonly #socket: Socket;
  readonly #decoder = new FrameDecoder<FromInstance>();
  #state: InstanceState = 'starting';
  #holdsModel = false;
  #spec: InstanceSpec | undefined;
  #load: LoadTask | undefined;
  /** Runs handed over and not yet answered, in the order in which the instance takes them; it is at the first. */
  readonly #runs: RunTask[] = [];
  /** Runs whose model is run elsewhere, by the number under which that was asked. */
  readonly #away = new Map<number, RunTask>();
  #nextAskAs = 0;
  #watchdog: NodeJS.Timeout | undefined;
  #watchdogMs = 0;
  #expired: (() => void) | undefined;
  readonly #startTimer: NodeJS.Timeout;
  #onBlank: (() => void)[] = [];
  readonly #onDead: ((reason: string) => void)[] = [];
  /** When it last became idle (performance.now()). */
  idleSinceMs = performance.now();

  constructor(log: InstanceLog) {
    this.#startTimer = setTimeout(() => this.#die(`it did not start within ${startMsMax} ms`), startMsMax);
    this.#startTimer.unref();
    this.#child = spawn(process.execPath, [processPath], {
      stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
      env: environment(),
    });
    // On Unix a 'pipe' beyond the standard three is a socket pair: both sides read and write.
    this.#socket = this.#child.stdio[3] as Socket;
    this.#socket.on('data', (chunk: Buffer) => this.#receive(chunk));
    this.#socket.on('error', () => this.#die('its socket failed'));
    this.#socket.on('close', () => this.#closed());
    this.#child.on('error', (error) => this.#die(`it could not be started: ${error.message}`));
    this.#child.on('exit', (code, signal) =>
      this.#die(signal === null ? `it exited with code ${String(code)}` : `it was ended by ${signal}`),
    );
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      const lines = new OutputLines((line) => log(this.pid, this.#spec?.key, line));
      stream?.setEncoding('utf8').on('data', (text: string) => lines.push(text));
      stream?.on('end', () => lines.end());
    }
  }

  get pid(): number {
    return this.#child.pid ?? -1;
  }

  get state(): InstanceState {
    return this.#state;
  }

  get spec(): InstanceSpec | undefined {
    return this.#spec;
  }

  /** Runs handed over that it is at, or that lie ready. */
  get queued(): number {
    return this.#runs.length;
  }

  /** Whether it would turn at once to what it is given: it is idle, or only waits for models that run elsewhere. */
  get hasFreeHand(): boolean {
    if (this.#state === 'idle') return true;
    return this.#state === 'busy' && this.#runs.length === 0 && this.#away.size < awayMax;
  }

  /** False until a model that is loaded when it is first run has been. */
  get holdsModel(): boolean {
    return this.#holdsModel;
  }

  /** Called once, when the process is gone or of no more use. */
  onDead(listener: (reason: string) => void): void {
    this.#onDead.push(listener);
  }

  /** Called when ONNX Runtime is loaded; at once if it is. Not called for an instance that dies first. */
  whenBlank(listener: () => void): void {
    if (this.#state === 'starting') this.#onBlank.push(listener);
    else listener();
  }

  /**
   * Makes this blank instance a function. Rejects with {@link CpuError}, and is dead then: `model-load-failed` where the
   * model or its time limit is to blame ({@link LoadTimeout}), `instance-died` where the process ended by itself or did
   * not even begin.
   *
   * @param timeoutMs of the load itself; its process has limits of its own to start and to begin
   * @param lazily the handler alone is loaded now, and the model when it is first run
   */
  load(
    spec: InstanceSpec,
    timeoutMs: number,
    session: SessionSettings = { threads: spec.threads, spinning: false },
    lazily = false,
  ): Promise<LoadedModel> {
    this.#spec = spec;
    this.#holdsModel = !lazily;
    return new Promise((resolve, reject) => {
      if (this.#state === 'dead') {
        reject(new CpuError('instance-died', `an instance for ${spec.key} died before it could load the model`));
        return;
      }
      const wasBlank = this.#state === 'blank';
      this.#state = 'loading';
      const task: LoadTask = { timeoutMs, hasBegun: false, resolve, reject };
      this.#load = task;
      if (wasBlank) this.#arm(takeUpMsMax, () => this.#expectBegun(task));
      const { modelPath, handlerPath, inputNames } = spec;
      // Before the session makes its threads: they begin with the cores of the thread that makes them.
      if (session.cores !== undefined) this.pin(session.cores, session.cores.slice(0, 1));
      this.#send(
        {
          op: 'load',
          modelPath,
          session,
          lazily,
          ...(inputNames === undefined ? {} : { inputNames }),
          ...(handlerPath === undefined ? {} : { handlerPath }),
        },
        [],
      );
    });
  }

  /** Keeps the process on these cores, and the thread that runs the model on `mainCores`. */
  pin(cores: readonly number[], mainCores: readonly number[] = cores): void {
    if (this.#state !== 'dead' && this.#child.pid !== undefined) pinProcess(this.#child.pid, cores, mainCores);
  }

  /**
   * Hands over calls as one run, behind those it has already. The instance must be idle or busy; `done` is called exactly
   * once.
   */
  run(order: RunOrder, done: (outcome: RunOutcome) => void): void {
    const { join, calls, tensors, runModel } = order;
    const phase: Phase = calls.some((call) => call.kind === 'request') ? 'preprocess' : 'infer';
    const task: RunTask = { order, done, startedMs: undefined, phase, call: 0 };
    this.#queue(task);
    if (runModel === undefined) {
      this.#send({ op: 'run', join, calls }, tensors);
      return;
    }
    this.#send({ op: 'run', join, calls, askAs: this.#nextAskAs++ }, tensors);
  }

  /** Ends the process at once. What it was doing fails as if it had died by itself. */
  kill(reason: string): void {
    this.#die(reason);
  }

  #send(header: ToInstance, tensors: readonly Tensor[]): void {
    const buffers = encodeMessage({ header, tensors });
    const [only] = buffers;
    if (buffers.length === 1 && only !== undefined) {
      this.#socket.write(only);
      return;
    }
    this.#socket.cork();
    for (const buffer of buffers) this.#socket.write(buffer);
    this.#socket.uncork();
  }

  #receive(chunk: Buffer): void {
    let messages: Message<FromInstance>[];
    try {
      messages = this.#decoder.push(chunk);
    } catch (error) {
      this.#die(`it sent something unreadable: ${(error as Error).message}`);
      return;
    }
    for (const { header, tensors } of messages) this.#take(header, tensors);
  }

  #take(header: FromInstance, tensors: readonly Tensor[]): void {
    switch (header.op) {
      case 'blank': {
        clearTimeout(this.#startTimer);
        if (this.#state === 'starting') this.#state = 'blank';
        this.#armLoad();
        const listeners = this.#onBlank;
        this.#onBlank = [];
        for (const listener of listeners) listener();
        return;
      }
      case 'loading':
        this.#armLoad();
        return;
      case 'loaded': {
        const load = this.#load;
        this.#load = undefined;
        this.#rest();
        load?.resolve({ sharedProblem: header.sharedProblem });
        return;
      }
      case 'load-failed':
        this.#fail(new CpuError('model-load-failed', header.message));
        return;
      case 'dying':
        this.#die(header.reason);
        return;
      case 'phase': {
        const [current] = this.#runs;
        if (current === undefined) return;
        current.phase = header.phase;
        current.call = header.call;
        this.#armPhase();
        return;
      }
      case 'run-model': {
        const asking = this.#runs.shift();
        if (asking === undefined) return;
        this.#away.set(header.id, asking);
        this.#turnToNext();
        void this.#runModel(header.id, asking, tensors);
        asking.order.onAway?.();
        return;
      }
      case 'ran': {
        const answered = this.#runs.shift();
        if (answered === undefined) return;
        if (header.loaded !== undefined) this.#holdsModel = true;
        this.#turnToNext();
        const startedMs = answered.startedMs ?? performance.now();
        answered.done({ kind: 'ran', startedMs, result: takeResults(header, tensors) });
      }
    }
  }

  #queue(task: RunTask): void {
    this.#runs.push(task);
    this.#state = 'busy';
    if (this.#runs.length === 1) this.#turnToNext();
  }

  #turnToNext(): void {
    const [next] = this.#runs;
    if (next !== undefined) {
      next.startedMs ??= performance.now();
      this.#armPhase();
    } else if (this.#away.size === 0) {
      this.#rest();
    } else {
      this.#disarm();
    }
  }

  /** Has the model of a run that is away run, and gives the instance what came of it, behind what it has already. */
  async #runModel(id: number, task: RunTask, inputs: readonly Tensor[]): Promise<void> {
    let outputs: readonly Tensor[] | undefined;
    let outcome: (ToInstance & { op: 'model-ran' })['outcome'] = 'failed';
    try {
      outputs = await task.order.runModel?.(inputs);
      outcome = outputs === undefined ? 'here' : 'outputs';
    } catch {
      // Whoever runs it keeps the error; the instance need only know that there is nothing to go on with.
    }
    // Of an instance that has died meanwhile the call is in other hands.
    if (!this.#away.delete(id)) return;
    task.order.onBack?.();
    task.phase = outcome === 'here' ? (this.#holdsModel ? 'infer' : 'load') : 'postprocess';
    this.#queue(task);
    this.#send({ op: 'model-ran', id, outcome }, outputs ?? []);
  }

  /** The socket of a dying process often closes a moment before its exit is known, and the exit tells why. */
  #closed(): void {
    if (this.#load === undefined && this.#runs.length === 0) this.#die('its socket closed');
    else setTimeout(() => this.#die('its socket closed'), exitWaitMs);
  }

  #rest(): void {
    this.#disarm();
    this.#state = 'idle';
    this.idleSinceMs = performance.now();
  }

  #disarm(): void {
    clearTimeout(this.#watchdog);
    this.#watchdog = undefined;
    this.#watchdogMs = 0;
  }

  /** One timer, refreshed where the limit stays the same: making a new one for every run costs more than the rest. */
  #arm(limitMs: number, expired: () => void): void {
    if (this.#watchdog !== undefined && this.#watchdogMs === limitMs) {
      this.#expired = expired;
      this.#watchdog.refresh();
      return;
    }
    clearTimeout(this.#watchdog);
    this.#expired = expired;
    this.#watchdogMs = limitMs;
    this.#watchdog = setTimeout(() => this.#expired?.(), limitMs);
  }

  /** Holds the first run to the limit of the step that it is at. */
  #armPhase(): void {
    const [current] = this.#runs;
    if (current === undefined) return;
    const { limits } = current.order;
    switch (current.phase) {
      case 'load':
        this.#arm(limits.loadTimeoutMs, this.#stepExpired);
        return;
      case 'infer':
        this.#arm(limits.inferTimeoutMs, this.#stepExpired);
        return;
      case 'preprocess':
      case 'postprocess':
        this.#arm(limits.handlerTimeoutMs, this.#stepExpired);
    }
  }

  readonly #stepExpired = (): void => {
    const current = this.#runs.shift();
    if (current === undefined) return;
    const { phase, call, order, done } = current;
    const error = tookTooLong(phase, this.#spec?.key ?? 'an instance', order.limits);
    this.#die(error.message, false);
    done({ kind: 'timeout', error, call: phase === 'infer' || phase === 'load' ? -1 : call });
  };

  /** Holds a load that its process is at to its limit. */
  #armLoad(): void {
    if (this.#load === undefined) return;
    this.#load.hasBegun = true;
    const { timeoutMs } = this.#load;
    this.#arm(timeoutMs, () => this.#fail(new LoadTimeout(this.#spec?.key ?? 'an instance', timeoutMs)));
  }

  /** Where it was the host that was held up, the instance's word lies in the socket: that is read before this looks. */
  #expectBegun(task: LoadTask): void {
    setImmediate(() => {
      if (this.#load === task && !task.hasBegun) this.#die(`it did not begin to load within ${takeUpMsMax} ms`);
    });
  }

  #fail(error: CpuError): void {
    const load = this.#load;
    this.#load = undefined;
    this.#die(error.message);
    load?.reject(error);
  }

  #die(reason: string, suspectFirst = true): void {
    if (this.#state === 'dead') return;
    this.#state = 'dead';
    clearTimeout(this.#startTimer);
    clearTimeout(this.#watchdog);
    this.#socket.destroy();
    // A process in the middle of a native run does not look at its socket, so closing that is not enough.
    this.#child.kill('SIGKILL');
    const load = this.#load;
    this.#load = undefined;
    const runs = this.#runs.splice(0);
    const away = [...this.#away.values()];
    this.#away.clear();
    for (const listener of this.#onDead) listener(reason);
    load?.reject(new CpuError('instance-died', `the instance that was loading it died: ${reason}`));
    // The last first, so that whoever puts them back at the front of a queue keeps their order.
    for (const [index, run] of [...runs.entries()].reverse()) {
      run.done({ kind: 'died', reason, suspect: suspectFirst && index === 0 });
    }
    for (const run of away.reverse()) run.done({ kind: 'died', reason, suspect: false });
  }
}

/**
 * By default glibc keeps freed blocks of up to 32 MiB for later: after a load those are copies of weights that are of no
 * more use, as much again as half of a small model in every instance. So large blocks go back to the system at once.
 */
const allocator = { MALLOC_MMAP_THRESHOLD_: String(1024 * 1024), MALLOC_TRIM_THRESHOLD_: String(4 * 1024 * 1024) };

/** A handler sees what its operator set for it, but not the host's own settings: there are keys among them. */
function environment(): NodeJS.ProcessEnv {
  const given = Object.entries(process.env).filter(([name]) => !name.startsWith('TURNTABLE_'));
  return { ...allocator, ...Object.fromEntries(given) };
}
