/** What stands behind the flags of the replay commands, parsed. Errors end up behind commander's own words. */
import { InvalidArgumentError } from 'commander';
import type { FunctionGroup } from '../../replay/index.ts';

const durationUnits: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

/** Milliseconds of "100ms", "90s", "30m", "3h". */
export function parseDurationMs(text: string): number {
  const [, digits, unit = ''] = /^(\d+(?:\.\d+)?)(ms|s|m|h)$/.exec(text.trim()) ?? [];
  const factor = durationUnits[unit];
  if (digits === undefined || factor === undefined) {
    throw new InvalidArgumentError(`It must be a duration such as 100ms, 90s, 30m or 3h.`);
  }
  return Number(digits) * factor;
}

export function parsePositive(text: string): number {
  const value = text.trim() === '' ? NaN : Number(text);
  if (!(value > 0 && value < Infinity)) throw new InvalidArgumentError('It must be a number above 0.');
  return value;
}

export function parseCount(text: string): number {
  if (!/^\d{1,12}$/.test(text) || Number(text) === 0) {
    throw new InvalidArgumentError('It must be a whole number of 1 or more.');
  }
  return Number(text);
}

/** Seeds are whole numbers that JSON keeps. */
export function parseSeed(text: string): number {
  const seed = Number(text);
  if (!/^\d+$/.test(text) || !Number.isSafeInteger(seed)) {
    throw new InvalidArgumentError(`It must be a whole number from 0 to ${Number.MAX_SAFE_INTEGER}.`);
  }
  return seed;
}

/** "bert-base=48,gpt2=12"; a name alone is one function. */
export function parseFunctionGroups(text: string): FunctionGroup[] {
  return pairs(text).map(([model, count = '1']) => ({ model, count: parseCount(count) }));
}

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

function parseRange(text: string): number[] {
  const [from = '', to = from, step = '1', ...more] = text.split('..');
  if (more.length > 0) throw new InvalidArgumentError(`'${text}' is no range such as 20..240..20.`);
  const [first, last, by] = [parseCount(from), parseCount(to), parseCount(step)];
  if (last < first) throw new InvalidArgumentError(`The range '${text}' ends before it begins.`);
  return Array.from({ length: Math.floor((last - first) / by) + 1 }, (_, index) => first + index * by);
}

/** "100ms", or "bert-base=100ms,gpt2=200ms", with a value alone for all others. */
export interface ByModel {
  readonly common: number | undefined;
  readonly own: ReadonlyMap<string, number>;
}

export function parseSlo(text: string): ByModel {
  let common: number | undefined;
  const own = new Map<string, number>();
  for (const part of text.split(',')) {
    const at = part.indexOf('=');
    const sloMs = parseDurationMs(part.slice(at + 1));
    if (sloMs === 0) throw new InvalidArgumentError('An SLO of no time cannot be met.');
    if (at === -1) common = sloMs;
    else own.set(part.slice(0, at).trim(), sloMs);
  }
  return { common, own };
}

/** What a CPU pool offers: "bert-base=180ms@8", the latency and the cores of one invocation. */
export function parseCpuOffers(text: string): Map<string, { readonly latencyMs: number; readonly cores: number }> {
  return new Map(
    pairs(text).map(([model, offer = '']) => {
      const [latency = '', cores = '1'] = offer.split('@');
      return [model, { latencyMs: parseDurationMs(latency), cores: parseCount(cores) }];
    }),
  );
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
  const units: Readonly<Record<string, number>> = { '': 1, MB: 1e6, GB: 1e9, MiB: 2 ** 20, GiB: 2 ** 30 };
  const [, digits, unit = ''] = /^(\d+(?:\.\d+)?)\s*(MB|GB|MiB|GiB)?$/.exec(text.trim()) ?? [];
  if (digits === undefined) throw new InvalidArgumentError('It must be a size such as 512MiB or 2GiB.');
  return Math.round(Number(digits) * units[unit]!);
}

export function oneOf<Choice extends string>(choices: readonly Choice[]): (text: string) => Choice {
  return (text) => {
    const found = choices.find((choice) => choice === text);
    if (found === undefined) throw new InvalidArgumentError(`It must be one of ${choices.join(', ')}.`);
    return found;
  };
}
