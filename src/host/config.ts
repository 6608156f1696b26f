import type { ColdStartMode } from '../plan/index.ts';
import type { PolicyName } from '../schedule/index.ts';

/** The host's configuration after files, environment and flags are merged; the schema is wrangler-free-config/host.schema.json. */
export interface HostConfig {
  readonly listen: { readonly host: string; readonly port: number };
  /** Models, versions and everything else that must survive a restart. */
  readonly dataDir: string;
  /** Functions that ship as folders. */
  readonly functionsDir: string;
  /** Management needs one of these as `Authorization: Bearer`; with none the host listens on loopback only. */
  readonly apiKeys: readonly string[];
  readonly cpu: {
    /** Cores that the pools share. */
    readonly cores: number;
    /** Blank instances kept started. */
    readonly blankInstances: number;
    /** Most instances at once, over all functions; the longest idle makes room. */
    readonly instancesMax: number;
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
  readonly gpu: {
    readonly use: 'auto' | 'off';
    /** Pinned host memory for weights; undefined: half of the machine's. */
    readonly hostBytes: number | undefined;
    /** Of each GPU; undefined: most of what is free. */
    readonly gpuBytes: number | undefined;
    readonly mode: ColdStartMode;
    readonly policy: PolicyName;
    readonly profileIterations: number;
    /** Which plans over GPU and CPU functions get. */
    readonly hybrid: 'memory' | 'latency' | 'off';
    /** Kept for them where there is a GPU. */
    readonly hybridCores: number;
  };
  readonly limits: {
    readonly bodyBytesMax: number;
    readonly uploadBytesMax: number;
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
  readonly async: {
    /** How long the reply of a finished call is kept. */
    readonly keepMs: number;
    readonly waitingMax: number;
    /** Calls that run at the same time. */
    readonly concurrency: number;
    readonly callbackAttempts: number;
    readonly callbackBackoffMs: number;
    readonly callbackTimeoutMs: number;
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
