/** `--slo` and `--priority`: figures for all functions, by model or by function, and mixes of them by share. */
import { Command, InvalidArgumentError, type OptionsOf } from '../commander.ts';
import { parseCount, parseDurationMs, parseWhole } from '../values.ts';

/** Values by share; the shares add up to 1. */
type Mix = readonly { readonly value: number; readonly share: number }[];

/** A figure for all functions, by model or by function, or for shares of them. */
export interface ByFunction {
  /** As it was written, for reports. */
  readonly text: string;
  /** For functions without one of their own. */
  readonly common: Mix | undefined;
  /** By function (bert-base/7) or model (bert-base). */
  readonly own: ReadonlyMap<string, Mix>;
}

export const sloMsDefault = 100;

const sloHelp =
  'to answer in: 100ms, by model or function as in bert-base=100ms,gpt2/3=1s, or by share of the functions as in ' +
  "20ms@30%,1s@70%; a trace's own otherwise";

/** Flags of a measurement, for simulated systems and for a running host: the SLOs, and the warm-up. */
export function measureFlags() {
  return new Command()
    .optionsGroup('The machine and its policy:')
    .option('--slo <time>', sloHelp, parseSlo)
    .option('--warmup <number>', 'requests at the beginning that the report leaves out', parseWhole);
}

export type MeasureFlags = OptionsOf<ReturnType<typeof measureFlags>>;

/** "100ms", "bert-base=100ms,gpt2/3=1s,200ms", "20ms@30%,100ms@70%", "bert-base=20ms@50%,bert-base=1s@50%". */
export const parseSlo = (text: string): ByFunction =>
  parseByFunction(text, { words: 'SLOs', example: '20ms@30%,1s@70%' }, (duration) => {
    const sloMs = parseDurationMs(duration);
    if (sloMs === 0) throw new InvalidArgumentError('An SLO of no time cannot be met.');
    return sloMs;
  });

/** In the same forms: "bert-base/0=1,gpt2=5", "1@10%,9@90%". */
export const parsePriorities = (text: string): ByFunction =>
  parseByFunction(text, { words: 'priorities', example: '1@10%,9@90%' }, parseCount);

/** Words for the error of a mix of shares that is not valid. */
interface MixWords {
  readonly words: string;
  readonly example: string;
}

function parseByFunction(text: string, words: MixWords, parse: (value: string) => number): ByFunction {
  const mixes = new Map<string, { value: number; share: number | undefined }[]>();
  for (const part of text.split(',')) {
    const at = part.indexOf('=');
    const name = at === -1 ? '' : part.slice(0, at).trim();
    if (at !== -1 && name === '') throw new InvalidArgumentError(`'${part.trim()}' names no model and no function.`);
    const [value = '', share, ...more] = part.slice(at + 1).split('@');
    if (more.length > 0) throw new InvalidArgumentError(`'${part.trim()}' has more than one share.`);
    const mix = mixes.get(name) ?? [];
    mix.push({ value: parse(value), share: share === undefined ? undefined : parseShare(share) });
    mixes.set(name, mix);
  }
  const checked = new Map(Array.from(mixes, ([name, mix]) => [name, checkMix(name, mix, words)]));
  const common = checked.get('');
  checked.delete('');
  return { text, common, own: checked };
}

function parseShare(text: string): number {
  const [, digits] = /^\s*(\d+(?:\.\d+)?)%\s*$/.exec(text) ?? [];
  const share = Number(digits) / 100;
  if (!(share > 0 && share <= 1)) throw new InvalidArgumentError(`'${text}' is no share such as 30%.`);
  return share;
}

function checkMix(
  name: string,
  mix: readonly { value: number; share: number | undefined }[],
  { words, example }: MixWords,
): Mix {
  const of = name === '' ? 'all functions' : `'${name}'`;
  const [first, ...others] = mix;
  if (first !== undefined && others.length === 0 && first.share === undefined) return [{ ...first, share: 1 }];
  const known = mix.filter((part): part is { value: number; share: number } => part.share !== undefined);
  if (known.length < mix.length) {
    throw new InvalidArgumentError(`Several ${words} of ${of} need a share each, such as ${example}.`);
  }
  const sum = known.reduce((total, { share }) => total + share, 0);
  // Thirds are written as 33.3%.
  if (Math.abs(sum - 1) > 0.005) {
    throw new InvalidArgumentError(
      `The shares of the ${words} of ${of} add up to ${(sum * 100).toFixed(1)}%, not to 100%.`,
    );
  }
  return known.map(({ value, share }) => ({ value, share: share / sum }));
}

/** The value that is given for a function; undefined if none is. */
export function valueFor(
  given: ByFunction | undefined,
  { name, model, index }: { readonly name: string; readonly model: string; readonly index: number },
): number | undefined {
  const mix = given?.own.get(name) ?? given?.own.get(model) ?? given?.common;
  if (mix === undefined) return undefined;
  // Multiples of the golden ratio spread evenly, whatever part of the functions is asked for: shares hold for each
  // model.
  const at = ((index + 1) * goldenRatio) % 1;
  let sum = 0;
  for (const { value, share } of mix) {
    sum += share;
    if (at < sum) return value;
  }
  return mix.at(-1)?.value;
}

const goldenRatio = (Math.sqrt(5) - 1) / 2;

/** The one objective of all functions, where there is one. */
export function commonSloMs(given: ByFunction | undefined): number | null {
  if (given === undefined) return sloMsDefault;
  const { common = [{ value: sloMsDefault }], own } = given;
  return own.size === 0 && common.length === 1 ? (common[0]?.value ?? null) : null;
}
