/**
 * Options and their values as a schema describes them: those of the host, from wrangler-free-config/host.schema.json, and
 * the settings of functions, from function.schema.json.
 */
import { readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { missingUnit, parseDurationMs, parseSizeBytes } from '../../tools/index.ts';

/** The folder of package.json, found from src/host and from dist/host. */
export const packageRoot = dirname(dirname(dirname(dirname(fileURLToPath(import.meta.url)))));

export type OptionKind =
  'text' | 'folder' | 'file' | 'place' | 'integer' | 'boolean' | 'duration' | 'size' | 'choice' | 'list';

/** An option of the host, or a setting of a function. */
export type ConfigOption = ReturnType<typeof optionOf>;

/** JSON Schema, as far as the two use it. */
export interface ConfigSchema {
  /** The definition of a duration or a size. */
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly description?: string;
  readonly properties?: Readonly<Record<string, ConfigSchema>>;
  /** A value, or a word in its place. */
  readonly anyOf?: readonly ConfigSchema[];
  readonly const?: string;
  readonly default?: unknown;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly pattern?: string;
  readonly enum?: readonly string[];
  readonly 'x-kind'?: OptionKind;
  readonly 'x-allowed'?: string;
  readonly 'x-short'?: string;
  readonly 'x-secret'?: boolean;
  /** A secret with a flag nevertheless, because it often contains no secret. */
  readonly 'x-flag'?: boolean;
  /** The heading in the help of `turntable serve`, of an option or of all in a section. */
  readonly 'x-group'?: string;
}

export const readConfigSchema = (
  file: 'host.schema.json' | 'function.schema.json' = 'host.schema.json',
): ConfigSchema => JSON.parse(readFileSync(join(packageRoot, 'wrangler-free-config', file), 'utf8')) as ConfigSchema;

/** Every option of the schema, in its order. */
export function configOptions(schema: ConfigSchema = readConfigSchema()): ConfigOption[] {
  const visit = (part: ConfigSchema, path: readonly string[], group = ''): ConfigOption[] => {
    const heading = part['x-group'] ?? group;
    if (part.properties === undefined) return [optionOf(part, path, heading)];
    const inner = Object.entries(part.properties).filter(([name]) => name !== '$schema');
    return inner.flatMap(([name, each]) => visit(each, [...path, name], heading));
  };
  return visit(schema, []);
}

const wordsOf = (path: readonly string[]): string[] =>
  path.flatMap((segment) => segment.split(/(?=[A-Z])/)).map((word) => word.toLowerCase());

/** `TURNTABLE_CPU_IDLE` for `cpu.idle`. */
export const environmentName = (path: readonly string[]): string =>
  `TURNTABLE_${wordsOf(path).join('_').toUpperCase()}`;

function optionOf(part: ConfigSchema, path: readonly string[], group: string) {
  const words = wordsOf(path);
  const short = part['x-short'] === undefined ? [] : [part['x-short']];
  const secret = part['x-secret'] === true;
  const [form = part] = part.anyOf ?? [];
  return {
    /** Its place in host.json: "cpu.idle". */
    path: path.join('.'),
    group,
    kind: part['x-kind'] ?? kindOf(form),
    description: part.description ?? '',
    default: part.default,
    /** Such as "auto" or "off": stands in place of a value. */
    word: part.anyOf?.find((each) => each.const !== undefined)?.const,
    /** Milliseconds or bytes where the kind is a duration or a size. */
    minimum: form.minimum,
    maximum: form.maximum,
    choices: part.enum ?? [],
    /** The allowed texts or list entries, to follow "must be" in a sentence. */
    allowed: part['x-allowed'] ?? textAllowed(form),
    /** "TURNTABLE_CPU_IDLE", and a shorter name where there is one. */
    environmentNames: [environmentName(path), ...short.map((name) => environmentName([name]))],
    /** "--cpu-idle", shortest last; none for most secrets, since every user of a machine can read command lines. */
    flags: secret && part['x-flag'] !== true ? [] : [words.join('-'), ...short].map((name) => `--${name}`),
    /** Its value never appears in a message. */
    secret,
  };
}

function kindOf({ $ref, enum: choices, type }: ConfigSchema): OptionKind {
  if ($ref !== undefined) return $ref.endsWith('duration') ? 'duration' : 'size';
  if (choices !== undefined) return 'choice';
  return type === 'integer' || type === 'boolean' ? type : type === 'array' ? 'list' : 'text';
}

function textAllowed({ minLength, maxLength, pattern }: ConfigSchema): string | undefined {
  if (maxLength !== undefined) return `text of at most ${maxLength} characters`;
  return pattern === undefined || minLength !== undefined ? undefined : `text that matches ${pattern}`;
}

const durationText = (ms: number): string => (ms >= 10_000 ? `${ms / 1000} s` : `${ms} ms`);

/** The allowed values of this option, to follow "must be" in a sentence. */
export function allowedText({ kind, word, minimum = 0, maximum, choices, allowed }: ConfigOption): string {
  if (kind === 'text' && allowed !== undefined) return allowed;
  const range = (said: (value: number) => string): string =>
    maximum === undefined ? `of at least ${said(minimum)}` : `from ${said(minimum)} to ${said(maximum)}`;
  const ifAny = (text: string): string => (minimum === 0 && maximum === undefined ? '' : `, ${text}`);
  const values: Readonly<Record<OptionKind, () => string>> = {
    duration: () => `a duration such as "250ms" or "1.5s"${ifAny(range(durationText))}`,
    size: () => `a size such as "64MiB" or "10MB"${ifAny(range((bytes) => `${bytes} bytes`))}`,
    integer: () => `a whole number ${range(String)}`,
    boolean: () => 'true or false',
    choice: () => `one of ${choices.map((choice) => `"${choice}"`).join(', ')}`,
    folder: () => 'the path of a folder',
    place: () => 'the path of a folder, "s3://BUCKET/PREFIX" or the address of a bucket',
    file: () => 'the path of a file',
    list: () => allowed ?? 'a list',
    text: () => 'text that is not empty',
  };
  return `${word === undefined ? '' : `"${word}" or `}${values[kind]()}`;
}

/** The JSON value of a text from the environment, the command line or a query. */
export function valueOfText({ kind }: ConfigOption, text: string): unknown {
  const trimmed = text.trim();
  switch (kind) {
    case 'integer':
      return /^-?\d+$/.test(trimmed) ? Number(trimmed) : trimmed;
    case 'duration':
      // The schema wants a unit of text; 0 needs none.
      return /^0+(\.0*)?$/.test(trimmed) ? 0 : trimmed;
    case 'size':
      return /^\d+(\.\d+)?$/.test(trimmed) ? Number(trimmed) : trimmed;
    case 'boolean':
      return trimmed === 'true' || trimmed === 'false' ? trimmed === 'true' : trimmed;
    case 'list':
      return trimmed.split(/\s*,\s*/).filter((part) => part !== '');
    case 'choice':
    case 'text':
    case 'folder':
    case 'file':
    case 'place':
      return trimmed;
  }
}

/**
 * What a value of the schema means to the host: milliseconds, bytes, an absolute path; undefined where the option's word
 * stands there.
 *
 * @param baseDir of relative paths
 */
export function meaningOf({ kind, word }: ConfigOption, value: unknown, baseDir: string): unknown {
  if (word !== undefined && value === word) return undefined;
  switch (kind) {
    case 'duration':
      return parseDurationMs(value);
    case 'size':
      return parseSizeBytes(value);
    case 'folder':
    case 'file':
      return resolve(baseDir, String(value));
    case 'place':
      return String(value).includes('://') ? value : resolve(baseDir, String(value));
    case 'integer':
    case 'boolean':
    case 'choice':
    case 'list':
    case 'text':
      return value;
  }
}

/** A schema bounds durations and sizes only where they are plain numbers; the same bounds hold for their text. */
export const isWithinRange = ({ kind, minimum = 0, maximum }: ConfigOption, meaning: unknown): boolean =>
  (kind !== 'duration' && kind !== 'size') ||
  meaning === undefined ||
  (Number(meaning) >= minimum && Number(meaning) <= (maximum ?? Number.MAX_SAFE_INTEGER));

/** What a value must be instead, with the unit that it may lack. */
export function wantedInstead(option: ConfigOption, value: unknown): string {
  const unit = option.kind === 'duration' ? missingUnit(value) : undefined;
  return `must be ${allowedText(option)}${unit === undefined ? '' : `; ${unit}`}`;
}
