/** The options of the host, read from their only description: wrangler-free-config/host.schema.json. */
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The folder of package.json, found from src/host and from dist/host. */
export const packageRoot = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

export type OptionKind = 'text' | 'folder' | 'integer' | 'integer-or-auto' | 'duration' | 'size' | 'choice' | 'list';

/** One option of the host. */
export type ConfigOption = ReturnType<typeof optionOf>;

/** JSON Schema, as far as host.schema.json uses it. */
export interface ConfigSchema {
  readonly type?: string | readonly string[];
  readonly description?: string;
  readonly properties?: Readonly<Record<string, ConfigSchema>>;
  readonly anyOf?: readonly ConfigSchema[];
  readonly default?: unknown;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly enum?: readonly string[];
  readonly 'x-kind'?: OptionKind;
  readonly 'x-allowed'?: string;
  readonly 'x-short'?: string;
  readonly 'x-secret'?: boolean;
  /** A secret with a flag nevertheless, because it often contains no secret. */
  readonly 'x-flag'?: boolean;
}

export function readConfigSchema(): ConfigSchema {
  return JSON.parse(
    readFileSync(join(packageRoot, 'wrangler-free-config', 'host.schema.json'), 'utf8'),
  ) as ConfigSchema;
}

/** Every option of the schema, in its order. */
export function configOptions(schema: ConfigSchema = readConfigSchema()): ConfigOption[] {
  const options: ConfigOption[] = [];
  const visit = (part: ConfigSchema, path: readonly string[]): void => {
    if (part.properties !== undefined) {
      for (const [name, inner] of Object.entries(part.properties)) {
        if (name !== '$schema') visit(inner, [...path, name]);
      }
      return;
    }
    options.push(optionOf(part, path));
  };
  visit(schema, []);
  return options;
}

function optionOf(part: ConfigSchema, path: readonly string[]) {
  const words = path.flatMap((segment) => segment.split(/(?=[A-Z])/)).map((word) => word.toLowerCase());
  const short = part['x-short'] === undefined ? [] : [part['x-short']];
  const secret = part['x-secret'] === true;
  const range = part.anyOf?.find((form) => form.minimum !== undefined) ?? part;
  return {
    /** Its place in host.json: "cpu.idle". */
    path: path.join('.'),
    kind: kindOf(part),
    description: part.description ?? '',
    default: part.default,
    /** Milliseconds or bytes where the kind is a duration or a size. */
    minimum: range.minimum,
    maximum: range.maximum,
    choices: part.enum ?? [],
    /** The allowed texts or list entries, to follow "must be" in a sentence. */
    allowed: part['x-allowed'],
    /** "TURNTABLE_CPU_IDLE", and a shorter name where there is one. */
    environmentNames: [words.join('_'), ...short].map((name) => `TURNTABLE_${name.toUpperCase()}`),
    /** "--cpu-idle", shortest last; none for most secrets, since every user of a machine can read command lines. */
    flags: secret && part['x-flag'] !== true ? [] : [words.join('-'), ...short].map((name) => `--${name}`),
    /** Its value never appears in a message. */
    secret,
  };
}

function kindOf(part: ConfigSchema): OptionKind {
  if (part['x-kind'] !== undefined) return part['x-kind'];
  if (part.enum !== undefined) return 'choice';
  if (part.type === 'integer') return 'integer';
  return part.type === 'array' ? 'list' : 'text';
}

/** The allowed values of this option, to follow "must be" in a sentence. */
export function allowedText(option: ConfigOption): string {
  const range =
    option.maximum === undefined
      ? `at least ${option.minimum ?? 0}`
      : `from ${option.minimum ?? 0} to ${option.maximum}`;
  switch (option.kind) {
    case 'duration':
      return `a duration such as "250ms", "30s" or "5m", of at least ${option.minimum ?? 0} ms`;
    case 'size':
      return `a size such as "64MiB" or "10MB", of at least ${option.minimum ?? 0} bytes`;
    case 'integer':
      return `a whole number ${range}`;
    case 'integer-or-auto':
      return `"auto" or a whole number ${range}`;
    case 'choice':
      return `one of ${option.choices.map((choice) => `"${choice}"`).join(', ')}`;
    case 'folder':
      return 'the path of a folder';
    case 'list':
    case 'text':
      return option.allowed ?? 'a text that is not empty';
  }
}
