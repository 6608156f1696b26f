/**
 * Puts the host's configuration together. Later wins: defaults of the schema, host.json, environment, flags.
 */
import { dirname, resolve } from 'node:path';
import { Ajv, type ErrorObject, type ValidateFunction } from 'ajv';
import { readCores } from '../hardware/index.ts';
import { ConfigError, shown } from './config-error.ts';
import { checkFileShape, readConfigFile } from './config-file.ts';
import type { HostConfig } from './config.ts';
import { allowedText, configOptions, packageRoot, readConfigSchema, type ConfigOption } from './config-options.ts';
import { parseDurationMs, parseSizeBytes } from './config-units.ts';
import { nearest } from './store/nearest.ts';

export interface ConfigInput {
  /** By option path ("listen.port"): the text behind each flag that was given. */
  readonly flags?: Readonly<Record<string, string>>;
  readonly environment?: Readonly<Record<string, string | undefined>>;
  /** The file behind `--config`. Without it: wrangler-free-config/host.json of the working directory, else the shipped one. */
  readonly file?: string | undefined;
  readonly workingDir?: string;
  /** Cores that "auto" stands for. */
  readonly coresUsable?: number;
  /** Whether the log goes to a terminal. */
  readonly terminal?: boolean;
}

/** Where a value came from: the name to use in a message. */
export type ConfigSource =
  | { readonly kind: 'default' }
  | { readonly kind: 'file'; readonly name: string }
  | { readonly kind: 'environment'; readonly name: string }
  | { readonly kind: 'flag'; readonly name: string };

export interface LoadedConfig {
  readonly config: HostConfig;
  /** The configuration file that was read, absolute. */
  readonly file: string | undefined;
  /** Source of each option, by path. */
  readonly sources: ReadonlyMap<string, ConfigSource>;
  /** One sentence each, for example about an environment variable that looks like a typo. */
  readonly warnings: readonly string[];
}

/** Variables of this prefix that are no options of the host: the client commands' and the test suite's. */
const otherVariables: ReadonlySet<string> = new Set(['TURNTABLE_URL', 'TURNTABLE_API_KEY', 'TURNTABLE_SEED']);

interface Setting {
  readonly value: unknown;
  readonly source: ConfigSource;
  /** Folder that a relative path starts from. */
  readonly baseDir: string;
}

/** Reads, checks and merges the configuration. Throws {@link ConfigError}. */
export function loadConfig(input: ConfigInput = {}): LoadedConfig {
  const environment = input.environment ?? process.env;
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

  checkValues(settings, schema, options);
  return {
    config: assemble(settings, () => input.coresUsable ?? readCores().usable, input.terminal ?? process.stderr.isTTY),
    file: found?.file,
    sources: new Map([...settings].map(([path, { source }]) => [path, source])),
    warnings: warnOfUnknown(environment, options),
  };
}

/** Kubernetes sets SERVICE_PORT=tcp://address:port in every pod for a service of that name; it is not meant for us. */
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

/** The JSON value that a text from the environment or the command line stands for. */
function valueOfText(option: ConfigOption, text: string): unknown {
  const trimmed = text.trim();
  switch (option.kind) {
    case 'integer':
    case 'integer-or-auto':
      return /^-?\d+$/.test(trimmed) ? Number(trimmed) : trimmed;
    case 'duration':
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

/** Compiling the schema takes longer than everything else here together. */
let compiled: ValidateFunction | undefined;

function checkValues(settings: ReadonlyMap<string, Setting>, schema: object, options: readonly ConfigOption[]): void {
  const merged: Record<string, unknown> = {};
  for (const [path, { value }] of settings) setAt(merged, path, value);
  const refused = new Set<string>();
  const validate = (compiled ??= new Ajv({ strict: false, allErrors: true }).compile(schema));
  if (!validate(merged)) {
    for (const error of validate.errors ?? []) refused.add(optionPathOf(error, options));
  }
  for (const option of options) {
    const setting = settings.get(option.path);
    if (setting === undefined) continue;
    if (!refused.has(option.path) && withinRange(option, setting.value)) continue;
    throw new ConfigError(
      `${nameOf(setting.source, option)} is ${option.secret ? 'not right: it' : `${shown(setting.value)}, but`} must be ${allowedText(option)}`,
    );
  }
}

/** The schema bounds durations and sizes only where they are plain numbers, and does not know what a port may be. */
function withinRange(option: ConfigOption, value: unknown): boolean {
  if (option.path === 'redis.url') return value === 'off' || URL.canParse(String(value));
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

/** Every value has been checked: the conversions below cannot fail, and say so loudly if they ever do. */
function assemble(settings: ReadonlyMap<string, Setting>, coresUsable: () => number, terminal: boolean): HostConfig {
  const setting = (path: string): Setting => {
    const found = settings.get(path);
    if (found === undefined) throw new Error(`host.schema.json has no option "${path}"`);
    return found;
  };
  const parsed = <Value>(path: string, parse: (value: unknown) => Value | undefined): Value => {
    const value = parse(setting(path).value);
    if (value === undefined) throw new Error(`the option "${path}" was not checked`);
    return value;
  };
  const text = (path: string): string => parsed(path, (value) => (typeof value === 'string' ? value : undefined));
  const integer = (path: string): number => parsed(path, (value) => (typeof value === 'number' ? value : undefined));
  const duration = (path: string): number => parsed(path, parseDurationMs);
  const size = (path: string): number => parsed(path, parseSizeBytes);
  const folder = (path: string): string => resolve(setting(path).baseDir, text(path));
  const orAuto = (path: string, auto: () => number): number =>
    setting(path).value === 'auto' ? auto() : integer(path);
  const cores = orAuto('cpu.cores', coresUsable);
  const format = text('log.format') as 'auto' | 'json' | 'pretty';
  return {
    listen: { host: text('listen.host').replace(/^\[(.*)\]$/, '$1'), port: integer('listen.port') },
    dataDir: folder('dataDir'),
    functionsDir: folder('functionsDir'),
    apiKeys: setting('apiKeys').value as string[],
    cpu: {
      cores,
      blankInstances: integer('cpu.blankInstances'),
      instancesMax: orAuto('cpu.instancesMax', () => Math.max(4, 2 * cores)),
      threads: integer('cpu.threads'),
      idleMs: duration('cpu.idle'),
      queueMax: integer('cpu.queueMax'),
      profiling: text('cpu.profiling') as HostConfig['cpu']['profiling'],
      profilingBudgetMs: duration('cpu.profilingBudget'),
      configure: text('cpu.configure') as HostConfig['cpu']['configure'],
      objective: text('cpu.objective') as HostConfig['cpu']['objective'],
      reconfigureIntervalMs: duration('cpu.reconfigureInterval'),
    },
    gpu: {
      use: text('gpu.use') as HostConfig['gpu']['use'],
      hostBytes: text('gpu.hostMemory') === 'auto' ? undefined : size('gpu.hostMemory'),
      gpuBytes: text('gpu.memory') === 'auto' ? undefined : size('gpu.memory'),
      mode: text('gpu.mode') as HostConfig['gpu']['mode'],
      policy: text('gpu.policy') as HostConfig['gpu']['policy'],
      profileIterations: integer('gpu.profileIterations'),
      hybrid: text('gpu.hybrid') as HostConfig['gpu']['hybrid'],
      hybridCores: orAuto('gpu.hybridCores', () => Math.floor(cores / 4)),
    },
    limits: {
      bodyBytesMax: size('limits.body'),
      uploadBytesMax: size('limits.upload'),
      bodyTimeoutMs: duration('limits.bodyTimeout'),
      requestsInFlightMax: integer('limits.requestsInFlight'),
    },
    validator: { timeoutMs: duration('validator.timeout') },
    redis: { url: text('redis.url') === 'off' ? undefined : text('redis.url'), prefix: text('redis.prefix') },
    queue: {
      payloadBytesMax: size('queue.payload'),
      outstandingMax: integer('queue.outstandingMax'),
      hostUrl: text('queue.hostUrl') === 'auto' ? undefined : text('queue.hostUrl').replace(/\/+$/, ''),
    },
    async: {
      keepMs: duration('async.keep'),
      waitingMax: integer('async.waitingMax'),
      concurrency: orAuto('async.concurrency', () => 2 * cores),
      callbackAttempts: integer('async.callbackAttempts'),
      callbackBackoffMs: duration('async.callbackBackoff'),
      callbackTimeoutMs: duration('async.callbackTimeout'),
    },
    drainMs: duration('drain'),
    log: {
      level: text('log.level') as HostConfig['log']['level'],
      format: format === 'auto' ? (terminal ? 'pretty' : 'json') : format,
    },
    defaults: {
      sloMs: duration('defaults.slo'),
      handlerMs: duration('defaults.timeouts.handler'),
      loadMs: duration('defaults.timeouts.load'),
      inferMs: duration('defaults.timeouts.infer'),
    },
  };
}
