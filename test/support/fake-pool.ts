import type { CpuPools, PoolConfiguration, PoolState, Reconfiguration } from '../../src/cpu/index.ts';
import type { FunctionVersion, Registry } from '../../src/host/types.ts';

/** The one function of {@link FakePool}. */
export const fakeVersion = {
  key: 'f@1',
  name: 'f',
  version: '1',
  settings: { sloMs: 100, batching: { batchMax: 16, delayMs: 5 } },
} as unknown as FunctionVersion;

export const fakeRegistry: Registry = {
  names: () => ['f'],
  versions: () => [fakeVersion],
  find: (name) => (name === 'f' ? fakeVersion : undefined),
  onChange: () => undefined,
};

/** A pool whose load the test sets, and which adopts every configuration at once. */
export class FakePool {
  readonly configured: { readonly configuration: PoolConfiguration; readonly cause: string }[] = [];
  state: PoolState = {
    key: 'f@1',
    instances: [],
    queueLength: 0,
    inFlight: 0,
    configuration: undefined,
    starting: undefined,
    arrivalsPerSecond: 0,
    queueDepth: 0,
    startMs: undefined,
  };
  cores = 4;
  /** Why none of its configurations can start. */
  failure: string | undefined;

  readonly pools = {
    states: () => [this.state],
    state: (key: string) => (key === this.state.key ? this.state : undefined),
    coresFor: () => this.cores,
    configure: (_key: string, configuration: PoolConfiguration, cause: string) => {
      this.configured.push({ configuration, cause });
      if (this.failure !== undefined) {
        const { configuration: inForce } = this.state;
        return Promise.resolve<Reconfiguration>({ state: 'failed', kind: 'switch', ms: 1, configuration: inForce, reason: this.failure }); // prettier-ignore
      }
      this.set({ configuration });
      const done: Reconfiguration = { state: 'done', kind: 'switch', ms: 1, configuration };
      return Promise.resolve(done);
    },
  } satisfies Pick<CpuPools, 'states' | 'state' | 'coresFor' | 'configure'> as unknown as CpuPools;

  set(change: Partial<PoolState>): void {
    this.state = { ...this.state, ...change };
  }

  get shapes(): number[][][] {
    return this.configured.map(({ configuration }) =>
      configuration.groups.map(({ instances, threads: each, batch }) => [instances, each, batch]),
    );
  }
}
