/** Builds the host's configuration from checked settings: durations in milliseconds, sizes in bytes. */
import { resolve } from 'node:path';
import type { BucketOptions } from '../fleet/index.ts';
import {
  connectionsMax,
  divideMemory,
  hasGpuDriver,
  inFlightBytes,
  parseTopology,
  type GivenMemory,
  type MemoryBudget,
} from '../hardware/index.ts';
import { coldStartModes } from '../plan/index.ts';
import { policyChoices, policyNames, type Policy } from '../schedule/index.ts';
import { parseDurationMs, parseSizeBytes } from '../tools/index.ts';
import { defaultDataDir, formerDataDir } from './config-data-dir.ts';
import { ConfigError } from './config-error.ts';
import { packageRoot } from './config-options.ts';
import type { Scope } from './api-keys.ts';

/** The source of a value: the name to use in a message. */
export type ConfigSource =
  | { readonly kind: 'default' }
  | { readonly kind: 'file'; readonly name: string }
  | { readonly kind: 'environment'; readonly name: string }
  | { readonly kind: 'flag'; readonly name: string };

export interface Setting {
  readonly value: unknown;
  readonly source: ConfigSource;
  /** Folder that relative paths start from. */
  readonly baseDir: string;
}

/** What this process may use of its machine. */
export interface HereLimits {
  readonly coresUsable: number;
  readonly memoryBytes: number;
}

type Environment = Readonly<Record<string, string | undefined>>;

/** Reads options by their path. A value that was not checked throws. */
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
    choice: <Choice extends string>(path: string, ...choices: readonly Choice[]): Choice =>
      parsed(path, (value) => choices.find((choice) => choice === value)),
    list: (path: string): readonly string[] => raw(path).value as string[],
    duration: (path: string): number => parsed(path, parseDurationMs),
    size: (path: string): number => parsed(path, parseSizeBytes),
    fileOrOff: (path: string): string | undefined => (text(path) === 'off' ? undefined : folder(path)),
    orAuto: (path: string, auto: () => number): number => (raw(path).value === 'auto' ? auto() : integer(path)),
  };
}

type Reader = ReturnType<typeof readerOf>;

/** The schema describes what the options mean; comments here only add to it. */
export function assemble(
  settings: ReadonlyMap<string, Setting>,
  environment: Environment,
  { coresUsable, memoryBytes }: HereLimits,
  terminal: boolean,
) {
  const read = readerOf(settings);
  const { text, choice, integer, list, duration, size, folder, fileOrOff, orAuto, raw } = read;
  // Of more cores than it may use, a host would promise runs that never come.
  const cores = Math.min(
    coresUsable,
    orAuto('cpu.cores', () => coresUsable),
  );
  const memory = memoryOf(read, environment, memoryBytes);
  const isDataAuto = raw('dataDir').value === 'auto';
  const format = choice('log.format', 'auto', 'json', 'pretty');
  return {
    listen: {
      host: text('listen.host').replace(/^\[(.*)\]$/, '$1'),
      port: integer('listen.port'),
      /** Both, or plain HTTP. */
      tls: { certFile: fileOrOff('listen.tlsCert'), keyFile: fileOrOff('listen.tlsKey') },
    },
    /** `isAuto`: the configuration names no port, so a port in use is no failure. */
    grpc: grpcPort(String(raw('grpc.port').value), integer('listen.port')),
    dataDir: isDataAuto ? defaultDataDir(packageRoot, environment) : folder('dataDir'),
    /** The default of earlier versions; undefined if the folder was configured. */
    dataDirBefore: isDataAuto ? formerDataDir(packageRoot) : undefined,
    /** Other hosts that may have an intact copy of a file that is damaged here. */
    healFrom: {
      hostUrls: list('healFrom').map((url) => url.replace(/\/+$/, '')),
      apiKey: environment['TURNTABLE_API_KEY'] || undefined,
    },
    functionsDir: folder('functionsDir'),
    apiKeys: list('apiKeys'),
    apiKeysFor: raw('apiKeysFor').value as readonly Scope[],
    rate: { perKey: integer('rate.perKey'), perAddress: integer('rate.perAddress') },
    /** Addresses and networks. */
    trustedProxies: list('trustedProxies'),
    cors: { origins: list('cors.origins') },
    unloaded: choice('unloaded', 'until-call', 'until-load'),
    /** What this host may use, and how it is divided; each part that the configuration sets is in it too. */
    memory,
    cpu: cpuOf(read, cores, memory),
    /** For functions without a setting of their own. */
    admission: choice('admission', ...policyChoices.admission),
    gpu: gpuOf(read, cores, memory),
    limits: limitsOf(read, memory),
    validator: { timeoutMs: duration('validator.timeout') },
    /** `url` undefined: no Redis. */
    redis: { url: text('redis.url') === 'off' ? undefined : text('redis.url'), prefix: text('redis.prefix') },
    queue: {
      payloadBytesMax: size('queue.payload'),
      outstandingMax: integer('queue.outstandingMax'),
      /** Undefined: where it listens. */
      hostUrl: text('queue.hostUrl') === 'auto' ? undefined : text('queue.hostUrl').replace(/\/+$/, ''),
    },
    fleet: fleetOf(read, environment),
    async: asyncCallsOf(read, cores),
    /** SIGTERM: time for accepted requests to finish. */
    drainMs: duration('drain'),
    log: {
      level: choice('log.level', 'debug', 'info', 'warn', 'error', 'silent'),
      format: format === 'auto' ? (terminal ? ('pretty' as const) : ('json' as const)) : format,
    },
    defaults: {
      sloMs: duration('defaults.slo'),
      handlerMs: duration('defaults.timeouts.handler'),
      loadMs: duration('defaults.timeouts.load'),
      inferMs: duration('defaults.timeouts.infer'),
    },
  };
}

function cpuOf({ choice, integer, duration }: Reader, cores: number, memory: MemoryBudget) {
  return {
    /** Cores that the pools share. */
    cores,
    blankInstances: integer('cpu.blankInstances'),
    memoryBytes: memory.parts.sessions,
    modelNetwork: choice('cpu.modelNetwork', 'on', 'off'),
    threads: integer('cpu.threads'),
    idleMs: duration('cpu.idle'),
    queueMax: integer('cpu.queueMax'),
    profiling: choice('cpu.profiling', 'background', 'off'),
    /** Of one function. */
    profilingBudgetMs: duration('cpu.profilingBudget'),
    configure: choice('cpu.configure', 'auto', 'off'),
    objective: choice('cpu.objective', 'latency', 'cores'),
    /** Least time between two changes of a pool. */
    reconfigureIntervalMs: duration('cpu.reconfigureInterval'),
  };
}

function gpuOf({ text, choice, integer, size, orAuto }: Reader, cores: number, memory: MemoryBudget) {
  return {
    use: choice('gpu.use', 'auto', 'off'),
    /** Pinned. */
    hostBytes: memory.parts.pinned,
    /** Per GPU; undefined: most of what is free. */
    gpuBytes: text('gpu.memory') === 'auto' ? undefined : size('gpu.memory'),
    mode: choice('gpu.mode', ...coldStartModes),
    /** A bundle; `policyParts` override parts of it. */
    policy: choice('gpu.policy', ...policyNames),
    topology: text('gpu.topology') === 'measured' ? undefined : parseTopology(text('gpu.topology')),
    policyParts: policyParts((part) => text(`gpu.${part}`)),
    profileIterations: integer('gpu.profileIterations'),
    /** One of so many calls is checked against ONNX Runtime after its answer; 0: none. */
    recheckEvery: integer('gpu.recheckEvery'),
    precision: choice('gpu.precision', 'exact', 'tf32', 'fp16'),
    /** Which plans over GPU and CPU functions get; their cores are reserved if there is a GPU. */
    hybrid: choice('gpu.hybrid', 'memory', 'latency', 'off'),
    hybridCores: orAuto('gpu.hybridCores', () => Math.floor(cores / 4)),
  };
}

function limitsOf({ text, integer, duration, size, orAuto }: Reader, memory: MemoryBudget) {
  return {
    bodyBytesMax: size('limits.body'),
    replyBytesMax: size('limits.reply'),
    /** Limit for the bodies and tensors of all requests in progress, decompressed. */
    inFlightBytesMax: text('limits.inFlight') === 'auto' ? inFlightBytes(memory) : size('limits.inFlight'),
    uploadBytesMax: size('limits.upload'),
    /** Time limit for the headers and, separately, for the body. An upload only needs to keep moving. */
    bodyTimeoutMs: duration('limits.bodyTimeout'),
    requestsInFlightMax: integer('limits.requestsInFlight'),
    // Without a file left, the host could not answer what it has accepted.
    connectionsMax: Math.min(connectionsMax(), orAuto('limits.connections', connectionsMax)),
  };
}

function fleetOf({ text, integer, size, fileOrOff, raw }: Reader, environment: Environment) {
  return {
    /** Undefined: this host is in no fleet. */
    name: text('fleet.name') === 'off' ? undefined : text('fleet.name'),
    secret: text('fleet.secret') || undefined,
    secretFile: fileOrOff('fleet.secretFile'),
    /** Undefined: the address where workers reach it. */
    advertise: text('fleet.advertise') === 'auto' ? undefined : text('fleet.advertise').replace(/\/+$/, ''),
    caFile: fileOrOff('fleet.caFile'),
    /** Limit of published content on the disk; undefined: none. */
    cacheBytes: text('fleet.cache') === 'off' ? undefined : size('fleet.cache'),
    bucket: bucketOf(text('fleet.bucket'), environment),
    bucketRegion: text('fleet.bucketRegion'),
    /** Undefined: the highest protocol. */
    protocol: raw('fleet.protocol').value === 'auto' ? undefined : integer('fleet.protocol'),
  };
}

function asyncCallsOf({ text, integer, list, duration, orAuto }: Reader, cores: number) {
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

function memoryOf({ text, size }: Reader, environment: Environment, memoryBytes: number): MemoryBudget {
  const set = (path: string): number | undefined => (text(path) === 'auto' ? undefined : size(path));
  const given: GivenMemory = {
    inFlight: set('limits.inFlight'),
    sessions: set('cpu.memory'),
    pinned: set('gpu.hostMemory'),
  };
  const hasGpus = text('gpu.use') !== 'off' && hasGpuDriver(environment);
  return divideMemory(memoryBytes, hasGpus ? 'host with GPUs' : 'host', given);
}

/** @throws ConfigError if the keys are missing */
function bucketOf(address: string, environment: Environment): Omit<BucketOptions, 'region'> | undefined {
  if (address === 'off') return undefined;
  const { AWS_ACCESS_KEY_ID: accessKeyId, AWS_SECRET_ACCESS_KEY: secretAccessKey } = environment;
  if (!accessKeyId || !secretAccessKey) {
    throw new ConfigError('"fleet.bucket" needs its keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY');
  }
  const sessionToken = environment['AWS_SESSION_TOKEN'] || undefined;
  return { url: address.replace(/\/+$/, ''), accessKeyId, secretAccessKey, sessionToken };
}

/** A host on a random port has no neighbouring port to take. */
function grpcPort(asked: string, httpPort: number): { readonly port: number | 'off'; readonly isAuto: boolean } {
  if (asked === 'auto') return { port: httpPort === 0 || httpPort === 65_535 ? 'off' : httpPort + 1, isAuto: true };
  return { port: asked === 'off' ? 'off' : Number(asked), isAuto: false };
}

const partNames = ['routing', 'eviction', 'offload', 'order'] as const;

/** The policy settings that are not 'policy'. The schema has checked them. */
function policyParts(
  read: (part: (typeof partNames)[number]) => string,
): Partial<Pick<Policy, (typeof partNames)[number]>> {
  const given = partNames.map((part) => [part, read(part)] as const).filter(([, value]) => value !== 'policy');
  return Object.fromEntries(given);
}
