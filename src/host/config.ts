import type { ContentSource } from '../queue/index.ts';
import type { Scope } from './api-keys.ts';
import type { StatedTopology } from '../hardware/index.ts';
import type { ColdStartMode } from '../plan/index.ts';
import { policies, type Policy, type PolicyName } from '../schedule/index.ts';

/** The host's configuration after files, environment and flags are merged; the schema is wrangler-free-config/host.schema.json. */
export interface HostConfig {
  readonly listen: {
    readonly host: string;
    readonly port: number;
    /** Both, or plain HTTP. */
    readonly tls?: { readonly certFile: string | undefined; readonly keyFile: string | undefined };
  };
  /** Models, versions and everything else that must survive a restart. */
  /** `auto`: no port is asked for by name, so that one in use is no failure. */
  readonly grpc: { readonly port: number | 'off'; readonly isAuto: boolean };
  readonly dataDir: string;
  /** Where earlier versions kept it by default; undefined when the folder was chosen. */
  readonly dataDirBefore?: string | undefined;
  /** Hosts that may have the right bytes of a file that is damaged here. */
  readonly healFrom: ContentSource;
  /** Functions that ship as folders. */
  readonly functionsDir: string;
  /** Entries as `api-keys.ts` reads them; with none the host listens on loopback only. */
  readonly apiKeys: readonly string[];
  /** Scopes that need a key, beside publish. */
  readonly apiKeysFor: readonly Scope[];
  /** Requests a second; 0: as many as they like. */
  readonly rate: { readonly perKey: number; readonly perAddress: number };
  /** Web pages of these origins may call functions; '*': of any. */
  readonly cors: { readonly origins: readonly string[] };
  /** Whether the first call of an unloaded function loads it again. */
  readonly unloaded: 'until-call' | 'until-load';
  readonly cpu: {
    /** Cores that the pools share. */
    readonly cores: number;
    /** Blank instances kept started. */
    readonly blankInstances: number;
    /** What the processes of all functions may take together. */
    readonly memoryBytes: number;
    /** Whether models without handlers run in processes that have it. */
    readonly modelNetwork: 'on' | 'off';
    /** Intra-op threads of an instance, unless the function says. */
    readonly threads: number;
    /** An instance without work for this long is given back. */
    readonly idleMs: number;
    /** Invocations that may wait for one function. */
    readonly queueMax: number;
    /** Whether functions are measured while the machine is quiet. */
    readonly profiling: 'background' | 'off';
    /** Of one function. */
    readonly profilingBudgetMs: number;
    /** Whether pools are configured by what was measured. */
    readonly configure: 'auto' | 'off';
    readonly objective: 'latency' | 'cores';
    /** Least time between two changes of a pool. */
    readonly reconfigureIntervalMs: number;
  };
  /** Of functions that do not choose for themselves. */
  readonly admission: Policy['admission'];
  readonly gpu: {
    readonly use: 'auto' | 'off';
    /** Pinned host memory for weights; undefined: half of the machine's. */
    readonly hostBytes: number | undefined;
    /** Of each GPU; undefined: most of what is free. */
    readonly gpuBytes: number | undefined;
    readonly mode: ColdStartMode;
    /** A bundle, and what is to be otherwise in it. */
    readonly policy: PolicyName;
    /** Undefined: as it is measured. */
    readonly topology: StatedTopology | undefined;
    readonly policyParts: Partial<Pick<Policy, 'routing' | 'eviction' | 'offload' | 'order'>>;
    readonly profileIterations: number;
    /** One of so many calls is checked against ONNX Runtime after its answer; 0: none. */
    readonly recheckEvery: number;
    /** What models of 32-bit floats are computed in. */
    readonly precision: 'exact' | 'tf32' | 'fp16';
    /** Which plans over GPU and CPU functions get. */
    readonly hybrid: 'memory' | 'latency' | 'off';
    /** Kept for them where there is a GPU. */
    readonly hybridCores: number;
  };
  readonly limits: {
    readonly bodyBytesMax: number;
    readonly uploadBytesMax: number;
    /** Of JSON in a reply. */
    readonly replyBytesMax: number;
    /** Of all bodies and tensors of requests in progress, decompressed. */
    readonly inFlightBytesMax: number;
    /** Headers and, separately, body must arrive within this. An upload only needs to keep moving. */
    readonly bodyTimeoutMs: number;
    readonly requestsInFlightMax: number;
  };
  readonly validator: { readonly timeoutMs: number };
  /** Where Redis is; undefined: there is none. All keys begin with the prefix. */
  readonly redis: { readonly url: string | undefined; readonly prefix: string };
  readonly queue: {
    /** Largest input that goes through Redis. */
    readonly payloadBytesMax: number;
    /** Invocations that may be with workers at once. */
    readonly outstandingMax: number;
    /** Where workers reach this host; undefined: where it listens. */
    readonly hostUrl: string | undefined;
  };
  /** Absent in a configuration that no file or flag made. */
  readonly fleet?: {
    /** Undefined: this host is in no fleet. */
    readonly name: string | undefined;
    readonly secret: string | undefined;
    readonly secretFile: string | undefined;
    /** Where other hosts reach this one; undefined: where workers do. */
    readonly advertise: string | undefined;
    /** Certificates by which those of the other hosts are checked. */
    readonly caFile?: string | undefined;
    /** What published content may take on the disk; undefined: any amount. */
    readonly cacheBytes?: number | undefined;
    readonly bucket?: BucketConfig | undefined;
    readonly bucketRegion?: string | undefined;
    /** Highest version of the protocol between hosts; undefined: the highest that there is. */
    readonly protocol?: number | undefined;
  };
  readonly async: {
    /** How long the reply of a finished call is kept. */
    readonly keepMs: number;
    readonly waitingMax: number;
    /** Calls that run at the same time. */
    readonly concurrency: number;
    readonly callbackAttempts: number;
    readonly callbackBackoffMs: number;
    readonly callbackTimeoutMs: number;
    /** Host names, addresses and networks that callbacks may go to though they are private. */
    readonly callbackAllow: readonly string[];
    /** Signs the bodies of callbacks. */
    readonly callbackSecret: string | undefined;
  };
  /** SIGTERM: time for accepted requests to finish. */
  readonly drainMs: number;
  readonly log: { readonly level: 'debug' | 'info' | 'warn' | 'error' | 'silent'; readonly format: 'json' | 'pretty' };
  /** For functions that do not say. */
  readonly defaults: {
    readonly sloMs: number;
    readonly handlerMs: number;
    readonly loadMs: number;
    readonly inferMs: number;
  };
}

/** An S3-compatible bucket. */
export interface BucketConfig {
  /** Of the server, with the bucket's name and a prefix behind it. */
  readonly url: string;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string | undefined;
}

/** What the scheduler goes by. */
export function policyOf({ gpu, admission }: Pick<HostConfig, 'gpu' | 'admission'>): Policy {
  return { ...policies[gpu.policy], ...gpu.policyParts, admission };
}
