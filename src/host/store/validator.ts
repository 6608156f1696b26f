/** Opens models in short-lived processes, one at a time, so that a hostile or broken file takes nothing along. */
import { tmpdir, totalmem } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import {
  compiledModule,
  Server,
  startProcess,
  type NoAnswer,
  type PeerEnd,
  type PlainFailure,
} from '../../process/index.ts';
import { KeyedMutex } from '../../tools/index.ts';
import { HostError } from '../errors.ts';
import { reviveMetadata, type ValidatedModel, type ValidateModel } from './validation.ts';

/** The model, its external data, and what Node and ONNX Runtime open. */
const filesMax = 1024;

export interface ValidatorOptions {
  /** Wall-clock limit of one validation, from the start of its process. */
  readonly timeoutMs: number;
  /** JavaScript heap of the process; the model's own bytes are outside it. */
  readonly heapMiBMax?: number;
  /** The compiled validator-process; found by itself unless given. */
  readonly processPath?: string;
  /** How long to wait before each further try of a process that ended before it opened the model. */
  readonly retryDelaysMs?: readonly number[];
}

export interface Validator {
  readonly validate: ValidateModel;
  /** Ends what is running and refuses what waits and what comes, with HostError 'draining'. */
  stop(): void;
}

export type ValidatorOrder =
  /** Answered when the process has loaded its own code: what ends it before has nothing to do with the model. */
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

export function createValidator(options: ValidatorOptions): Validator {
  const { processPath, timeoutMs } = options;
  const limits = {
    module:
      processPath === undefined
        ? compiledModule('./validator-process.js', import.meta.url)
        : pathToFileURL(processPath),
    timeMsMax: timeoutMs,
    heapMiBMax: options.heapMiBMax ?? 2048,
    // A model that wants more than there is fails by itself, and takes nothing else along.
    limits: { memoryBytes: totalmem(), files: filesMax },
    nodeOptions: ['--expose-gc'],
    ownGroup: true,
    // Nothing of the host's environment: keys and addresses are no business of a model.
    environment: { LANG: 'C.UTF-8', TMPDIR: tmpdir() },
    // When memory runs out, this process goes first, and the host stays; and what serves requests has the cores first.
    memoryScore: 1000,
    niceness: 10,
  };
  const queue = new KeyedMutex();
  const stop = new AbortController();
  const { signal } = stop;

  const run = async (modelPath: string): Promise<ValidatedModel> => {
    for (const delayMs of options.retryDelaysMs ?? [500, 2000]) {
      const outcome = await runOnce(modelPath);
      if (!('neverOpened' in outcome)) return outcome;
      await delay(delayMs, undefined, { signal }).catch(() => undefined);
    }
    const outcome = await runOnce(modelPath);
    if (!('neverOpened' in outcome)) return outcome;
    throw new HostError('internal', outcome.neverOpened);
  };

  const runOnce = async (modelPath: string): Promise<ValidatedModel | { readonly neverOpened: string }> => {
    if (signal.aborted) throw stopping();
    const process = new Server<ValidatorOrder>((events) => startProcess(limits, events), {
      errorOf: (cause) => new NoVerdict(cause),
    });
    const end = (): void => process.end('it is done');
    signal.addEventListener('abort', end);
    let isReady = false;
    try {
      await process.ask({ op: 'ready' });
      isReady = true;
      return verdict((await process.ask<ValidatorReply>({ op: 'check', modelPath })).answer);
    } catch (error) {
      if (signal.aborted) throw stopping();
      if (!(error instanceof NoVerdict)) throw error;
      if (error.ended?.isLate === true) {
        throw refused(`the validator did not finish within ${timeoutMs / 1000} s and was stopped`);
      }
      if (!isReady) return { neverOpened: describeDeath(error, 'before it opened the model') };
      throw refused(describeEnd(error));
    } finally {
      signal.removeEventListener('abort', end);
      end();
      await process.exited;
    }
  };

  return {
    validate: async (modelPath) => await queue.run('', async () => await run(modelPath)),
    stop: () => stop.abort(),
  };
}

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
