/** Loads the host's configuration. Later sources win: defaults of the schema, host.json, environment, flags. */
import { dirname } from 'node:path';
import type { ErrorObject } from 'ajv';
import { readCores, readMemory, schemaErrors } from '../hardware/index.ts';
import { assemble, type ConfigSource, type Setting } from './config-assemble.ts';
import { ConfigError, shown } from './config-error.ts';
import { checkFileShape, readConfigFile } from './config-file.ts';
import { isLoopback } from './config-listen.ts';
import type { HostConfig } from './config.ts';
import { allowedText, configOptions, packageRoot, readConfigSchema, type ConfigOption } from './config-options.ts';
import { formatBytes, isNetwork, missingUnit, parseDurationMs, parseSizeBytes } from '../tools/index.ts';
import { callbackAllowProblem } from '../queue/index.ts';
import { apiKeysProblem, parseApiKeys } from './api-keys.ts';
import { nearest } from './store/nearest.ts';

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

export type { ConfigSource };

export interface LoadedConfig {
  readonly config: HostConfig;
  /** The configuration file that was read, absolute. */
  readonly file: string | undefined;
  /** Source of each option, by path. */
  readonly sources: ReadonlyMap<string, ConfigSource>;
  /** One sentence each, for example about an environment variable that looks like a typo. */
  readonly warnings: readonly string[];
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
    options.map((option) => [
      option.path,
      { value: option.default, source: { kind: 'default' }, baseDir: packageRoot },
    ]),
  );

  const found = readConfigFile(input.file, workingDir);
  if (found !== undefined) {
    const { file, json } = found;
    checkFileShape(json, file, schema, options);
    for (const option of options) {
      const value = valueAt(json, option.path);
      const source: ConfigSource = { kind: 'file', name: file };
      if (value !== undefined) settings.set(option.path, { value, source, baseDir: dirname(file) });
    }
  }

  for (const option of options) {
    const given = option.environmentNames.filter((name) => isGiven(name, environment[name]));
    const [name, other] = given;
    if (name === undefined) continue;
    if (other !== undefined && environment[name] !== environment[other]) {
      throw new ConfigError(`${name} and ${other} name the same option, but have different values`);
    }
    const value = valueOfText(option, environment[name] ?? '');
    settings.set(option.path, { value, source: { kind: 'environment', name }, baseDir: workingDir });
  }

  for (const [path, text] of Object.entries(input.flags ?? {})) {
    const option = options.find((candidate) => candidate.path === path);
    const name = option?.flags.at(-1);
    if (option === undefined || name === undefined) throw new ConfigError(`there is no flag for the option '${path}'`);
    settings.set(path, { value: valueOfText(option, text), source: { kind: 'flag', name }, baseDir: workingDir });
  }

  checkValues(settings, options);
  const { coresUsable = readCores().usable, memoryBytes = readMemory().ownBytes } = input;
  const config = assemble(settings, environment, { coresUsable, memoryBytes }, input.terminal ?? process.stderr.isTTY);
  return {
    config,
    file: found?.file,
    sources: new Map([...settings].map(([path, { source }]) => [path, source])),
    warnings: [
      ...warnOfUnknown(environment, options),
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

function warnOfPlainKeys(keys: Setting | undefined): string[] {
  const plain = parseApiKeys((keys?.value ?? []) as string[]).filter(({ isPlain }) => isPlain).length;
  if (plain === 0) return [];
  const have = plain === 1 ? 'one of the API keys is' : `${plain} of the API keys are`;
  return [
    `${have} configured as plain text, with all scopes; \`turntable key --from-stdin\` makes the entry to put ` +
      'in its place',
  ];
}

/** Describes what is wrong with a secret without showing it. */
function problemOf({ path }: ConfigOption, value: unknown): string {
  const isList = path === 'apiKeys' && Array.isArray(value) && value.every((each) => typeof each === 'string');
  const problem = isList ? apiKeysProblem(value) : undefined;
  return problem === undefined ? '' : ` (${problem})`;
}

/** The JSON value of a text from the environment or the command line. */
function valueOfText(option: ConfigOption, text: string): unknown {
  const trimmed = text.trim();
  switch (option.kind) {
    case 'integer':
    case 'integer-or-auto':
      return /^-?\d+$/.test(trimmed) ? Number(trimmed) : trimmed;
    case 'duration':
      // The schema wants a unit of text; 0 needs none.
      return Number(trimmed) === 0 ? 0 : trimmed;
    case 'size':
      return /^\d+(\.\d+)?$/.test(trimmed) ? Number(trimmed) : trimmed;
    case 'list':
      return trimmed
        .split(',')
        .map((part) => part.trim())
        .filter((part) => part !== '');
    case 'choice':
    case 'text':
    case 'folder':
      return trimmed;
  }
}

const errorsOf = schemaErrors('host.schema.json');

function checkValues(settings: ReadonlyMap<string, Setting>, options: readonly ConfigOption[]): void {
  const merged: Record<string, unknown> = {};
  for (const [path, { value }] of settings) setAt(merged, path, value);
  const refused = new Set(errorsOf(merged).map((error) => optionPathOf(error, options)));
  for (const option of options) {
    const setting = settings.get(option.path);
    if (setting === undefined) continue;
    if (!refused.has(option.path) && withinRange(option, setting.value)) continue;
    throw new ConfigError(
      `${nameOf(setting.source, option)} is ` +
        (option.secret ? `not right${problemOf(option, setting.value)}: it` : `${shown(setting.value)}, but`) +
        ` must be ${allowedText(option)}${unitAsked(option, setting.value)}`,
    );
  }
}

function unitAsked({ kind }: ConfigOption, value: unknown): string {
  const asked = kind === 'duration' ? missingUnit(value) : undefined;
  return asked === undefined ? '' : `; ${asked}`;
}

/** The schema bounds durations and sizes only if they are plain numbers, and does not check ports. */
function withinRange(option: ConfigOption, value: unknown): boolean {
  if (option.path === 'grpc.port') return !(Number(value) > 65_535);
  if (option.path === 'apiKeys') return apiKeysProblem(value as string[]) === undefined;
  if (option.path === 'redis.url') return value === 'off' || URL.canParse(String(value));
  if (option.path === 'trustedProxies') return (value as string[]).every(isNetwork);
  if (option.path === 'async.callbackAllow') {
    return (value as string[]).every((entry) => callbackAllowProblem(entry) === undefined);
  }
  if (option.kind !== 'duration' && option.kind !== 'size') return true;
  const parsed = option.kind === 'duration' ? parseDurationMs(value) : parseSizeBytes(value);
  return parsed !== undefined && parsed >= (option.minimum ?? 0) && parsed <= Number.MAX_SAFE_INTEGER;
}

function optionPathOf(error: ErrorObject, options: readonly ConfigOption[]): string {
  const path = error.instancePath.slice(1).split('/').join('.');
  return options.find((option) => path === option.path || path.startsWith(`${option.path}.`))?.path ?? path;
}

function nameOf(source: ConfigSource, option: ConfigOption): string {
  switch (source.kind) {
    case 'default':
      return `the default of "${option.path}"`;
    case 'file':
      return `${source.name}: "${option.path}"`;
    case 'environment':
    case 'flag':
      return source.name;
  }
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
