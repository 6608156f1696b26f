/** Opens models in separate processes, two at a time and publishers in rotation, so that a hostile or broken file harms nothing else. */
import { setMaxListeners } from 'node:events';
import { readdir, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { isMachineShort, loadPeakBytes, ownMemory, processesShort, validatorLimitBytes } from '../../hardware/index.ts';
import { compiledModule, GoneError, niceness, Remote, type PeerEnd } from '../../process/index.ts';
import { given, KeyedMutex, Semaphore } from '../../tools/index.ts';
import { HostError } from '../errors.ts';
import type { SplitOrder } from './split-model.ts';
import { reviveMetadata, type ValidatedModel, type ValidateModel } from './validation.ts';

/** The model, its external data, and files that Node and ONNX Runtime open. */
const filesMax = 1024;
/** Checking a small model is mostly the start of the process, which is reused for this many that follow soon. */
const modelsPerProcessMax = 100;
const keptMsMax = 5_000;
/** After a larger model its process ends, because ONNX Runtime does not return all memory. */
const smallBytesMax = 16 * 2 ** 20;

export interface ValidatorOptions {
  /** Wall-clock limit for opening a model, from when its process is ready. */
  readonly timeoutMs: number;
  /** JavaScript heap of the process; the model's own bytes are outside it. */
  readonly heapMiBMax?: number;
  /** All memory of the process; default: the part of a host that nobody has configured. */
  readonly memoryBytes?: number;
  /** The compiled validator-process; found automatically by default. */
  readonly processPath?: string;
  /** How long its process may take to be ready. Default: longer with each try. */
  readonly startMsMax?: number;
  /** Pauses before further tries after a process ended before it opened the model. */
  readonly retryDelaysMs?: readonly number[];
}

export interface CheckOrder {
  readonly modelPath: string;
  /** Where its split form goes; undefined: the model stays whole. */
  readonly split?: SplitOrder | undefined;
}

export interface ValidatorApi {
  /** Answered once the process has loaded its own code: an end before that has nothing to do with the model. */
  ready(): void;
  check(order: CheckOrder): ValidatorReply;
}

export type ValidatorReply =
  ({ readonly outcome: 'accepted' } & ValidatedModel) | { readonly outcome: 'refused'; readonly reason: string };

type ValidatorProcess = Remote<ValidatorApi>;

/** Of the limit of one validation, whichever processes open the model. */
interface TimeLeft {
  leftMs: number;
}

/**
 * Does the work when it is the caller's turn, with the memory that a validator has. Rejects with the signal's reason if it
 * aborts before.
 */
export type InTurn = <Result>(
  caller: string,
  signal: AbortSignal,
  work: (memoryBytes: number) => Promise<Result>,
) => Promise<Result>;

/** How long a process may take to start, by try: on a machine without a free core it takes many times its 0.3 s. */
const startMsMaxOfTry = [10_000, 20_000, 40_000];
export const validationsAtOnce = 2;
/** In the place of a publisher's name; no key or address is empty. */
const ownName = '';

export class Validator {
  readonly #options: ValidatorOptions;
  /** One at a time for each caller: none waits for more than one piece of another's work. */
  readonly #callers = new KeyedMutex();
  readonly #turns = new Semaphore(validationsAtOnce);
  readonly #stop = new AbortController();
  /** It has accepted small models only, and has nothing to do. */
  #spare: { readonly process: ValidatorProcess; readonly modelsLeft: number } | undefined;

  constructor(options: ValidatorOptions) {
    this.#options = options;
    setMaxListeners(0, this.#stop.signal);
  }

  readonly validate: ValidateModel = async (modelPath, publisher, split) => {
    const { signal: stop } = this.#stop;
    const over = publisher === undefined ? stop : AbortSignal.any([stop, publisher.signal]);
    try {
      return await this.inTurn(publisher?.name ?? ownName, over, () => this.#run({ modelPath, split }, over));
    } catch (error) {
      if (!over.aborted) throw error;
      throw stop.aborted ? stopping() : gone();
    }
  };

  /**
   * Other work that runs models takes one of the validator's turns, so that all of it stays in the validators' part of
   * the memory.
   */
  readonly inTurn: InTurn = (caller, signal, work) =>
    this.#callers.run(
      caller,
      async () => {
        using _turn = await this.#turns.lock(signal);
        return await work(this.#memoryBytes);
      },
      signal,
    );

  get #memoryBytes(): number {
    return this.#options.memoryBytes ?? validatorLimitBytes(ownMemory('host'));
  }

  /** Ends running validations and refuses waiting and new ones, with HostError 'draining'. */
  stop(): void {
    void this.#spare?.process.end('it is not needed');
    this.#stop.abort();
  }

  async #run(order: CheckOrder, over: AbortSignal): Promise<ValidatedModel> {
    const time = { leftMs: this.#options.timeoutMs };
    const accepted = await this.#acceptedByKept(order, time, over);
    if (accepted !== undefined) return accepted;
    const pausesMs = [0, ...(this.#options.retryDelaysMs ?? [500, 2000])];
    let neverOpened = '';
    for (const [index, pauseMs] of pausesMs.entries()) {
      await delay(pauseMs, undefined, { signal: over });
      const startMs = this.#options.startMsMax ?? startMsMaxOfTry[index] ?? startMsMaxOfTry.at(-1)!;
      const outcome = await this.#runOnce(order, startMs, time, over);
      if (!('neverOpened' in outcome)) return outcome;
      ({ neverOpened } = outcome);
      const short = processesShort();
      if (short !== undefined) throw unavailable(`${neverOpened}: ${short}`);
    }
    throw unavailable(neverOpened);
  }

  /**
   * The verdict of a process that has opened other models, if it accepts this one. A refusal, or its end, may be caused
   * by those: then a new process decides. That it does not finish is a verdict: a second try would cost as much again.
   */
  async #acceptedByKept(order: CheckOrder, time: TimeLeft, over: AbortSignal): Promise<ValidatedModel | undefined> {
    const spare = this.#spare;
    this.#spare = undefined;
    if (spare?.process.isAlive !== true) return undefined;
    const { process, modelsLeft } = spare;
    if (modelsLeft > 0 && (await isSmall(order.modelPath))) {
      try {
        const answer = await checked(process, order, time, over);
        if (answer.outcome === 'accepted') {
          await this.#keep(process, order.modelPath, answer, modelsLeft - 1);
          return verdict(answer);
        }
      } catch (error) {
        if (isLate(error)) throw this.#unfinished();
        over.throwIfAborted();
      }
    }
    void process.end('another one decides');
    return undefined;
  }

  async #runOnce(
    order: CheckOrder,
    startMs: number,
    time: TimeLeft,
    over: AbortSignal,
  ): Promise<ValidatedModel | { readonly neverOpened: string }> {
    const { modelPath } = order;
    const process = this.#start(await bytesWith(modelPath));
    try {
      await process.call('ready', undefined, { stop: over, timeMsMax: startMs });
    } catch (error) {
      void process.end('it did not start');
      over.throwIfAborted();
      if (isLate(error)) return { neverOpened: `the validator did not start within ${startMs / 1000} s` };
      return { neverOpened: describeDeath(error as Error, 'before it opened the model') };
    }
    try {
      const answer = await checked(process, order, time, over);
      if (answer.outcome === 'refused' && isMachineShort(answer.reason)) throw unavailable(answer.reason);
      const model = verdict(answer);
      await this.#keep(process, modelPath, model, modelsPerProcessMax - 1);
      return model;
    } catch (error) {
      await process.end('it is done');
      over.throwIfAborted();
      if (error instanceof HostError) throw error;
      if (isLate(error)) throw this.#unfinished();
      const end = endOf(error);
      if (end?.signal === 'SIGKILL') throw unavailable(killed(end));
      const words = describeEnd(error as Error);
      throw isMachineShort((error as Error).message) ? unavailable(words) : refused(words);
    }
  }

  /** For the next model, unless another process waits for it already. */
  async #keep(
    process: ValidatorProcess,
    modelPath: string,
    { externalFiles }: Pick<ValidatedModel, 'externalFiles'>,
    modelsLeft: number,
  ): Promise<void> {
    const isFit = modelsLeft > 0 && externalFiles.length === 0 && (await isSmall(modelPath));
    if (isFit && this.#spare?.process.isAlive !== true && !this.#stop.signal.aborted) {
      this.#spare = { process, modelsLeft };
      return;
    }
    await process.end('it is done');
  }

  #unfinished(): HostError {
    return refused(`the validator did not finish within ${this.#options.timeoutMs / 1000} s and was stopped`);
  }

  /** A new process, for a model of so many bytes. */
  #start(modelBytes: number): ValidatorProcess {
    const { processPath, heapMiBMax = 2048 } = this.#options;
    const own = compiledModule('./validator-process.js', import.meta.url);
    const process = {
      module: processPath === undefined ? own : pathToFileURL(processPath),
      heapMiBMax,
      // A model that wants more memory than its share fails alone, and harms nothing else. What is large itself may
      // take what any session of it takes.
      limits: { memoryBytes: Math.max(this.#memoryBytes, loadPeakBytes(modelBytes)), files: filesMax },
      nodeOptions: ['--expose-gc'],
      ownGroup: true,
      hugePages: true,
      // Nothing of the host's environment: a model must not see keys and addresses.
      environment: { LANG: 'C.UTF-8', TMPDIR: tmpdir() },
      // When memory runs out, the kernel kills this process before the host; and serving has priority for the cores.
      memoryScore: 1000,
      purpose: 'validators',
      niceness: niceness.background,
    };
    return new Remote<ValidatorApi>({ what: 'the validator', process, idleMsMax: keptMsMax });
  }
}

/** Asks for the verdict, in the time that is left. */
async function checked(
  process: ValidatorProcess,
  order: CheckOrder,
  time: TimeLeft,
  stop: AbortSignal,
): Promise<ValidatorReply> {
  const startMs = performance.now();
  try {
    return await process.call('check', order, { stop, timeMsMax: time.leftMs });
  } finally {
    time.leftMs -= performance.now() - startMs;
  }
}

const endOf = (error: unknown): PeerEnd | undefined => (error instanceof GoneError ? error.end : undefined);
const isLate = (error: unknown): boolean => endOf(error)?.isLate === true;

const isSmall = async (modelPath: string): Promise<boolean> =>
  await stat(modelPath).then(
    ({ size }) => size <= smallBytesMax,
    () => false,
  );

/** Of the files in the model's folder: its external data is among them. */
async function bytesWith(modelPath: string): Promise<number> {
  const folder = dirname(modelPath);
  const files = await readdir(folder, { recursive: true }).catch(() => []);
  const sizes = files.slice(0, filesMax).map((file) =>
    stat(join(folder, file)).then(
      ({ size }) => size,
      () => 0,
    ),
  );
  return (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0);
}

function verdict(reply: ValidatorReply): ValidatedModel {
  if (reply.outcome === 'refused') throw refused(reply.reason);
  const { metadata, externalFiles, split } = reply;
  return { metadata: reviveMetadata(metadata), externalFiles, ...given({ split }) };
}

function describeEnd(error: Error): string {
  if (endOf(error)?.words.includes('heap out of memory') === true) {
    return 'opening it took more memory than the validator may use';
  }
  return describeDeath(error, 'while it opened the model');
}

function describeDeath(error: Error, when: string): string {
  const { exitCode = null, signal = null, words = '', reason = error.message } = endOf(error) ?? {};
  const how =
    signal !== null ? `crashed with ${signal}` : exitCode !== null ? `ended with exit code ${exitCode}` : 'failed';
  const lines = exitCode === null && signal === null ? [reason] : words.trim().split('\n');
  const said = (lines.find((line) => /error/i.test(line)) ?? lines.at(-1) ?? '').trim().slice(0, 300);
  return `the validator ${how} ${when}${said === '' ? '' : ` (${said})`}`;
}

function refused(reason: string): HostError {
  return new HostError('model-refused', `the model was refused: ${reason}`);
}

function unavailable(reason: string): HostError {
  return new HostError('validator-unavailable', `the model was not checked: ${reason}`);
}

/** No model can send this signal: it comes from the kernel when memory runs out, or from somebody on this machine. */
function killed({ isForMemory }: PeerEnd): string {
  return isForMemory === true
    ? 'the kernel ended the validator for lack of memory'
    : 'the validator was ended by SIGKILL while it opened the model';
}

function gone(): HostError {
  return new HostError('client-gone', 'the client closed the connection before its model was checked');
}

function stopping(): HostError {
  return new HostError('draining', 'the host is shutting down and validates no more models');
}
