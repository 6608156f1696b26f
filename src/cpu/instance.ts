/** The host's side of one instance: its process, its socket, and the one thing it is doing. */
import { spawn, type ChildProcess } from 'node:child_process';
import type { Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { encodeMessage, FrameDecoder, type Message, type Tensor } from '../tensor/index.ts';
import { OutputLines } from './output-lines.ts';
import { pinProcess } from './affinity.ts';
import type { CallHeader, FromInstance, Phase, ResultHeader, SessionSettings, ToInstance } from './protocol.ts';
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

/** A process that has not loaded ONNX Runtime by then hangs; on a machine at its limits it takes seconds. */
const startMsMax = 30_000;

export type InstanceState = 'starting' | 'blank' | 'loading' | 'idle' | 'busy' | 'dead';

export interface RunLimits {
  readonly handlerTimeoutMs: number;
  readonly inferTimeoutMs: number;
}

/** What one run answered: a result per call, with its tensors (a handler's reply: one tensor, the body). */
export interface RunResult {
  /** How long the instance was at it, by its own clock. */
  readonly busyMs: number;
  readonly results: readonly { readonly header: ResultHeader; readonly tensors: readonly Tensor[] }[];
}

/** How a run ended. `startedMs` (performance.now()) is when the instance turned to it. */
export type RunOutcome =
  | { readonly kind: 'ran'; readonly startedMs: number; readonly result: RunResult }
  /** The instance died; `suspect` when this run was the one it was at, and may be what killed it. */
  | { readonly kind: 'died'; readonly reason: string; readonly suspect: boolean }
  /** The instance was stopped because of this run: of `call`, or of the model's run for all calls (-1). */
  | { readonly kind: 'timeout'; readonly error: CpuError; readonly call: number };

/** Lines that an instance, or the handler in it, wrote to its standard output and error. */
export type InstanceLog = (pid: number, key: string | undefined, line: string) => void;

/** How a load ended. */
export interface LoadedModel {
  /** Why the instance could not use the prepared model and loaded the model itself. */
  readonly sharedProblem: string | undefined;
}

interface LoadTask {
  readonly resolve: (loaded: LoadedModel) => void;
  readonly reject: (error: CpuError) => void;
}

interface RunTask {
  readonly limits: RunLimits;
  readonly done: (outcome: RunOutcome) => void;
  startedMs: number;
  phase: Phase;
  call: number;
}

export class Instance {
  readonly #child: ChildProcess;
  readonly #socket: Socket;
  readonly #decoder = new FrameDecoder<FromInstance>();
  #state: InstanceState = 'starting';
  #spec: InstanceSpec | undefined;
  #load: LoadTask | undefined;
  /** Runs handed over and not yet answered; the instance is at the first. */
  readonly #runs: RunTask[] = [];
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

  /** Runs handed over and not yet answered. */
  get outstanding(): number {
    return this.#runs.length;
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
   * model or its time limit is to blame, `instance-died` where the process ended by itself.
   */
  load(
    spec: InstanceSpec,
    timeoutMs: number,
    session: SessionSettings = { threads: spec.threads, spinning: false },
  ): Promise<LoadedModel> {
    this.#spec = spec;
    return new Promise((resolve, reject) => {
      if (this.#state === 'dead') {
        reject(new CpuError('instance-died', `an instance for ${spec.key} died before it could load the model`));
        return;
      }
      this.#state = 'loading';
      this.#load = { resolve, reject };
      this.#arm(timeoutMs, () => {
        this.#fail(`loading the model of ${spec.key} took longer than ${timeoutMs} ms`);
      });
      const { modelPath, handlerPath } = spec;
      // Before the session makes its threads: they begin with the cores of the thread that makes them.
      if (session.cores !== undefined) this.pin(session.cores, session.cores.slice(0, 1));
      this.#send({ op: 'load', modelPath, session, ...(handlerPath === undefined ? {} : { handlerPath }) }, []);
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
  run(
    join: boolean,
    calls: readonly CallHeader[],
    tensors: readonly Tensor[],
    limits: RunLimits,
    done: (outcome: RunOutcome) => void,
  ): void {
    const phase: Phase = calls.some((call) => call.kind === 'request') ? 'preprocess' : 'infer';
    this.#runs.push({ limits, done, startedMs: performance.now(), phase, call: 0 });
    this.#state = 'busy';
    if (this.#runs.length === 1) this.#armPhase();
    this.#send({ op: 'run', join, calls }, tensors);
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
        const listeners = this.#onBlank;
        this.#onBlank = [];
        for (const listener of listeners) listener();
        return;
      }
      case 'loaded': {
        const load = this.#load;
        this.#load = undefined;
        this.#rest();
        load?.resolve({ sharedProblem: header.sharedProblem });
        return;
      }
      case 'load-failed':
        this.#fail(header.message);
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
      case 'ran': {
        const answered = this.#runs.shift();
        if (answered === undefined) return;
        const [next] = this.#runs;
        if (next === undefined) {
          this.#rest();
        } else {
          next.startedMs = performance.now();
          this.#armPhase();
        }
        answered.done({ kind: 'ran', startedMs: answered.startedMs, result: takeResults(header, tensors) });
      }
    }
  }

  /** The socket of a dying process often closes a moment before its exit is known, and the exit tells why. */
  #closed(): void {
    if (this.#load === undefined && this.#runs.length === 0) this.#die('its socket closed');
    else setTimeout(() => this.#die('its socket closed'), exitWaitMs);
  }

  #rest(): void {
    clearTimeout(this.#watchdog);
    this.#watchdog = undefined;
    this.#watchdogMs = 0;
    this.#state = 'idle';
    this.idleSinceMs = performance.now();
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
    const limitMs = current.phase === 'infer' ? current.limits.inferTimeoutMs : current.limits.handlerTimeoutMs;
    this.#arm(limitMs, this.#stepExpired);
  }

  readonly #stepExpired = (): void => {
    const current = this.#runs.shift();
    if (current === undefined) return;
    const { phase, call, limits, done } = current;
    const key = this.#spec?.key ?? 'an instance';
    const inferring = phase === 'infer';
    const error = inferring
      ? new CpuError(
          'inference-timeout',
          `a run of the model of ${key} took longer than ${limits.inferTimeoutMs} ms and was stopped`,
        )
      : new CpuError(
          'handler-timeout',
          `${phase} of ${key} took longer than ${limits.handlerTimeoutMs} ms and was stopped`,
        );
    this.#die(error.message, false);
    done({ kind: 'timeout', error, call: inferring ? -1 : call });
  };

  #fail(message: string): void {
    const load = this.#load;
    this.#load = undefined;
    this.#die(message);
    load?.reject(new CpuError('model-load-failed', message));
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
    for (const listener of this.#onDead) listener(reason);
    load?.reject(new CpuError('instance-died', `the instance that was loading it died: ${reason}`));
    // The last first, so that whoever puts them back at the front of a queue keeps their order.
    for (const [index, run] of [...runs.entries()].reverse()) {
      run.done({ kind: 'died', reason, suspect: suspectFirst && index === 0 });
    }
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

function takeResults(header: FromInstance & { op: 'ran' }, tensors: readonly Tensor[]): RunResult {
  let at = 0;
  const results = header.results.map((result) => {
    const count = result.kind === 'tensors' ? result.count : result.kind === 'response' ? 1 : 0;
    return { header: result, tensors: tensors.slice(at, (at += count)) };
  });
  return { busyMs: header.busyMs, results };
}
