/**
 * Replays started from the page. Each is the command that a person would type, run by a low-priority process; its
 * report is kept under the data folder beside those of the command line.
 */
import { randomBytes } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, stat } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import type { ReplayRun } from './dashboard/index.ts';
import { childEnvironment, countProcess, niceness, setNiceness, spawn } from '../process/index.ts';
import { HostError } from './errors.ts';

export interface ReplayOptions {
  /** Where reports are kept. */
  readonly folder: string;
  /** Folder of the traces to choose from. */
  readonly tracesFolder: string;
  /** How to run `turntable`: the program and its first arguments. */
  readonly command: readonly string[];
}

/** The choices of the form; the command has a default for every field. */
export interface ReplayRequest {
  readonly name?: string;
  /** One replay, or the search for the smallest sufficient machine. Default 'replay'. */
  readonly kind?: (typeof replayKinds)[number];
  /** A file of the traces folder; without it arrivals are generated. */
  readonly trace?: string;
  readonly arrivals?: (typeof arrivalKinds)[number];
  /** Requests per second. */
  readonly rate?: number;
  readonly requests?: number;
  /** 'bert-base=48,gpt2=12' */
  readonly functions?: string;
  /** For a search, several separated by commas. */
  readonly machine?: string;
  readonly policy?: string;
  readonly plan?: string;
  /** '100ms' */
  readonly slo?: string;
  readonly seed?: number;
  /** Of a search: '99%'. */
  readonly goodput?: string;
  /** For a search: the largest fleet to try. */
  readonly hostsMax?: number;
}

/** The command of each kind. */
const commandOf = { replay: ['replay'], capacity: ['plan', 'capacity'] } as const;
export const replayKinds = ['replay', 'capacity'] as const;

export const arrivalKinds = ['poisson', 'bursts', 'diurnal', 'azure-like'] as const;

const runsKept = 100;
const timeoutMs = 15 * 60_000;
/** How much of a command's last standard error is kept. */
const errorCharactersMax = 4096;
/** A search replays its load a dozen times. */
const searchRequestsMax = 100_000;
const searchHostsMax = 32;

export class ReplayRuns {
  readonly #options: ReplayOptions;
  /** Runs of this process; older ones are found in the folder. */
  readonly #runs = new Map<string, ReplayRun>();
  readonly #stop = new AbortController();
  /** The running one, and a controller that stops it alone. */
  #running: { readonly id: string; readonly stop: AbortController } | undefined;
  /** By unfinished run: resolves when it has ended. */
  readonly #ends = new Map<string, Promise<void>>();
  #turn: Promise<void> = Promise.resolve();

  constructor(options: ReplayOptions) {
    this.#options = options;
  }

  async traces(): Promise<string[]> {
    const names = await readdir(this.#options.tracesFolder).catch(() => []);
    return names.filter((name) => /\.(csv|jsonl)(\.gz)?$/.test(name)).toSorted();
  }

  /** The newest first. */
  async list(): Promise<ReplayRun[]> {
    const runs = new Map<string, ReplayRun>();
    for (const file of await readdir(this.#options.folder).catch(() => [])) {
      const [, id] = /^([\w.-]+)\.json$/.exec(file) ?? [];
      if (id === undefined || this.#runs.has(id)) continue;
      const { mtimeMs } = await stat(join(this.#options.folder, file));
      runs.set(id, { id, name: id, state: 'done', startedAtMs: mtimeMs, command: '', reason: null });
    }
    return [...this.#runs.values(), ...runs.values()].toSorted((one, other) => other.startedAtMs - one.startedAtMs);
  }

  /** The report as the command wrote it. @throws HostError 'unknown-path' where there is none yet */
  async report(id: string): Promise<object> {
    checkId(id);
    const run = this.#runs.get(id);
    if (run?.state === 'failed') throw new HostError('unknown-path', `replay '${id}' failed: ${run.reason}`);
    if (run !== undefined && run.state !== 'done')
      throw new HostError('unknown-path', `replay '${id}' is still ${run.state}`);
    const text = await readFile(join(this.#options.folder, `${id}.json`), 'utf8').catch(() => {
      throw new HostError('unknown-path', `there is no replay '${id}'`);
    });
    return JSON.parse(text) as object;
  }

  /** Starts a run, or queues it behind another. @throws HostError 'bad-request' that names the field */
  async start(request: ReplayRequest): Promise<ReplayRun> {
    const words = await this.#words(request);
    if ([...this.#runs.values()].filter(({ state }) => state === 'waiting' || state === 'running').length >= 8) {
      throw new HostError('too-many-requests', 'eight replays are waiting or running already');
    }
    const id = `${new Date().toISOString().slice(0, 19).replaceAll(':', '-')}-${randomBytes(3).toString('hex')}`;
    const run: ReplayRun = {
      id,
      name: request.name === undefined || request.name === '' ? id : request.name,
      state: 'waiting',
      startedAtMs: Date.now(),
      command: ['turntable', ...words].join(' '),
      reason: null,
    };
    this.#runs.set(id, run);
    for (const old of [...this.#runs.keys()].slice(0, -runsKept)) this.#runs.delete(old);
    this.#turn = this.#turn.then(() => this.#run(run, words)).finally(() => this.#ends.delete(id));
    this.#ends.set(id, this.#turn);
    return run;
  }

  /** Also stops an unfinished run. */
  async remove(id: string): Promise<void> {
    checkId(id);
    // A queued run finds that it was removed when its turn comes.
    this.#runs.delete(id);
    if (this.#running?.id === id) {
      this.#running.stop.abort();
      await this.#ends.get(id);
      this.#runs.delete(id);
    }
    await rm(join(this.#options.folder, `${id}.json`), { force: true });
  }

  /** Stops the running one. */
  async close(): Promise<void> {
    this.#stop.abort();
    await this.#turn;
  }

  async #run(run: ReplayRun, words: readonly string[]): Promise<void> {
    if (this.#stop.signal.aborted || !this.#runs.has(run.id)) return;
    this.#runs.set(run.id, { ...run, state: 'running' });
    const { folder, command } = this.#options;
    const stop = new AbortController();
    this.#running = { id: run.id, stop };
    await mkdir(folder, { recursive: true });
    const unfinished = join(folder, `.${run.id}.unfinished`);
    const signal = AbortSignal.any([this.#stop.signal, stop.signal]);
    const reason = await execute([...command, ...words, '--json', unfinished], signal);
    if (reason === undefined) await rename(unfinished, join(folder, `${run.id}.json`));
    else await rm(unfinished, { force: true });
    this.#running = undefined;
    this.#runs.set(run.id, { ...run, state: reason === undefined ? 'done' : 'failed', reason: reason ?? null });
  }

  async #words(request: ReplayRequest): Promise<string[]> {
    const { kind = 'replay', trace, arrivals = 'poisson', rate, functions, machine, policy, plan, slo, seed } = request;
    if (!replayKinds.includes(kind)) {
      throw new HostError('bad-request', `field 'kind' is '${kind}', but takes ${replayKinds.join(', ')}`);
    }
    const words: string[] = [...commandOf[kind]];
    const isSearch = kind === 'capacity';
    const requests = request.requests ?? (isSearch ? searchRequestsMax : undefined);
    if (isSearch) words.push(...searchWords(request));
    else if (request.goodput !== undefined || request.hostsMax !== undefined) {
      throw new HostError('bad-request', "fields 'goodput' and 'hostsMax' go with kind 'capacity'");
    }
    if (trace !== undefined && trace !== '') {
      if (!(await this.traces()).includes(trace)) throw new HostError('bad-request', `there is no trace '${trace}'`);
      words.push('--trace', join(this.#options.tracesFolder, trace));
      if (rate !== undefined) words.push('--rate', String(positive('rate', rate)));
    } else {
      if (!arrivalKinds.includes(arrivals)) {
        throw new HostError('bad-request', `field 'arrivals' is '${arrivals}', but takes ${arrivalKinds.join(', ')}`);
      }
      words.push(`--${arrivals}`, String(positive('rate', rate ?? 100)));
    }
    if (requests !== undefined) words.push('--requests', String(positive('requests', requests)));
    if (seed !== undefined) words.push('--seed', String(seed));
    for (const [flag, value] of Object.entries({ functions, machine, policy, plan, slo })) {
      if (value === undefined || value === '') continue;
      // A value from the page becomes one word of the command, never another option.
      if (!/^[\w=.,-]+$/.test(value) || value.startsWith('-')) {
        throw new HostError('bad-request', `field '${flag}' has characters that it cannot have`);
      }
      words.push(`--${flag}`, value);
    }
    return words;
  }
}

function searchWords({ goodput = '99%', hostsMax = 8, requests = 0 }: ReplayRequest): string[] {
  if (!/^\d+(\.\d+)?%?$/.test(goodput)) {
    throw new HostError('bad-request', `field 'goodput' is '${goodput}', but takes a share such as 99%`);
  }
  if (!(Number.isInteger(hostsMax) && hostsMax >= 1 && hostsMax <= searchHostsMax)) {
    throw new HostError('bad-request', `field 'hostsMax' is ${hostsMax}, but takes 1 to ${searchHostsMax}`);
  }
  if (requests > searchRequestsMax) {
    throw new HostError(
      'bad-request',
      `field 'requests' is ${requests}, but a search takes at most ${searchRequestsMax}: it replays them a dozen times`,
    );
  }
  return ['--goodput', goodput, '--hosts-max', String(hostsMax)];
}

/** Checks a request from the page. @throws HostError 'bad-request' that names the field */
export function parseReplayRequest(json: Readonly<Record<string, unknown>>): ReplayRequest {
  const texts = new Set([
    'name',
    'kind',
    'goodput',
    'trace',
    'arrivals',
    'functions',
    'machine',
    'policy',
    'plan',
    'slo',
  ]);
  const numbers = new Set(['rate', 'requests', 'seed', 'hostsMax']);
  for (const [field, value] of Object.entries(json)) {
    if (!texts.has(field) && !numbers.has(field)) throw new HostError('bad-request', `there is no field '${field}'`);
    if (texts.has(field) && (typeof value !== 'string' || value.length > 400)) {
      throw new HostError('bad-request', `field '${field}' is not a text of at most 400 characters`);
    }
    if (numbers.has(field) && !(typeof value === 'number' && Number.isFinite(value))) {
      throw new HostError('bad-request', `field '${field}' is not a number`);
    }
  }
  return json;
}

function positive(field: string, value: number): number {
  if (!(value > 0)) throw new HostError('bad-request', `field '${field}' is ${value}, but must be above zero`);
  return value;
}

function checkId(id: string): void {
  if (!/^\w[\w.-]*$/.test(id)) throw new HostError('unknown-path', 'there is no such replay');
}

/** Resolves to undefined, or to the command's last words on failure. */
function execute([program = '', ...words]: readonly string[], signal: AbortSignal): Promise<string | undefined> {
  return new Promise((resolve) => {
    const child = spawn(program, words, {
      env: childEnvironment(),
      stdio: ['ignore', 'ignore', 'pipe'],
      detached: false,
    });
    // Served requests have priority over replays.
    countProcess(child, 'replays');
    if (child.pid !== undefined) setNiceness(child.pid, niceness.background);
    const stop = (): void => void child.kill('SIGTERM');
    const timer = setTimeout(stop, timeoutMs);
    signal.addEventListener('abort', stop);
    if (signal.aborted) stop();
    let written = '';
    (child.stdio[2] as Socket).setEncoding('utf8').on('data', (text: string) => {
      written = (written + text).slice(-errorCharactersMax);
    });
    child.on('error', (error) => resolve(error.message));
    child.on('close', () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', stop);
      const { exitCode, signalCode } = child;
      if (exitCode === 0) resolve(undefined);
      else resolve(written.trim().split('\n').at(-1) || `it ended with ${signalCode ?? `exit code ${exitCode}`}`);
    });
  });
}
