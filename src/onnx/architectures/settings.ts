/** The settings of an architecture: their meanings, and how to read them from text or values. */

interface Ranged {
  readonly meaning: string;
  readonly min: number;
  readonly max?: number;
}

export type SettingSpec =
  | (Ranged & { readonly type: 'integer' | 'number'; readonly default: number })
  /** As many integers as in the default, separated by commas in text. */
  | (Ranged & { readonly type: 'integers'; readonly default: readonly number[] });

export type SettingSpecs = Readonly<Record<string, SettingSpec>>;

type ValueOf<Spec extends SettingSpec> = Spec extends { readonly type: 'integers' } ? readonly number[] : number;

/** The settings of an architecture with every value present. */
export type SettingsOf<Specs extends SettingSpecs> = { readonly [Name in keyof Specs]: ValueOf<Specs[Name]> };

export type SettingValue = string | number | readonly number[];

/** An unknown architecture or setting, or a value that is not allowed. */
export class ArchitectureError extends Error {
  override readonly name = 'ArchitectureError';
}

/**
 * Fills in the defaults and checks the given settings: text (`--set layers=2`) or values.
 * @throws ArchitectureError naming the setting and the allowed values
 */
export function resolveSettings(
  architecture: string,
  specs: SettingSpecs,
  given: Readonly<Record<string, SettingValue>>,
): Record<string, SettingValue> {
  const names = Object.keys(specs);
  for (const name of Object.keys(given)) {
    if (!Object.hasOwn(specs, name)) {
      throw new ArchitectureError(`${architecture} has no setting '${name}'; it has ${names.join(', ')}`);
    }
  }
  return Object.fromEntries(
    Object.entries(specs).map(([name, spec]) => {
      const value = given[name];
      return [name, value === undefined ? spec.default : readSetting(architecture, name, spec, value)];
    }),
  );
}

/** The allowed values of a setting, as the second half of a sentence. */
export function allowedValues(spec: SettingSpec): string {
  const range = spec.max === undefined ? `of at least ${spec.min}` : `from ${spec.min} to ${spec.max}`;
  if (spec.type === 'integers') return `${spec.default.length} integers ${range}, comma-separated`;
  return `${spec.type === 'number' ? 'a number' : 'an integer'} ${range}`;
}

function readSetting(architecture: string, name: string, spec: SettingSpec, value: SettingValue): SettingValue {
  const refused = (): ArchitectureError =>
    new ArchitectureError(
      `the setting '${name}' of ${architecture} is '${String(value)}', but takes ${allowedValues(spec)}`,
    );
  const parts = typeof value === 'string' ? value.split(',') : typeof value === 'number' ? [value] : value;
  const numbers = parts.map((part) => (typeof part === 'string' ? decimal(part) : part));
  for (const number of numbers) {
    const inRange = number >= spec.min && number <= (spec.max ?? Number.MAX_SAFE_INTEGER);
    if (!inRange || (spec.type !== 'number' && !Number.isSafeInteger(number))) throw refused();
  }
  if (spec.type === 'integers') {
    if (numbers.length !== spec.default.length) throw refused();
    return numbers;
  }
  const [only] = numbers;
  if (only === undefined || numbers.length !== 1) throw refused();
  return only;
}

/** NaN unless the text is a plain decimal number: '', '0x10' and '1e3' are more likely mistakes than sizes. */
function decimal(text: string): number {
  return /^\d+(\.\d+)?$/.test(text.trim()) ? Number(text) : Number.NaN;
}
