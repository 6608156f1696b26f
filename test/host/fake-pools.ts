/** Pools that answer without processes, and answers that wait. */
import {
  CpuError,
  type CpuPools,
  type InvokeOptions,
  type PoolConfiguration,
  type PoolInput,
  type PoolResult,
  type Stopped,
} from '../../src/cpu/index.ts';
import type { Tensor } from '../../src/tensor/index.ts';

export interface FakeInvocation {
  readonly key: string;
  readonly input: PoolInput;
  readonly options: InvokeOptions;
}

/** Pools that answer with `answer`; by default the inputs come back as outputs, renamed x to y. */
export class FakePools implements CpuPools {
  readonly invocations: FakeInvocation[] = [];
  readonly loads: string[] = [];
  readonly unloads: string[] = [];
  /** By key: functions that kill their processes. */
  readonly stops = new Map<string, Stopped>();
  answer: (invocation: FakeInvocation) => Partial<PoolResult> | Promise<Partial<PoolResult>> = echo;

  observe(): void {}
  async started(): Promise<void> {}
  register(..._of: Parameters<CpuPools['register']>): void {}
  setMemory(): void {}
  async unregister(): Promise<void> {}

  async invoke(key: string, input: PoolInput, options: InvokeOptions = {}): Promise<PoolResult> {
    const invocation = { key, input, options };
    this.invocations.push(invocation);
    const partial = await this.answer(invocation);
    return {
      output: { kind: 'tensors', tensors: [] },
      timings: { queueMs: 1, loadMs: 0, preprocessMs: 0.1, inferMs: 2, postprocessMs: 0.2 },
      coldStart: false,
      batchSize: 1,
      instancePid: 1,
      ...partial,
    };
  }

  async load(key: string): Promise<void> {
    this.loads.push(key);
    this.stops.delete(key);
  }

  stopped(key: string): Stopped | undefined {
    return this.stops.get(key);
  }

  async unload(key: string): Promise<void> {
    this.unloads.push(key);
  }

  async configure(_key: string, configuration: PoolConfiguration): ReturnType<CpuPools['configure']> {
    return { state: 'done', kind: 'switch', ms: 0, configuration };
  }

  leaseCores(): ReturnType<CpuPools['leaseCores']> {
    return { cores: [], [Symbol.dispose]: () => undefined };
  }

  coresFor(): ReturnType<CpuPools['coresFor']> {
    return 1;
  }

  async evict(key: string): Promise<void> {
    this.unloads.push(key);
  }

  facts(): undefined {
    return undefined;
  }

  state(key: string): ReturnType<CpuPools['state']> {
    return this.states().find((state) => state.key === key);
  }

  states(): ReturnType<CpuPools['states']> {
    return this.loads.map((key) => ({
      key,
      instances: [{ pid: 1, state: 'idle' as const, threads: 1, cores: [], bytes: 0 }],
      queueLength: 3,
      inFlight: 0,
      configuration: undefined,
      starting: undefined,
      arrivalsPerSecond: 0,
      queueDepth: 3,
      startMs: undefined,
    }));
  }

  readonly coresShared = 1;

  memoryTakenBytes(): number {
    return 0;
  }

  resources(): ReturnType<CpuPools['resources']> {
    return { memoryBytes: 1e9, memoryUsedBytes: 0, cores: 1, coresUnleased: 1 };
  }

  async stop(): Promise<void> {}
}

export function echo({ input }: FakeInvocation): Partial<PoolResult> {
  if (input.kind === 'request') {
    const { method, url, body } = input.request;
    return {
      output: {
        kind: 'response',
        response: {
          status: 200,
          headers: { 'content-type': 'text/plain' },
          body: Buffer.concat([Buffer.from(`${method} ${url} `), body]),
        },
      },
    };
  }
  const tensors = input.tensors.map((tensor): Tensor => ({ ...tensor, name: tensor.name === 'x' ? 'y' : tensor.name }));
  return { output: { kind: 'tensors', tensors } };
}

/** A promise and the function that resolves it. */
export function deferred<T>(): { readonly promise: Promise<T>; readonly resolve: (value: T) => void } {
  let resolve!: (value: T) => void;
  const promise = new Promise<T>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}

export interface Held {
  readonly answer: FakePools['answer'];
  readonly release: () => void;
  /** Resolves when an invocation has come. */
  readonly started: Promise<void>;
  readonly ended: Promise<'aborted' | 'released'>;
}

/** An answer that does not come until the invocation is aborted or `release` is called. */
export function held(): Held {
  const started = deferred<void>();
  const ended = deferred<'aborted' | 'released'>();
  const gate = deferred<void>();
  return {
    started: started.promise,
    ended: ended.promise,
    release: gate.resolve,
    answer: async (invocation) => {
      started.resolve();
      const { signal } = invocation.options;
      const aborted = deferred<void>();
      signal?.addEventListener('abort', () => aborted.resolve(), { once: true });
      await Promise.race([gate.promise, aborted.promise]);
      ended.resolve(signal?.aborted ? 'aborted' : 'released');
      if (signal?.aborted) throw new CpuError('cancelled', 'the client is gone');
      return echo(invocation);
    },
  };
}
