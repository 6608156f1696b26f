/** The host's configuration: what the options of wrangler-free-config/host.schema.json come to on this machine. */
import {
  connectionsMax,
  divideMemory,
  hasGpuDriver,
  inFlightBytes,
  parseTopology,
  type MemoryBudget,
} from '../../hardware/index.ts';
import type { Capability } from '../../gpu/index.ts';
import { coldStartModes } from '../../plan/index.ts';
import { policies, policyChoices, policyNames, type Policy } from '../../schedule/index.ts';
import { defaultDataDir, formerDataDir } from './data-dir.ts';
import { packageRoot } from './options.ts';
import type { Scope } from '../access/api-keys.ts';

type Assembled = ReturnType<typeof assemble>;

/** Merged from files, environment and flags. */
export type HostConfig = { readonly [Group in keyof Assembled]: Readonly<Assembled[Group]> };

/** The scheduler's policy. */
export function policyOf({ gpu, admission }: Pick<HostConfig, 'gpu' | 'admission'>): Policy {
  return { ...policies[gpu.policy], ...gpu.policyParts, admission };
}

/** What this process may use of its machine. */
export interface HereLimits {
  readonly coresUsable: number;
  readonly memoryBytes: number;
}

type Environment = Readonly<Record<string, string | undefined>>;

const isText = (value: unknown): value is string => typeof value === 'string';
const isNumber = (value: unknown): value is number => typeof value === 'number';
const isList = (value: unknown): value is readonly string[] => Array.isArray(value);

/** Reads checked values by path. Durations are in milliseconds, sizes in bytes, paths absolute, as config-options.ts has them. */
function readerOf(values: ReadonlyMap<string, unknown>) {
  const reading =
    <Value>(isIt: (value: unknown) => value is Value) =>
    (path: string): Value => {
      const value = values.get(path);
      if (isIt(value)) return value;
      throw new Error(`host.schema.json gives the option "${path}" another type than config.ts`);
    };
  const text = reading(isText);
  return {
    text,
    number: reading(isNumber),
    list: reading(isList),
    /** Undefined where a word such as "auto" or "off" stands in place of a value. */
    textIfAny: reading((value) => value === undefined || isText(value)),
    numberIfAny: reading((value) => value === undefined || isNumber(value)),
    choice: <Choice extends string>(path: string, ...choices: readonly Choice[]): Choice =>
      reading((value): value is Choice => choices.some((choice) => choice === value))(path),
  };
}

type Reader = ReturnType<typeof readerOf>;

/** The schema describes what the options mean; comments here only add to it. */
export function assemble(
  values: ReadonlyMap<string, unknown>,
  environment: Environment,
  { coresUsable, memoryBytes }: HereLimits,
  terminal: boolean,
) {
  const read = readerOf(values);
  const { text, number, list, choice, textIfAny, numberIfAny } = read;
  // Of more cores than it may use, a host would promise runs that never come.
  const cores = Math.min(coresUsable, numberIfAny('cpu.cores') ?? coresUsable);
  const memory = memoryOf(read, environment, memoryBytes);
  const dataDir = textIfAny('dataDir');
  const format = choice('log.format', 'auto', 'json', 'pretty');
  return {
    listen: {
      host: text('listen.host').replace(/^\[(.*)\]$/, '$1'),
      port: number('listen.port'),
      /** Both, or plain HTTP. */
      tls: { certFile: textIfAny('listen.tlsCert'), keyFile: textIfAny('listen.tlsKey') },
    },
    /** `isAuto`: the configuration names no port, so a port in use is no failure. */
    grpc: grpcPort(String(values.get('grpc.port')), number('listen.port')),
    dataDir: dataDir ?? defaultDataDir(packageRoot, environment),
    /** The default of earlier versions; undefined if the folder was configured. */
    dataDirBefore: dataDir === undefined ? formerDataDir(packageRoot) : undefined,
    store: {
      /** A folder or a bucket's address; undefined: the data folder is the store. */
      place: textIfAny('store.place'),
      /** What files of the store may take on this host's disk; undefined: any amount. */
      cacheBytes: numberIfAny('store.cache'),
    },
    functionsDir: text('functionsDir'),
    apiKeys: list('apiKeys'),
    apiKeysFor: list('apiKeysFor') as readonly Scope[],
    rate: { perKey: number('rate.perKey'), perAddress: number('rate.perAddress') },
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
    limits: {
      bodyBytesMax: number('limits.body'),
      replyBytesMax: number('limits.reply'),
      /** Limit for the bodies and tensors of all requests in progress, decompressed. */
      inFlightBytesMax: numberIfAny('limits.inFlight') ?? inFlightBytes(memory),
      uploadBytesMax: number('limits.upload'),
      /** Time limit for the headers and, separately, for the body. An upload only needs to keep moving. */
      bodyTimeoutMs: number('limits.bodyTimeout'),
      requestsInFlightMax: number('limits.requestsInFlight'),
      // Without a file left, the host could not answer what it has accepted.
      connectionsMax: Math.min(connectionsMax(), numberIfAny('limits.connections') ?? connectionsMax()),
    },
    validator: { timeoutMs: number('validator.timeout') },
    /** `url` undefined: no Redis. */
    redis: { url: textIfAny('redis.url'), prefix: text('redis.prefix') },
    queue: {
      payloadBytesMax: number('queue.payload'),
      outstandingMax: number('queue.outstandingMax'),
    },
    fleet: {
      /** Undefined: this host is in no fleet. */
      name: textIfAny('fleet.name'),
      port: number('fleet.port'),
      /** Host and port; undefined: where it listens. */
      advertise: textIfAny('fleet.advertise'),
      /** The files, all or none. */
      tls: {
        certFile: textIfAny('fleet.tlsCert'),
        keyFile: textIfAny('fleet.tlsKey'),
        caFile: textIfAny('fleet.tlsCa'),
        /** Undefined: each certificate names its host. */
        name: textIfAny('fleet.tlsName'),
      },
    },
    async: {
      keepMs: number('async.keep'),
      waitingMax: number('async.waitingMax'),
      concurrency: numberIfAny('async.concurrency') ?? 2 * cores,
      callbackAttempts: number('async.callbackAttempts'),
      callbackBackoffMs: number('async.callbackBackoff'),
      callbackTimeoutMs: number('async.callbackTimeout'),
      callbackAllow: list('async.callbackAllow'),
      callbackSecret: text('async.callbackSecret') || undefined,
    },
    /** SIGTERM: time for accepted requests to finish. */
    drainMs: number('drain'),
    log: {
      level: choice('log.level', 'debug', 'info', 'warn', 'error', 'silent'),
      format: format === 'auto' ? (terminal ? ('pretty' as const) : ('json' as const)) : format,
    },
    defaults: {
      sloMs: number('defaults.slo'),
      handlerMs: number('defaults.timeouts.handler'),
      loadMs: number('defaults.timeouts.load'),
      inferMs: number('defaults.timeouts.infer'),
    },
  };
}

function cpuOf({ choice, number, numberIfAny }: Reader, cores: number, memory: MemoryBudget) {
  return {
    /** Cores that the pools share. */
    cores,
    blankInstances: number('cpu.blankInstances'),
    memoryBytes: memory.parts.sessions,
    modelNetwork: choice('cpu.modelNetwork', 'on', 'off'),
    threads: number('cpu.threads'),
    idleMs: number('cpu.idle'),
    queueMax: number('cpu.queueMax'),
    profiling: choice('cpu.profiling', 'background', 'off'),
    /** Of one function. */
    profilingBudgetMs: numberIfAny('cpu.profilingBudget') ?? ('auto' as const),
    configure: choice('cpu.configure', 'auto', 'off'),
    objective: choice('cpu.objective', 'latency', 'cores'),
    /** Least time between two changes of a pool. */
    reconfigureIntervalMs: number('cpu.reconfigureInterval'),
  };
}

function gpuOf({ text, list, choice, number, textIfAny, numberIfAny }: Reader, cores: number, memory: MemoryBudget) {
  const topology = textIfAny('gpu.topology');
  return {
    use: choice('gpu.use', 'auto', 'off'),
    /** Pinned. */
    hostBytes: memory.parts.pinned,
    /** Per GPU; undefined: most of what is free. */
    gpuBytes: numberIfAny('gpu.memory'),
    mode: choice('gpu.mode', ...coldStartModes),
    /** A bundle; `policyParts` override parts of it. */
    policy: choice('gpu.policy', ...policyNames),
    topology: topology === undefined ? undefined : parseTopology(topology),
    policyParts: policyParts((part) => text(`gpu.${part}`)),
    profileIterations: number('gpu.profileIterations'),
    /** One of so many calls is checked against ONNX Runtime after its answer; 0: none. */
    recheckEvery: number('gpu.recheckEvery'),
    coding: choice('gpu.coding', 'off', 'auto'),
    precision: choice('gpu.precision', 'exact', 'tf32', 'fp16', 'bf16'),
    /** Which plans over GPU and CPU functions get; their cores are reserved if there is a GPU. */
    hybrid: choice('gpu.hybrid', 'memory', 'latency', 'off'),
    hybridCores: numberIfAny('gpu.hybridCores') ?? Math.floor(cores / 4),
    without: list('gpu.without') as readonly Capability[],
  };
}

function memoryOf({ text, numberIfAny }: Reader, environment: Environment, memoryBytes: number): MemoryBudget {
  const hasGpus = text('gpu.use') !== 'off' && hasGpuDriver(environment);
  return divideMemory(memoryBytes, hasGpus ? 'host with GPUs' : 'host', {
    inFlight: numberIfAny('limits.inFlight'),
    sessions: numberIfAny('cpu.memory'),
    pinned: numberIfAny('gpu.hostMemory'),
  });
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
