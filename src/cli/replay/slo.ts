/** `--slo`: objectives for all functions, by model or by function, and mixes of them by share. */
import { InvalidArgumentError } from '../commander.ts';
import { parseDurationMs } from '../values.ts';

/** Objectives by share; the shares add up to 1. */
type SloMix = readonly { readonly sloMs: number; readonly share: number }[];

export interface SloGiven {
  /** As it was written, for reports. */
  readonly text: string;
  /** For functions without one of their own. */
  readonly common: SloMix | undefined;
  /** By function (bert-base/7) or model (bert-base). */
  readonly own: ReadonlyMap<string, SloMix>;
}

export const sloMsDefault = 100;

export const sloHelp =
  'to answer in: 100ms, by model or function as in bert-base=100ms,gpt2/3=1s, or by share of the functions as in ' +
  "20ms@30%,1s@70%; a trace's own otherwise";

/** "100ms", "bert-base=100ms,gpt2/3=1s,200ms", "20ms@30%,100ms@70%", "bert-base=20ms@50%,bert-base=1s@50%". */
export function parseSlo(text: string): SloGiven {
  const mixes = new Map<string, { sloMs: number; share: number | undefined }[]>();
  for (const part of text.split(',')) {
    const at = part.indexOf('=');
    const name = at === -1 ? '' : part.slice(0, at).trim();
    if (at !== -1 && name === '') throw new InvalidArgumentError(`'${part.trim()}' names no model and no function.`);
    const [duration = '', share, ...more] = part.slice(at + 1).split('@');
    if (more.length > 0) throw new InvalidArgumentError(`'${part.trim()}' has more than one share.`);
    const sloMs = parseDurationMs(duration);
    if (sloMs === 0) throw new InvalidArgumentError('An SLO of no time cannot be met.');
    const mix = mixes.get(name) ?? [];
    mix.push({ sloMs, share: share === undefined ? undefined : parseShare(share) });
    mixes.set(name, mix);
  }
  const checked = new Map(Array.from(mixes, ([name, mix]) => [name, checkMix(name, mix)]));
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

function checkMix(name: string, mix: readonly { sloMs: number; share: number | undefined }[]): SloMix {
  const of = name === '' ? 'all functions' : `'${name}'`;
  const [first, ...others] = mix;
  if (first !== undefined && others.length === 0 && first.share === undefined) return [{ ...first, share: 1 }];
  const known = mix.filter((part): part is { sloMs: number; share: number } => part.share !== undefined);
  if (known.length < mix.length) {
    throw new InvalidArgumentError(`Several SLOs of ${of} need a share each, such as 20ms@30%,1s@70%.`);
  }
  const sum = known.reduce((total, { share }) => total + share, 0);
  // Thirds are written as 33.3%.
  if (Math.abs(sum - 1) > 0.005) {
    throw new InvalidArgumentError(
      `The shares of the SLOs of ${of} add up to ${(sum * 100).toFixed(1)}%, not to 100%.`,
    );
  }
  return known.map(({ sloMs, share }) => ({ sloMs, share: share / sum }));
}

/** The SLO that `--slo` gives a function; undefined if it gives none. */
export function givenSloMs(
  given: SloGiven | undefined,
  { name, model, index }: { readonly name: string; readonly model: string; readonly index: number },
): number | undefined {
  const mix = given?.own.get(name) ?? given?.own.get(model) ?? given?.common;
  if (mix === undefined) return undefined;
  // Multiples of the golden ratio spread evenly, whatever part of the functions is asked for: shares hold for each
  // model.
  const at = ((index + 1) * goldenRatio) % 1;
  let sum = 0;
  for (const { sloMs, share } of mix) {
    sum += share;
    if (at < sum) return sloMs;
  }
  return mix.at(-1)?.sloMs;
}

const goldenRatio = (Math.sqrt(5) - 1) / 2;

/** The one objective of all functions, where there is one. */
export function commonSloMs(given: SloGiven | undefined): number | null {
  if (given === undefined) return sloMsDefault;
  const { common = [{ sloMs: sloMsDefault }], own } = given;
  return own.size === 0 && common.length === 1 ? (common[0]?.sloMs ?? null) : null;
}
