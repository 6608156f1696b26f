/** Opens models in separate processes, one at a time, so that a hostile or broken file harms nothing else. */
import { stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { ownMemory, validatorLimitBytes } from '../../hardware/index.ts';
import {
  compiledModule,
  niceness,
  Server,
  startProcess,
  type NoAnswer,
  type PeerEnd,
  type PlainFailure,
} from '../../process/index.ts';
import { KeyedMutex } from '../../tools/index.ts';
import { HostError } from '../errors.ts';
import { reviveMetadata, type ValidatedModel, type ValidateModel } from './validation.ts';

/** The model, its external data, and files that Node and ONNX Runtime open. */
const filesMax = 1024;
/** Checking a small model is mostly the start of the process, which is reused for this many that follow soon. */
const modelsPerProcessMax = 100;
const keptMsMax = 5_000;
/** After a larger model its process ends, because ONNX Runtime does not return all memory. */
const smallBytesMax = 16 * 2 ** 20;

export interface ValidatorOptions {
  /** Wall-clock limit of one validation, from the start of its process if it gets a new one. */
  readonly timeoutMs: number;
  /** JavaScript heap of the process; the model's own bytes are outside it. */
  readonly heapMiBMax?: number;
  /** All memory of the process; default: the part of a host that nobody has configured. */
  readonly memoryBytes?: number;
  /** The compiled validator-process; found automatically by default. */
  readonly processPath?: string;
  /** Pauses before further tries after a process ended before it opened the model. */
  readonly retryDelaysMs?: readonly number[];
}

export type ValidatorOrder =
  /** Answered once the process has loaded its own code: an end before that has nothing to do with the model. */
  { readonly op: 'ready' } | { readonly op: 'check'; readonly modelPath: string };

export type ValidatorReply =
  ({ readonly outcome: 'accepted' } & ValidatedModel) | { readonly outcome: 'refused'; readonly reason: string };

class NoVerdict extends Error {
  readonly ended: PeerEnd | undefined;
  constructor({ failure, ended }: NoAnswer<PlainFailure>) {
    super(failure?.message ?? ended?.reason);
    this.ended = ended;
  }
}

type ValidatorProcess = Server<ValidatorOrder>;

export class Validator {
  readonly #options: ValidatorOptions;
  readonly #queue = new KeyedMutex();
  readonly #stop = new AbortController();
  /** It has accepted small models only. */
  #kept: { readonly process: ValidatorProcess; modelsLeft: number } | undefined;

  constructor(options: ValidatorOptions) {
    this.#options = options;
  }

  readonly validate: ValidateModel = async (modelPath) =>
    await this.#queue.run('', async () => await this.#run(modelPath));

  /** Ends the running validation and refuses waiting and new ones, with HostError 'draining'. */
  stop(): void {
    this.#stop.abort();
  }

  async #run(modelPath: string): Promise<ValidatedModel> {
    const accepted = await this.#acceptedByKept(modelPath);
    if (accepted !== undefined) return accepted;
    let neverOpened = '';
    for (const delayMs of [0, ...(this.#options.retryDelaysMs ?? [500, 2000])]) {
      await delay(delayMs, undefined, { signal: this.#stop.signal }).catch(() => undefined);
      const outcome = await this.#runOnce(modelPath);
      if (!('neverOpened' in outcome)) return outcome;
      ({ neverOpened } = outcome);
    }
    throw new HostError('internal', neverOpened);
  }

  /**
   * The verdict of a process that has opened other models, if it accepts this one. Any other result may be caused by
   * those: then a new process decides.
   */
  async #acceptedByKept(modelPath: string): Promise<ValidatedModel | undefined> {
    const kept = this.#kept;
    if (kept?.process.isAlive !== true || kept.modelsLeft === 0 || !(await isSmall(modelPath))) {
      kept?.process.end('it is not needed');
      return undefined;
    }
    const { process } = kept;
    try {
      const { answer } = await this.#asked(
        process,
        async () => await process.ask<ValidatorReply>({ op: 'check', modelPath }),
      );
      if (answer.outcome === 'accepted') {
        kept.modelsLeft = answer.externalFiles.length === 0 ? kept.modelsLeft - 1 : 0;
        return verdict(answer);
      }
    } catch (error) {
      if (!(error instanceof NoVerdict || error instanceof Late)) throw error;
    }
    process.end('another one decides');
    return undefined;
  }

  /** Ends the process when it takes too long, and when the host stops. @throws Late, HostError 'draining' */
  async #asked<Result>(process: ValidatorProcess, work: () => Promise<Result>): Promise<Result> {
    const { signal } = this.#stop;
    if (signal.aborted) throw stopping();
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      process.end('it took too long');
    }, this.#options.timeoutMs);
    try {
      return await work();
    } catch (error) {
      if (signal.aborted) throw stopping();
      throw isLate ? new Late() : error;
    } finally {
      clearTimeout(timer);
    }
  }

  async #runOnce(modelPath: string): Promise<ValidatedModel | { readonly neverOpened: string }> {
    if (this.#stop.signal.aborted) throw stopping();
    const process = this.#start();
    let [isReady, isKept] = [false, false];
    try {
      return await this.#asked(process, async () => {
        await process.ask({ op: 'ready' });
        isReady = true;
        const model = verdict((await process.ask<ValidatorReply>({ op: 'check', modelPath })).answer);
        isKept = model.externalFiles.length === 0 && (await isSmall(modelPath));
        if (isKept) this.#kept = { process, modelsLeft: modelsPerProcessMax - 1 };
        return model;
      });
    } catch (error) {
      if (error instanceof Late) {
        throw refused(`the validator did not finish within ${this.#options.timeoutMs / 1000} s and was stopped`);
      }
      if (!(error instanceof NoVerdict)) throw error;
      if (!isReady) return { neverOpened: describeDeath(error, 'before it opened the model') };
      throw refused(describeEnd(error));
    } finally {
      if (!isKept) {
        process.end('it is done');
        await process.exited;
      }
    }
  }

  /** A new process, which ends with this validator. */
  #start(): ValidatorProcess {
    const { processPath, heapMiBMax = 2048 } = this.#options;
    const own = compiledModule('./validator-process.js', import.meta.url);
    const limits = {
      module: processPath === undefined ? own : pathToFileURL(processPath),
      heapMiBMax,
      // A model that wants more memory than there is fails alone, and harms nothing else.
      limits: { memoryBytes: this.#options.memoryBytes ?? validatorLimitBytes(ownMemory('host')), files: filesMax },
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
    const process: ValidatorProcess = new Server<ValidatorOrder>((events) => startProcess(limits, events), {
      errorOf: (cause) => new NoVerdict(cause),
      idleMsMax: keptMsMax,
    });
    const end = (): void => process.end('it is done');
    this.#stop.signal.addEventListener('abort', end);
    void process.exited.then(() => this.#stop.signal.removeEventListener('abort', end));
    this.#kept = undefined;
    return process;
  }
}

class Late extends Error {}

const isSmall = async (modelPath: string): Promise<boolean> =>
  await stat(modelPath).then(
    ({ size }) => size <= smallBytesMax,
    () => false,
  );

function verdict(reply: ValidatorReply): ValidatedModel {
  if (reply.outcome === 'refused') throw refused(reply.reason);
  return { metadata: reviveMetadata(reply.metadata), externalFiles: reply.externalFiles };
}

function describeEnd(error: NoVerdict): string {
  if (error.ended?.words.includes('heap out of memory') === true) {
    return 'opening it took more memory than the validator may use';
  }
  if (error.ended?.signal === 'SIGKILL') {
    return 'the validator was killed while it opened the model, probably for lack of memory';
  }
  return describeDeath(error, 'while it opened the model');
}

function describeDeath({ message, ended }: NoVerdict, when: string): string {
  const { exitCode = null, signal = null, words = '' } = ended ?? {};
  const how =
    signal !== null ? `crashed with ${signal}` : exitCode !== null ? `ended with exit code ${exitCode}` : 'failed';
  const lines = exitCode === null && signal === null ? [message] : words.trim().split('\n');
  const said = (lines.find((line) => /error/i.test(line)) ?? lines.at(-1) ?? '').trim().slice(0, 300);
  return `the validator ${how} ${when}${said === '' ? '' : ` (${said})`}`;
}

function refused(reason: string): HostError {
  return new HostError('model-refused', `the model was refused: ${reason}`);
}

function stopping(): HostError {
  return new HostError('draining', 'the host is shutting down and validates no more models');
}
