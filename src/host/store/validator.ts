/** Opens models in short-lived processes, one at a time, so that a hostile or broken file takes nothing along. */
import { spawn } from 'node:child_process';
import { tmpdir } from 'node:os';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { HostError } from '../errors.ts';
import { KeyedMutex } from './mutex.ts';
import { reviveMetadata, type ValidatedModel, type ValidateModel } from './validation.ts';

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

/** What the process answers: one JSON line on its file descriptor 3, after {@link openingLine}. */
export type ValidatorReply =
  ({ readonly outcome: 'accepted' } & ValidatedModel) | { readonly outcome: 'refused'; readonly reason: string };

/** The process's first line. Whatever ends it before has nothing to do with the model, for example an update of the program. */
export const openingLine = 'opening\n';

interface Ended {
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly reply: string;
  readonly stderr: string;
}

/** A reply holds every input and output; beyond this it is none of ours. */
const replyBytesMax = 16 * 1024 * 1024;
const stderrBytesKept = 4096;

export function createValidator(options: ValidatorOptions): Validator {
  const processPath = options.processPath ?? compiledProcessPath();
  const queue = new KeyedMutex();
  let stopped = false;
  let endRunning: (() => void) | undefined;

  const retryDelaysMs = options.retryDelaysMs ?? [500, 2000];
  let endWait: (() => void) | undefined;

  const run = async (modelPath: string): Promise<ValidatedModel> => {
    for (const delayMs of retryDelaysMs) {
      const outcome = await runOnce(modelPath);
      if (!('neverOpened' in outcome)) return outcome;
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, delayMs);
        endWait = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    const outcome = await runOnce(modelPath);
    if (!('neverOpened' in outcome)) return outcome;
    throw new HostError('internal', outcome.neverOpened);
  };

  const runOnce = async (modelPath: string): Promise<ValidatedModel | { readonly neverOpened: string }> => {
    if (stopped) throw stopping();
    let overTime = false;
    const child = spawn(
      process.execPath,
      [`--max-old-space-size=${options.heapMiBMax ?? 2048}`, '--expose-gc', processPath, modelPath],
      {
        // Its own process group, so that a kill reaches whatever it may have started.
        detached: true,
        stdio: ['ignore', 'ignore', 'pipe', 'pipe'],
        // Nothing of the host's environment: keys and addresses are no business of a model.
        env: { LANG: 'C.UTF-8', TMPDIR: tmpdir() },
      },
    );
    const end = (): void => {
      if (child.pid === undefined) return;
      try {
        process.kill(-child.pid, 'SIGKILL');
      } catch {
        child.kill('SIGKILL'); // The group is gone, or was never made.
      }
    };
    endRunning = end;
    const timer = setTimeout(() => {
      overTime = true;
      end();
    }, options.timeoutMs);
    try {
      const closed = new Promise<[number | null, NodeJS.Signals | null]>((resolve, reject) => {
        child.once('error', reject);
        child.once('close', (exitCode, signal) => {
          resolve([exitCode, signal]);
        });
      });
      const reply = gather(child.stdio[3] as Readable, replyBytesMax);
      const stderr = gather(child.stdio[2] as Readable, stderrBytesKept);
      const [exitCode, signal] = await closed;
      if (stopped) throw stopping();
      if (overTime) throw refused(`the validator did not finish within ${options.timeoutMs / 1000} s and was stopped`);
      const ended = { exitCode, signal, reply: reply(), stderr: stderr() };
      if (!ended.reply.startsWith(openingLine)) {
        return { neverOpened: describeDeath(ended, 'before it opened the model') };
      }
      return verdict(ended);
    } finally {
      clearTimeout(timer);
      endRunning = undefined;
    }
  };

  return {
    validate: async (modelPath) => await queue.run('', async () => await run(modelPath)),
    stop() {
      stopped = true;
      endRunning?.();
      endWait?.();
    },
  };
}

function verdict(ended: Ended): ValidatedModel {
  let parsed: ValidatorReply;
  try {
    // A whole line is its last word: how the process went down afterwards changes nothing.
    parsed = JSON.parse(ended.reply.slice(openingLine.length)) as ValidatorReply;
  } catch {
    throw refused(describeEnd(ended));
  }
  if (parsed.outcome === 'refused') throw refused(parsed.reason);
  return { metadata: reviveMetadata(parsed.metadata), externalFiles: parsed.externalFiles };
}

function describeEnd(ended: Ended): string {
  if (ended.stderr.includes('heap out of memory')) return 'opening it took more memory than the validator may use';
  if (ended.signal === 'SIGKILL') {
    return 'the validator was killed while it opened the model, probably for lack of memory';
  }
  return describeDeath(ended, 'while it opened the model');
}

function describeDeath({ exitCode, signal, stderr }: Ended, when: string): string {
  const how = signal === null ? `ended with exit code ${exitCode ?? 'unknown'}` : `crashed with ${signal}`;
  const lines = stderr.trim().split('\n');
  const said = (lines.find((line) => /error/i.test(line)) ?? lines.at(-1) ?? '').trim().slice(0, 300);
  return `the validator ${how} ${when}${said === '' ? '' : ` (${said})`}`;
}

/** Reads a pipe to its end, keeping at most `bytesMax`; what comes beyond is read and dropped. */
function gather(stream: Readable, bytesMax: number): () => string {
  const chunks: Buffer[] = [];
  let bytes = 0;
  stream.on('data', (chunk: Buffer) => {
    if (bytes < bytesMax) chunks.push(chunk);
    bytes += chunk.byteLength;
  });
  stream.on('error', () => undefined); // The pipe of a killed process; its end says enough.
  return () => Buffer.concat(chunks).toString('utf8');
}

function refused(reason: string): HostError {
  return new HostError('model-refused', `the model was refused: ${reason}`);
}

function stopping(): HostError {
  return new HostError('draining', 'the host is shutting down and validates no more models');
}

/** The process is JavaScript from dist/ even when the host itself runs from src/, as in tests. */
function compiledProcessPath(): string {
  const relative = import.meta.url.endsWith('.ts')
    ? '../../../dist/host/store/validator-process.js'
    : './validator-process.js';
  return fileURLToPath(new URL(relative, import.meta.url));
}
