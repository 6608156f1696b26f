/** Parses the values of flags. Commander prints its own words before the errors. */
import { InvalidArgumentError } from './commander.ts';
import { usage } from './error.ts';
import { missingUnit, parseDurationMs as parseDuration, parseSizeBytes } from '../tools/index.ts';
import type { WeightBits } from '../profile/index.ts';
import type { FunctionGroup, Popularity } from '../replay/index.ts';
import type { PoolConfiguration, WorkersPlace } from '../schedule/index.ts';

/** Milliseconds of "100ms", "90s", "30m" or "3h", as in the host's configuration. */
export function parseDurationMs(text: string): number {
  const durationMs = parseDuration(text);
  if (durationMs !== undefined) return durationMs;
  const asked = missingUnit(text);
  throw new InvalidArgumentError(
    `It must be a duration such as 100ms, 90s, 30m or 3h${asked === undefined ? '.' : `; ${asked}`}`,
  );
}

/** Milliseconds that a timer waits for: Node's timers end at once where they are to take more than 24.8 days. */
export function parseWaitMs(text: string): number {
  const durationMs = parseDurationMs(text);
  if (durationMs > 86_400_000) throw new InvalidArgumentError('It must be a duration of at most 24h.');
  return durationMs;
}

/** A parser of numbers that look like `form` and of which `holds` is true; `words` say what others are not. */
const numberParser =
  (form: RegExp, holds: (value: number) => boolean, words: string) =>
  (text: string): number => {
    if (form.test(text) && holds(Number(text))) return Number(text);
    throw new InvalidArgumentError(`It must be ${words}.`);
  };

export const parsePositive = numberParser(/\S/, (value) => value > 0 && value < Infinity, 'a number above 0');
export const parseShare = numberParser(/\S/, (value) => value > 0 && value <= 1, 'a share above 0, of 1 at most');
export const parseCount = numberParser(/^\d{1,12}$/, (value) => value > 0, 'a whole number of 1 or more');
export const parseWhole = numberParser(/^\d{1,12}$/, () => true, 'a whole number of 0 or more');
/** Seeds are whole numbers that JSON keeps. */
export const parseSeed = numberParser(
  /^\d+$/,
  Number.isSafeInteger,
  `a whole number from 0 to ${Number.MAX_SAFE_INTEGER}`,
);
export const parseNumber = numberParser(/^\s*(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*$/i, () => true, 'a number of 0 or more');

/** "99/1": 99% of the requests on 1% of the functions. */
export function parseSkew(text: string): Popularity {
  const [, requests = '', functions = ''] = /^(\d+(?:\.\d+)?)\/(\d+(?:\.\d+)?)$/.exec(text.trim()) ?? [];
  const [requestShare, functionShare] = [Number(requests) / 100, Number(functions) / 100];
  if (!(requestShare > 0 && requestShare < 1 && functionShare > 0 && functionShare < 1)) {
    throw new InvalidArgumentError('It must be two shares in percent, such as 99/1 or 80/20.');
  }
  return { kind: 'skewed', requestShare, functionShare };
}

/** "bert-base=48,gpt2=12": so many of each; a name alone is one. */
export const parseGroups = (text: string): { readonly name: string; readonly count: number }[] =>
  pairs(text).map(([name, count = '1']) => ({ name, count: parseCount(count) }));

export const parseFunctionGroups = (text: string): FunctionGroup[] =>
  parseGroups(text).map(({ name, count }) => ({ model: name, count }));

/** "bert-base=20..240..20": from, to and step; several ranges advance together. */
export function parseFunctionRanges(text: string): FunctionGroup[][] {
  const ranges = pairs(text).map(([model, range = '1']) => ({ model, counts: parseRange(range) }));
  const length = Math.max(...ranges.map(({ counts }) => counts.length));
  const odd = ranges.find(({ counts }) => counts.length !== 1 && counts.length !== length);
  if (odd !== undefined) {
    throw new InvalidArgumentError(
      `Ranges advance together, but that of ${odd.model} has ${odd.counts.length} steps and another ${length}.`,
    );
  }
  return Array.from({ length }, (_, step) =>
    ranges.map(({ model, counts }) => ({ model, count: counts[counts.length === 1 ? 0 : step]! })),
  );
}

/** "90..270..90": from, to and step. */
export function parseRange(text: string): number[] {
  const [from = '', to = from, step = '1', ...more] = text.split('..');
  if (more.length > 0) throw new InvalidArgumentError(`'${text}' is no range such as 20..240..20.`);
  const [first, last, by] = [parseCount(from), parseCount(to), parseCount(step)];
  if (last < first) throw new InvalidArgumentError(`The range '${text}' ends before it begins.`);
  return Array.from({ length: Math.floor((last - first) / by) + 1 }, (_, index) => first + index * by);
}

/** The costs of a model on the CPU. Figures that are left out are estimated from its weights. */
export interface CpuGiven {
  readonly latencyMs: number;
  readonly cores: number;
  /** How long a session takes to load, and with `bytes` its memory. */
  readonly loadMs?: number | undefined;
  readonly bytes?: number | undefined;
  /** The calls that share a run at most, how long that takes, and how long a call waits for others. */
  readonly joined?: { readonly calls: number; readonly ms: number; readonly delayMs: number } | undefined;
  /** Instances of its own instead. */
  readonly list?: PoolConfiguration;
}

/** Or all of that by a profile of `turntable profile --cpu --json`: instances follow the load. */
export interface CpuProfileGiven extends Pick<CpuGiven, 'loadMs' | 'bytes'> {
  readonly profile: string;
  /** The calls that share a run at most, and how long a call waits for others. */
  readonly calls: number;
  readonly delayMs: number;
}

/**
 * "bert-base=180ms@8:1.2s:450MB": a run, its cores, the loading of its session, and that session's memory.
 * "bert-base=180ms@8+16@600ms/5ms": up to 16 calls share a run, which then takes 600 ms; a call waits up to 5 ms for others.
 * "bert-base=2x4x16@90ms+1x2x8@60ms/5ms": two instances of four threads that take 16 calls in 90 ms, and one more; a call
 * waits up to 5 ms for a batch.
 * "bert-base=bert.json+16/5ms:1.2s:450MB": by a profile; up to 16 calls share a run, for which a call waits up to 5 ms.
 */
export function parseCpuOffers(text: string): Map<string, CpuGiven | CpuProfileGiven> {
  return new Map(
    pairs(text).map(([model, offer = '']): [string, CpuGiven | CpuProfileGiven] => {
      if (/^\d+x/.test(offer)) return [model, listGiven(offer)];
      const ofProfile = profileGiven(offer);
      if (ofProfile !== undefined) return [model, ofProfile];
      const [run = '', load, bytes, ...more] = offer.split(':');
      if (more.length > 0)
        throw new InvalidArgumentError(`'${offer}' is no offer such as 180ms@8 or 180ms@8:1.2s:450MB.`);
      const [alone = '', joined] = run.split('+');
      const [latency = '', cores = '1'] = alone.split('@');
      const given: CpuGiven = {
        latencyMs: parseDurationMs(latency),
        cores: parseCount(cores),
        ...sessionGiven(load, bytes),
        joined: joined === undefined ? undefined : joinedGiven(joined),
      };
      return [model, given];
    }),
  );
}

const sessionGiven = (load: string | undefined, bytes: string | undefined): Pick<CpuGiven, 'loadMs' | 'bytes'> => ({
  loadMs: load === undefined ? undefined : parseDurationMs(load),
  bytes: bytes === undefined ? undefined : parseBytes(bytes),
});

function profileGiven(offer: string): CpuProfileGiven | undefined {
  const [, profile, calls = '1', delay = '0ms', load, bytes] =
    /^(.+\.json)(?:\+(\d+)(?:\/([^:]+))?)?(?::([^:]+))?(?::([^:]+))?$/.exec(offer) ?? [];
  if (profile === undefined) return undefined;
  return { profile, calls: parseCount(calls), delayMs: parseDurationMs(delay), ...sessionGiven(load, bytes) };
}

function joinedGiven(text: string): NonNullable<CpuGiven['joined']> {
  const [, calls = '', ms = '', delay = '0ms'] = /^(\d+)@([^/]+)(?:\/(.+))?$/.exec(text) ?? [];
  if (calls === '')
    throw new InvalidArgumentError(`'${text}' does not say which calls share a run, as 16@600ms/5ms does.`);
  return { calls: parseCount(calls), ms: parseDurationMs(ms), delayMs: parseDurationMs(delay) };
}

function listGiven(offer: string): CpuGiven {
  const [list = '', timeout = '0ms', ...more] = offer.split('/');
  const groups = list.split('+').map((text) => {
    const [, ...parts] = /^(\d+)x(\d+)x(\d+)@(.+)$/.exec(text) ?? [];
    if (parts.length === 0 || more.length > 0)
      throw new InvalidArgumentError(`'${offer}' is no list of instances such as 2x4x16@90ms+1x2x8@60ms/5ms.`);
    const [instances = 1, threads = 1, batch = 1] = parts.slice(0, 3).map(parseCount);
    return { instances, threads, batch, latencyMs: parseDurationMs(parts[3]!) };
  });
  const latencyMs = Math.max(...groups.map((group) => group.latencyMs));
  const cores = Math.max(...groups.map(({ threads }) => threads));
  return { latencyMs, cores, list: { groups, batchTimeoutMs: parseDurationMs(timeout) } };
}

/** "16@20ms": slots, and the way there and back. */
export function parseWorkers(text: string): WorkersPlace {
  const [slots = '', roundTrip, ...more] = text.split('@');
  if (roundTrip === undefined || more.length > 0) {
    throw new InvalidArgumentError('It must be slots and the time there and back, such as 16@20ms.');
  }
  return { slots: parseCount(slots), roundTripMs: parseDurationMs(roundTrip) };
}

/** "name=file" of a list. */
export function parseNamedFiles(text: string, before: ReadonlyMap<string, string> = new Map()): Map<string, string> {
  const files = new Map(before);
  for (const [name, file] of pairs(text)) {
    if (file === undefined || file === '')
      throw new InvalidArgumentError(`'${name}' names no file: NAME=FILE is wanted.`);
    files.set(name, file);
  }
  return files;
}

function pairs(text: string): [name: string, value: string | undefined][] {
  const seen = new Set<string>();
  return text.split(',').map((part) => {
    const [name = '', value] = part.split('=').map((word) => word.trim());
    if (name === '') throw new InvalidArgumentError(`'${text}' lacks a name.`);
    if (seen.has(name)) throw new InvalidArgumentError(`'${name}' stands there twice.`);
    seen.add(name);
    return [name, value];
  });
}

export function parseBytes(text: string): number {
  const bytes = parseSizeBytes(text);
  if (bytes === undefined) throw new InvalidArgumentError('It must be a size such as 512MiB or 2GiB.');
  return bytes;
}

export function oneOf<Choice extends string>(choices: readonly Choice[]): (text: string) => Choice {
  return (text) => {
    const found = choices.find((choice) => choice === text);
    if (found === undefined) throw new InvalidArgumentError(`It must be one of ${choices.join(', ')}.`);
    return found;
  };
}

export const codingHelp =
  'weights of estimated models are coded without loss on their way to GPUs, at the shares and the rate of decoding that ' +
  'are assumed (npm run bench -- coding)';

/** The choices of `gpu.precision` that an estimate tells apart. */
const gpuPrecisions = ['exact', 'fp16', 'bf16'] as const;
export type GpuPrecision = (typeof gpuPrecisions)[number];
export const parsePrecision = oneOf(gpuPrecisions);
export const precisionHelp =
  "a function's gpu.precision: with fp16 and bf16 weights of 32-bit floats are held and moved in 16 bits in an estimate; " +
  'runs are taken to last as long as in 32';
export const weightBitsOf = (precision: GpuPrecision = 'exact'): WeightBits => (precision === 'exact' ? 32 : 16);

/** A list such as `8,16,32`. */
export const parseCounts = (text: string): number[] => listOf(text).map(parseCount);
export const parseNumbers = (text: string): number[] => listOf(text).map(parseNumber);

function listOf(text: string): string[] {
  return text.split(',').map((part) => part.trim());
}

/** `key=value` words by key. @param of what stands before them, for errors; `example`: of one */
export function parsePairs(words: readonly string[], of: string, example: string): Map<string, string> {
  const values = new Map<string, string>();
  for (const word of words) {
    const at = word.indexOf('=');
    if (at <= 0) throw usage(`${of} is "${word}", but must be key=value, such as ${example}`);
    const key = word.slice(0, at);
    if (values.has(key)) throw usage(`${of} names "${key}" twice`);
    values.set(key, word.slice(at + 1));
  }
  return values;
}

/** Sizes of open dimensions, name=size each. @param flag that they were given with */
export function parseSizes(pairs: readonly string[], flag: string): Record<string, number> {
  return Object.fromEntries(
    pairs.map((pair) => {
      const [, name = '', size = ''] = /^(.+)=([1-9]\d{0,8})$/.exec(pair) ?? [];
      if (name === '') throw usage(`${flag} takes name=size such as sequence=64, and '${pair}' is not that`);
      return [name, Number(size)];
    }),
  );
}

/** The flag behind a key of commander's options: `burstHeight` is of --burst-height. */
export const flagOf = (key: string): string => `--${key.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;

/** For options that may be given several times. */
export const appended = (value: string, values: readonly string[]): string[] => [...values, value];

/** Replies of hosts are read leniently: a host may be older or newer than the command. */
export const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null;

/** A list in a host's reply; any field may be missing from its entries. */
export function listIn<Entry>(reply: unknown, name: string): Partial<Entry>[] {
  const list = isRecord(reply) ? reply[name] : undefined;
  return Array.isArray(list) ? (list.filter(isRecord) as Partial<Entry>[]) : [];
}
