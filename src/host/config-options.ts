/** The options of the host, read from the one place that describes them: wrangler-free-config/host.schema.json. */
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The folder of package.json, from src/host as from dist/host. */
export const packageRoot = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

export type OptionKind = 'text' | 'folder' | 'integer' | 'integer-or-auto' | 'duration' | 'size' | 'choice' | 'list';

/** One option of the host. */
export interface ConfigOption {
  /** Where it stands in host.json: "cpu.idle". */
  readonly path: string;
  readonly kind: OptionKind;
  readonly description: string;
  readonly default: unknown;
  /** Milliseconds or bytes where the kind is a duration or a size. */
  readonly minimum: number | undefined;
  readonly maximum: number | undefined;
  readonly choices: readonly string[];
  /** "TURNTABLE_CPU_IDLE", and a shorter name where there is one. */
  readonly environmentNames: readonly string[];
  /** "--cpu-idle", shortest last; none for most secrets, since every user of a machine can read command lines. */
  readonly flags: readonly string[];
  /** Its value never stands in a message. */
  readonly secret: boolean;
}

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
  readonly 'x-short'?: string;
  readonly 'x-secret'?: boolean;
  /** A secret that has a flag all the same, because it often holds none. */
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

function optionOf(part: ConfigSchema, path: readonly string[]): ConfigOption {
  const words = path.flatMap((segment) => segment.split(/(?=[A-Z])/)).map((word) => word.toLowerCase());
  const short = part['x-short'] === undefined ? [] : [part['x-short']];
  const secret = part['x-secret'] === true;
  const range = part.anyOf?.find((form) => form.minimum !== undefined) ?? part;
  return {
    path: path.join('.'),
    kind: kindOf(part),
    description: part.description ?? '',
    default: part.default,
    minimum: range.minimum,
    maximum: range.maximum,
    choices: part.enum ?? [],
    environmentNames: [words.join('_'), ...short].map((name) => `TURNTABLE_${name.toUpperCase()}`),
    flags: secret && part['x-flag'] !== true ? [] : [words.join('-'), ...short].map((name) => `--${name}`),
    secret,
  };
}

function kindOf(part: ConfigSchema): OptionKind {
  if (part['x-kind'] !== undefined) return part['x-kind'];
  if (part.enum !== undefined) return 'choice';
  if (part.type === 'integer') return 'integer';
  return part.type === 'array' ? 'list' : 'text';
}

const textForms: Readonly<Record<string, string>> = {
  'redis.url':
    '"off" or an address such as "redis://127.0.0.1:6379", with a database "redis://127.0.0.1:6379/2", or ' +
    '"unix:///run/redis.sock" ("unix:///run/redis.sock?db=2")',
  'redis.prefix': 'at most 64 letters, digits, dots, dashes and underscores',
  'grpc.port': '"auto", "off", or a port from 0 to 65535',
  'cpu.memory': '"auto" or a size such as "16GiB"',
  'gpu.hostMemory': '"auto" or a size such as "16GiB"',
  'gpu.memory': '"auto" or a size such as "16GiB"',
  'gpu.topology': '"measured", or GPUs that share a switch and GPUs with NVLink, such as "0+1 2+3 0=2 1=3"',
  'limits.inFlight': '"auto" or a size such as "512MiB"',
  'fleet.name': '"off" or at most 64 letters, digits, dots, dashes and underscores',
  'fleet.secret': 'a text of at least 16 characters',
  'fleet.secretFile': '"off" or the path of a file',
  'fleet.caFile': '"off" or the path of a file',
  'fleet.cache': '"off" or a size such as "200GiB"',
  'fleet.bucket': '"off" or an address with a name such as "https://s3.example.org/models"',
  'fleet.bucketRegion': 'lower-case letters, digits and dashes, such as "eu-central-1"',
  'fleet.advertise': '"auto" or an address such as "http://10.0.0.5:8000"',
  'queue.hostUrl': '"auto" or an address such as "http://10.0.0.5:8000"',
};

const listForms: Readonly<Record<string, string>> = {
  apiKeys:
    'a list of different keys: entries that `turntable key` makes, or plain keys of at least 8 printable characters without ' +
    'spaces and commas',
  healFrom: 'a list of addresses such as "http://10.0.0.6:8000"',
  apiKeysFor: 'a list of "publish", "invoke" and "read"',
};

/** What a value of this option may be, to follow "must be" in a sentence. */
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
    case 'list':
      return listForms[option.path] ?? 'a list of origins such as "https://app.example.com", or "*"';
    case 'folder':
      return 'the path of a folder';
    case 'text':
      return textForms[option.path] ?? 'a text that is not empty';
  }
}
