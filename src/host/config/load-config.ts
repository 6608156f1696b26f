/** Loads the host's configuration. Later sources win: defaults of the schema, host.json, environment, flags. */
import { existsSync } from 'node:fs';
import { dirname } from 'node:path';
import { readCores, readMemory, schemaErrors } from '../../hardware/index.ts';
import { ConfigError, shown } from './config-error.ts';
import { checkFileShape, formerOptions, readConfigFile } from './config-file.ts';
import { isLoopback } from './listen.ts';
import { assemble, type HostConfig } from './config.ts';
import {
  configOptions,
  environmentName,
  isWithinRange,
  meaningOf,
  packageRoot,
  readConfigSchema,
  valueOfText,
  wantedInstead,
  type ConfigOption,
} from './options.ts';
import { formatBytes, isNetwork } from '../../tools/index.ts';
import { callbackAllowProblem, parseRedisUrl } from '../../queue/index.ts';
import { apiKeysProblem, parseApiKeys } from '../access/api-keys.ts';
import { nearest } from './nearest.ts';

export interface ConfigInput {
  /** The text of each given flag, by option path ("listen.port"). */
  readonly flags?: Readonly<Record<string, string>>;
  readonly environment?: Readonly<Record<string, string | undefined>>;
  /** The file of `--config`; else wrangler-free-config/host.json of the working directory, or the shipped one. */
  readonly file?: string | undefined;
  readonly workingDir?: string;
  /** The cores that this process may use. */
  readonly coresUsable?: number;
  /** The memory that this process may use. */
  readonly memoryBytes?: number;
  /** Whether the log goes to a terminal. */
  readonly terminal?: boolean;
}

export interface LoadedConfig {
  readonly config: HostConfig;
  /** The configuration file that was read, absolute. */
  readonly file: string | undefined;
  /** One sentence each, for example about an environment variable that looks like a typo. */
  readonly warnings: readonly string[];
}

interface Setting {
  readonly value: unknown;
  /** What to call it in a message: a variable, a flag, or a file and its field. */
  readonly name: string;
  /** Folder that relative paths start from. */
  readonly baseDir: string;
}

/** Variables with the host's prefix that are no options of it: those of client commands and the test suite. */
const otherVariables: ReadonlySet<string> = new Set(['TURNTABLE_URL', 'TURNTABLE_API_KEY', 'TURNTABLE_SEED']);

/**
 * TURNTABLE_URL says where the commands find the host. If that is this machine, the host listens there too, unless
 * another variable says otherwise.
 */
function withPortOfUrl(environment: Readonly<Record<string, string | undefined>>): typeof environment {
  const { TURNTABLE_URL: url, TURNTABLE_PORT: port = environment['TURNTABLE_LISTEN_PORT'] } = environment;
  if (url === undefined || port !== undefined || !URL.canParse(url)) return environment;
  const parsed = new URL(url);
  if (!isLoopback(parsed.hostname) || parsed.port === '') return environment;
  return { ...environment, TURNTABLE_PORT: parsed.port };
}

/** Reads, checks and merges the configuration. Throws {@link ConfigError}. */
export function loadConfig(input: ConfigInput = {}): LoadedConfig {
  const environment = withPortOfUrl(input.environment ?? process.env);
  const workingDir = input.workingDir ?? process.cwd();
  const schema = readConfigSchema();
  const options = configOptions(schema);
  const settings = new Map<string, Setting>(
    options.map(({ path, default: value }) => [
      path,
      { value, name: `the default of "${path}"`, baseDir: packageRoot },
    ]),
  );

  const found = readConfigFile(input.file, workingDir);
  if (found !== undefined) {
    const { file, json } = found;
    checkFileShape(json, file, schema, options);
    for (const { path } of options) {
      const value = valueAt(json, path);
      if (value !== undefined) settings.set(path, { value, name: `${file}: "${path}"`, baseDir: dirname(file) });
    }
  }

  const setFromText = (option: ConfigOption, name: string, text: string): void =>
    void settings.set(option.path, { value: valueOfText(option, text), name, baseDir: workingDir });
  for (const option of options) {
    const [name, other] = option.environmentNames.filter((each) => isGiven(each, environment[each]));
    if (name === undefined) continue;
    if (other !== undefined && environment[name] !== environment[other]) {
      throw new ConfigError(`${name} and ${other} name the same option, but have different values`);
    }
    setFromText(option, name, environment[name]!);
  }
  for (const [path, instead] of Object.entries(formerOptions)) {
    const name = environmentName(path.split('.'));
    if (isGiven(name, environment[name])) throw new ConfigError(instead!(name));
  }
  for (const [path, text] of Object.entries(input.flags ?? {})) {
    const option = options.find((candidate) => candidate.path === path);
    const name = option?.flags.at(-1);
    if (option === undefined || name === undefined) throw new ConfigError(`there is no flag for the option '${path}'`);
    setFromText(option, name, text);
  }

  const values = meanings(settings, options);
  const { coresUsable = readCores().usable, memoryBytes = readMemory().ownBytes } = input;
  const config = assemble(values, environment, { coresUsable, memoryBytes }, input.terminal ?? process.stderr.isTTY);
  return {
    config,
    file: found?.file,
    warnings: [
      ...warnOfUnknown(environment, options),
      ...warnOfNoFolder(settings.get('functionsDir'), config.functionsDir),
      ...warnOfPlainKeys(settings.get('apiKeys')),
      ...warnOfCores(settings.get('cpu.cores')?.value, coresUsable),
      ...(config.memory.warning === undefined ? [] : [config.memory.warning]),
      ...warnOfBodies(settings, options, config.limits),
    ],
  };
}

/** A host of little memory has a default of less in flight than one body may have: that is no choice of its operator. */
function warnOfBodies(
  settings: ReadonlyMap<string, Setting>,
  options: readonly ConfigOption[],
  { bodyBytesMax, inFlightBytesMax }: HostConfig['limits'],
): string[] {
  const isUsual = options
    .filter(({ path }) => path === 'limits.body' || path === 'limits.inFlight')
    .every((option) => settings.get(option.path)?.value === option.default);
  if (isUsual || bodyBytesMax <= inFlightBytesMax) return [];
  const [body, most] = [bodyBytesMax, inFlightBytesMax].map(formatBytes);
  return [`limits.body allows ${body}, and a body over ${most} never fits in limits.inFlight`];
}

/**
 * Kubernetes sets SERVICE_PORT=tcp://address:port in every pod for a service of that name; that is no setting of ours.
 */
function isGiven(name: string, text: string | undefined): boolean {
  return text !== undefined && text !== '' && !(name === 'TURNTABLE_PORT' && /^(tcp|udp|sctp):\/\//.test(text));
}

function warnOfUnknown(
  environment: Readonly<Record<string, string | undefined>>,
  options: readonly ConfigOption[],
): string[] {
  const known = options.flatMap((option) => option.environmentNames);
  const warnings: string[] = [];
  for (const name of Object.keys(environment)) {
    if (!name.startsWith('TURNTABLE_') || known.includes(name) || otherVariables.has(name)) continue;
    const meant = nearest(
      name.slice('TURNTABLE_'.length),
      known.map((variable) => variable.slice('TURNTABLE_'.length)),
    );
    if (meant === undefined) continue;
    warnings.push(`the environment variable ${name} is no option and is ignored (did you mean TURNTABLE_${meant}?)`);
  }
  return warnings;
}

function warnOfCores(asked: unknown, coresUsable: number): string[] {
  if (typeof asked !== 'number' || asked <= coresUsable) return [];
  return [
    `cpu.cores is ${asked}, but CPU affinity and the control group's quota leave this process ${coresUsable}: ` +
      `functions share ${coresUsable}`,
  ];
}

/** The default folder need not be there: an installed package may serve uploads alone. */
function warnOfNoFolder(setting: Setting | undefined, folder: string): string[] {
  if (setting === undefined || setting.name.startsWith('the default') || existsSync(folder)) return [];
  return [`${setting.name} names the folder ${folder}, which is not there: no functions come from it`];
}

function warnOfPlainKeys(keys: Setting | undefined): string[] {
  const plain = parseApiKeys((keys?.value ?? []) as string[]).filter(({ isPlain }) => isPlain).length;
  if (plain === 0) return [];
  const have = plain === 1 ? 'one of the API keys is' : `${plain} of the API keys are`;
  return [
    `${have} configured as plain text, with all scopes; \`turntable key --from-stdin\` makes the entry to put ` +
      'in its place',
  ];
}

const errorsOf = schemaErrors('host.schema.json');

/** What the checked settings mean, by path. @throws ConfigError */
function meanings(
  settings: ReadonlyMap<string, Setting>,
  options: readonly ConfigOption[],
): ReadonlyMap<string, unknown> {
  const merged: Record<string, unknown> = {};
  for (const [path, { value }] of settings) setAt(merged, path, value);
  const refused = errorsOf(merged).map(({ instancePath }) => `${instancePath.slice(1).replaceAll('/', '.')}.`);
  return new Map(
    options.map((option) => {
      const { value, name, baseDir } = settings.get(option.path)!;
      const meaning = meaningOf(option, value, baseDir);
      const isRefused = refused.some((path) => path.startsWith(`${option.path}.`));
      if (isRefused || !isWithinRange(option, meaning) || unschemed[option.path]?.(value) === false) {
        throw new ConfigError(problemText(option, name, value));
      }
      return [option.path, meaning];
    }),
  );
}

/** Whether values are right in what no schema can say. */
const unschemed: Readonly<Record<string, (value: unknown) => boolean>> = {
  apiKeys: (value) => apiKeysProblem(value as string[]) === undefined,
  'redis.url': (value) => value === 'off' || parseRedisUrl(String(value)) !== undefined,
  trustedProxies: (value) => (value as string[]).every(isNetwork),
  'async.callbackAllow': (value) => (value as string[]).every((entry) => callbackAllowProblem(entry) === undefined),
};

/** One sentence. A secret is not shown. */
function problemText(option: ConfigOption, name: string, value: unknown): string {
  const isKeys = option.path === 'apiKeys' && Array.isArray(value) && value.every((each) => typeof each === 'string');
  const about = isKeys ? apiKeysProblem(value) : undefined;
  const wrong = option.secret ? `not right${about === undefined ? '' : ` (${about})`}: it` : `${shown(value)}, but`;
  return `${name} is ${wrong} ${wantedInstead(option, value)}`;
}

function valueAt(json: unknown, path: string): unknown {
  let part = json;
  for (const segment of path.split('.')) {
    if (typeof part !== 'object' || part === null || !Object.hasOwn(part, segment)) return undefined;
    part = (part as Record<string, unknown>)[segment];
  }
  return part;
}

function setAt(target: Record<string, unknown>, path: string, value: unknown): void {
  const segments = path.split('.');
  const last = segments.pop();
  if (last === undefined) return;
  let part = target;
  for (const segment of segments) part = (part[segment] ??= {}) as Record<string, unknown>;
  part[last] = value;
}
