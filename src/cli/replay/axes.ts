/** `--over` and `--system`: one load, replayed over the values of an option and on several systems. */
import { Command, InvalidArgumentError, type AnyCommand, type OptionValues } from '../commander.ts';
import { paperMix, type FunctionGroup } from '../../replay/index.ts';
import { coldStartModes } from '../../plan/index.ts';
import { policyNames } from '../../schedule/index.ts';
import { usage } from '../error.ts';
import { appended, parseCount, parseFunctionRanges, parseRange } from '../values.ts';

export function axesFlags() {
  return new Command()
    .optionsGroup('Several replays:')
    .option(
      '--over <option=values>',
      'once for each value of another option: rate=50,100,200, hosts=1..8, functions=bert-base=20..240..20',
    )
    .option(
      '--system <parts>',
      'given twice or more, compares: a policy, a plan, or other options, as in --system lru --system ' +
        'best,eviction=oracle',
      (text, before: string[] | undefined) => appended(text, before ?? []),
    )
    .option(
      '--seeds <number>',
      'of a comparison, to tell a difference from noise; 5 for generated requests',
      parseCount,
    );
}

/** Replaces an option of the command line. */
interface Change {
  readonly key: string;
  readonly value: unknown;
}

export interface System {
  readonly name: string;
  readonly changes: readonly Change[];
}

/** A value of the option that a sweep goes over. */
export interface Point {
  readonly at: number | string;
  readonly change: Change;
}

export interface Sweep {
  readonly over: string;
  readonly points: readonly Point[];
}

export const changed = <Options extends OptionValues>(options: Options, changes: readonly Change[]): Options => ({
  ...options,
  ...Object.fromEntries(changes.map(({ key, value }) => [key, value])),
});

/** Options that a sweep cannot vary: where a replay runs, and what it writes. */
const fixed = new Set([
  'live',
  'url',
  'json',
  'csv',
  'html',
  'save-trace',
  'rows',
  'over',
  'system',
  'seeds',
  'profile',
  'body',
]);
/** The options that say a rate, of which a replay has one. */
const generators = ['poisson', 'bursts', 'diurnal', 'azureLike'] as const;

/** @throws CliError for an option that cannot change between replays, and for a value that it does not take */
function changeOf(command: AnyCommand, options: OptionValues, flag: string, name: string, text: string): Change {
  const option = command.options.find(({ long }) => long === `--${name}`);
  if (option === undefined || option.isBoolean() || fixed.has(name)) {
    throw usage(`${flag} names '${name}', which is no option of replay that takes another value from replay to replay`);
  }
  const key =
    name === 'rate' ? (generators.find((each) => options[each] !== undefined) ?? 'rate') : option.attributeName();
  try {
    return { key, value: option.parseArg === undefined ? text : option.parseArg(text, undefined as never) };
  } catch (error) {
    if (!(error instanceof InvalidArgumentError)) throw error;
    throw usage(`${flag}: --${name} cannot be '${text}'. ${error.message}`);
  }
}

/** "rate=50,100,200"; of whole numbers also "hosts=1..8" and "hosts=2..8..2". */
export function sweepOf(command: AnyCommand, options: OptionValues, text: string): Sweep {
  const at = text.indexOf('=');
  const over = text.slice(0, Math.max(0, at));
  const values = text.slice(at + 1);
  if (over === '' || values === '') {
    throw usage(`--over is '${text}', but takes an option and its values, such as rate=50,100,200`);
  }
  if (over === 'functions') return { over, points: rangesOf(values).map(pointOf) };
  const points = values.split(',').flatMap((value) => (/^\d+\.\./.test(value) ? spoken(value) : [value.trim()]));
  return {
    over,
    points: points.map((value) => {
      const change = changeOf(command, options, '--over', over, value);
      // The flags of functions exclude each other: a mix is what --functions would say.
      if (over === 'mix') return pointOf(paperMix(Number(value)));
      return { at: Number.isFinite(Number(value)) ? Number(value) : value, change };
    }),
  };
}

const pointOf = (groups: readonly FunctionGroup[]): Point => ({
  at: groups.reduce((sum, { count }) => sum + count, 0),
  change: { key: 'functions', value: groups },
});

const spoken = (range: string): string[] => parsed(() => parseRange(range).map(String));
const rangesOf = (text: string): readonly FunctionGroup[][] => parsed(() => parseFunctionRanges(text));

function parsed<Value>(parse: () => Value): Value {
  try {
    return parse();
  } catch (error) {
    throw error instanceof InvalidArgumentError ? usage(`--over: ${error.message}`) : error;
  }
}

/** "lru", "artifact,dha", "best,eviction=oracle,machine=h200". */
export function systemsOf(command: AnyCommand, options: OptionValues, texts: readonly string[]): System[] {
  const again = texts.find((text, index) => texts.indexOf(text) < index);
  if (again !== undefined) throw usage(`--system ${again} is given twice`);
  return texts.map((text) => {
    const changes = text.split(',').map((part) => {
      const word = part.trim();
      const at = word.indexOf('=');
      if (at > 0) return changeOf(command, options, '--system', word.slice(0, at), word.slice(at + 1));
      const name = policyNames.some((each) => each === word) ? 'policy' : 'plan';
      if (name === 'plan' && !coldStartModes.some((each) => each === word)) {
        throw usage(
          `--system names '${word}', which is no policy (${policyNames.join(', ')}), no plan ` +
            `(${coldStartModes.join(', ')}) and no option=value`,
        );
      }
      return changeOf(command, options, '--system', name, word);
    });
    const twice = changes.find(({ key }, index) => changes.findIndex((each) => each.key === key) < index);
    if (twice !== undefined) {
      throw usage(`--system ${text} sets its ${twice.key} twice; give --system once for each system`);
    }
    return { name: text, changes };
  });
}
