/** The host's configuration of settings that have been checked: durations in milliseconds, sizes in bytes. */
import { resolve } from 'node:path';
import { defaultFunctionsBytes, parseTopology, readMemory } from '../hardware/index.ts';
import { parseDurationMs, parseSizeBytes } from '../tools/index.ts';
import { defaultDataDir, formerDataDir } from './config-data-dir.ts';
import { ConfigError } from './config-error.ts';
import { packageRoot } from './config-options.ts';
import type { HostConfig } from './config.ts';

/** Where a value came from: the name to use in a message. */
export type ConfigSource =
  | { readonly kind: 'default' }
  | { readonly kind: 'file'; readonly name: string }
  | { readonly kind: 'environment'; readonly name: string }
  | { readonly kind: 'flag'; readonly name: string };

export interface Setting {
  readonly value: unknown;
  readonly source: ConfigSource;
  /** Folder that a relative path starts from. */
  readonly baseDir: string;
}

type Environment = Readonly<Record<string, string | undefined>>;

/** What each option is, by its path. A value that was not checked fails loudly. */
function readerOf(settings: ReadonlyMap<string, Setting>) {
  const raw = (path: string): Setting => {
    const found = settings.get(path);
    if (found === undefined) throw new Error(`host.schema.json has no option "${path}"`);
    return found;
  };
  const parsed = <Value>(path: string, parse: (value: unknown) => Value | undefined): Value => {
    const value = parse(raw(path).value);
    if (value === undefined) throw new Error(`the option "${path}" was not checked`);
    return value;
  };
  const text = (path: string): string => parsed(path, (value) => (typeof value === 'string' ? value : undefined));
  const integer = (path: string): number => parsed(path, (value) => (typeof value === 'number' ? value : undefined));
  const folder = (path: string): string => resolve(raw(path).baseDir, text(path));
  return {
    raw,
    text,
    integer,
    folder,
    list: (path: string): readonly string[] => raw(path).value as string[],
    duration: (path: string): number => parsed(path, parseDurationMs),
    size: (path: string): number => parsed(path, parseSizeBytes),
    fileOrOff: (path: string): string | undefined => (text(path) === 'off' ? undefined : folder(path)),
    orAuto: (path: string, auto: () => number): number => (raw(path).value === 'auto' ? auto() : integer(path)),
  };
}

type Reader = ReturnType<typeof readerOf>;

export function assemble(
  settings: ReadonlyMap<string, Setting>,
  environment: Environment,
  coresUsable: () => number,
  terminal: boolean,
): HostConfig {
  const read = readerOf(settings);
  const { text, integer, list, duration, size, folder, fileOrOff, orAuto, raw } = read;
  const cores = orAuto('cpu.cores', coresUsable);
  const isDataAuto = raw('dataDir').value === 'auto';
  const format = text('log.format') as 'auto' | 'json' | 'pretty';
  return {
    listen: {
      host: text('listen.host').replace(/^\[(.*)\]$/, '$1'),
      port: integer('listen.port'),
      tls: { certFile: fileOrOff('listen.tlsCert'), keyFile: fileOrOff('listen.tlsKey') },
    },
    grpc: grpcPort(String(raw('grpc.port').value), integer('listen.port')),
    dataDir: isDataAuto ? defaultDataDir(packageRoot, environment) : folder('dataDir'),
    dataDirBefore: isDataAuto ? formerDataDir(packageRoot) : undefined,
    healFrom: {
      hostUrls: list('healFrom').map((url) => url.replace(/\/+$/, '')),
      apiKey: environment['TURNTABLE_API_KEY'] || undefined,
    },
    functionsDir: folder('functionsDir'),
    apiKeys: list('apiKeys'),
    apiKeysFor: raw('apiKeysFor').value as HostConfig['apiKeysFor'],
    rate: { perKey: integer('rate.perKey'), perAddress: integer('rate.perAddress') },
    cors: { origins: list('cors.origins') },
    unloaded: text('unloaded') as HostConfig['unloaded'],
    cpu: cpuOf(read, cores),
    admission: text('admission') as HostConfig['admission'],
    gpu: gpuOf(read, cores),
    limits: limitsOf(read),
    validator: { timeoutMs: duration('validator.timeout') },
    redis: { url: text('redis.url') === 'off' ? undefined : text('redis.url'), prefix: text('redis.prefix') },
    queue: {
      payloadBytesMax: size('queue.payload'),
      outstandingMax: integer('queue.outstandingMax'),
      hostUrl: text('queue.hostUrl') === 'auto' ? undefined : text('queue.hostUrl').replace(/\/+$/, ''),
    },
    fleet: fleetOf(read, environment),
    async: asyncCallsOf(read, cores),
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

function cpuOf(read: Reader, cores: number): HostConfig['cpu'] {
  const { text, integer, duration, size } = read;
  return {
    cores,
    blankInstances: integer('cpu.blankInstances'),
    memoryBytes: text('cpu.memory') === 'auto' ? defaultFunctionsBytes() : size('cpu.memory'),
    modelNetwork: text('cpu.modelNetwork') as HostConfig['cpu']['modelNetwork'],
    threads: integer('cpu.threads'),
    idleMs: duration('cpu.idle'),
    queueMax: integer('cpu.queueMax'),
    profiling: text('cpu.profiling') as HostConfig['cpu']['profiling'],
    profilingBudgetMs: duration('cpu.profilingBudget'),
    configure: text('cpu.configure') as HostConfig['cpu']['configure'],
    objective: text('cpu.objective') as HostConfig['cpu']['objective'],
    reconfigureIntervalMs: duration('cpu.reconfigureInterval'),
  };
}

function gpuOf(read: Reader, cores: number): HostConfig['gpu'] {
  const { text, integer, size, orAuto } = read;
  return {
    use: text('gpu.use') as HostConfig['gpu']['use'],
    hostBytes: text('gpu.hostMemory') === 'auto' ? undefined : size('gpu.hostMemory'),
    gpuBytes: text('gpu.memory') === 'auto' ? undefined : size('gpu.memory'),
    mode: text('gpu.mode') as HostConfig['gpu']['mode'],
    policy: text('gpu.policy') as HostConfig['gpu']['policy'],
    topology: text('gpu.topology') === 'measured' ? undefined : parseTopology(text('gpu.topology')),
    policyParts: policyParts((part) => text(`gpu.${part}`)),
    profileIterations: integer('gpu.profileIterations'),
    recheckEvery: integer('gpu.recheckEvery'),
    precision: text('gpu.precision') as HostConfig['gpu']['precision'],
    hybrid: text('gpu.hybrid') as HostConfig['gpu']['hybrid'],
    hybridCores: orAuto('gpu.hybridCores', () => Math.floor(cores / 4)),
  };
}

function limitsOf(read: Reader): HostConfig['limits'] {
  const { text, integer, duration, size } = read;
  return {
    bodyBytesMax: size('limits.body'),
    replyBytesMax: size('limits.reply'),
    inFlightBytesMax:
      text('limits.inFlight') === 'auto'
        ? Math.max(128 * 2 ** 20, Math.floor(memoryBytes() / 8))
        : size('limits.inFlight'),
    uploadBytesMax: size('limits.upload'),
    bodyTimeoutMs: duration('limits.bodyTimeout'),
    requestsInFlightMax: integer('limits.requestsInFlight'),
  };
}

function fleetOf(read: Reader, environment: Environment): NonNullable<HostConfig['fleet']> {
  const { text, integer, size, fileOrOff, raw } = read;
  return {
    name: text('fleet.name') === 'off' ? undefined : text('fleet.name'),
    secret: text('fleet.secret') || undefined,
    secretFile: fileOrOff('fleet.secretFile'),
    advertise: text('fleet.advertise') === 'auto' ? undefined : text('fleet.advertise').replace(/\/+$/, ''),
    caFile: fileOrOff('fleet.caFile'),
    cacheBytes: text('fleet.cache') === 'off' ? undefined : size('fleet.cache'),
    bucket: bucketOf(text('fleet.bucket'), environment),
    bucketRegion: text('fleet.bucketRegion'),
    protocol: raw('fleet.protocol').value === 'auto' ? undefined : integer('fleet.protocol'),
  };
}

function asyncCallsOf(read: Reader, cores: number): HostConfig['async'] {
  const { text, integer, list, duration, orAuto } = read;
  return {
    keepMs: duration('async.keep'),
    waitingMax: integer('async.waitingMax'),
    concurrency: orAuto('async.concurrency', () => 2 * cores),
    callbackAttempts: integer('async.callbackAttempts'),
    callbackBackoffMs: duration('async.callbackBackoff'),
    callbackTimeoutMs: duration('async.callbackTimeout'),
    callbackAllow: list('async.callbackAllow'),
    callbackSecret: text('async.callbackSecret') === '' ? undefined : text('async.callbackSecret'),
  };
}

/** What this process may fill in all. */
function memoryBytes(): number {
  const { limitBytes, totalBytes } = readMemory();
  return limitBytes ?? totalBytes;
}

/** @throws ConfigError where the keys are missing */
function bucketOf(address: string, environment: Environment): NonNullable<HostConfig['fleet']>['bucket'] {
  if (address === 'off') return undefined;
  const { AWS_ACCESS_KEY_ID: accessKeyId, AWS_SECRET_ACCESS_KEY: secretAccessKey } = environment;
  if (!accessKeyId || !secretAccessKey) {
    throw new ConfigError('"fleet.bucket" needs its keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY');
  }
  const sessionToken = environment['AWS_SESSION_TOKEN'] || undefined;
  return { url: address.replace(/\/+$/, ''), accessKeyId, secretAccessKey, sessionToken };
}

/** A host on a port of its choice has no neighbour port to take. */
function grpcPort(asked: string, httpPort: number): HostConfig['grpc'] {
  if (asked === 'auto') return { port: httpPort === 0 || httpPort === 65_535 ? 'off' : httpPort + 1, isAuto: true };
  return { port: asked === 'off' ? 'off' : Number(asked), isAuto: false };
}

const partNames = ['routing', 'eviction', 'offload', 'order'] as const;

/** Those that are not left to the policy. The schema has checked them. */
function policyParts(read: (part: (typeof partNames)[number]) => string): HostConfig['gpu']['policyParts'] {
  const given = partNames.map((part) => [part, read(part)] as const).filter(([, value]) => value !== 'policy');
  return Object.fromEntries(given);
}
