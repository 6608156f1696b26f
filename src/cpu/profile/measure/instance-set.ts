/** The processes of a measurement: started when needed, pinned to cores of their own, ended with the measurement. */
import { Instance, Replica } from '../../instance/index.ts';
import { CpuError, type InstanceSpec } from '../../types.ts';
import type { Tensor } from '../../../tensor/index.ts';

/** What runs on one instance. */
export interface Measured {
  readonly replica: Replica;
  readonly threads: number;
  readonly cores: readonly number[];
}

/**
 * As a configured instance serves, without spinning: the instances of other lists stay loaded on the same cores, and this
 * process needs one too. With it, two instances of one thread took 22 ms beside an idle one of two threads, and 12 without.
 */
export const measuredAs = { isAlone: true, spinning: false } as const;

export interface InstanceSetOptions {
  readonly spec: InstanceSpec;
  /** Cores by socket, the operating system's numbers. */
  readonly sockets: readonly (readonly number[])[];
  readonly loadTimeoutMs: number;
  readonly runTimeoutMs: number;
  readonly log: (line: string) => void;
}

export class InstanceSet {
  readonly #options: InstanceSetOptions;
  readonly #loaded: Measured[] = [];
  /** Milliseconds that each start took, from a process without a model until it was loaded. */
  readonly startsMs: number[] = [];
  #stopped: CpuError | undefined;

  constructor(options: InstanceSetOptions) {
    this.#options = options;
  }

  /** One more than run side by side at most, by one thread each. */
  get #keptMax(): number {
    return this.#options.sockets.flat().length + 1;
  }

  /**
   * Instances with these threads, in order, each on cores that none of the others has. Instances from earlier calls stay
   * for later ones, since idle ones use memory and nothing else. Unless `keep`, the oldest that this call does not need
   * are ended where more than {@link InstanceSet.#keptMax} would stay.
   */
  async acquire(threads: readonly number[], keep = false): Promise<Measured[]> {
    const wanted = this.#places(threads);
    const instances: Measured[] = [];
    for (const place of wanted) {
      const loaded = this.#loaded.find(({ cores }) => cores.join() === place.join());
      instances.push(loaded ?? (await this.#start(place)));
    }
    if (!keep) {
      const unneeded = this.#loaded.filter((one) => !instances.includes(one));
      for (const each of unneeded.slice(0, Math.max(0, this.#loaded.length - this.#keptMax))) this.#end(each);
    }
    return instances;
  }

  /**
   * One run for these requests, given by their tensors and joined as a pool joins them. Returns the milliseconds from
   * sending it until its answer. Rejects with {@link CpuError}.
   */
  run({ replica }: Measured, requests: readonly (readonly Tensor[])[]): Promise<number> {
    if (this.#stopped !== undefined) return Promise.reject(this.#stopped);
    return new Promise((resolve, reject) => {
      const startMs = performance.now();
      const { runTimeoutMs } = this.#options;
      const limits = {
        inferTimeoutMs: runTimeoutMs,
        handlerTimeoutMs: runTimeoutMs,
        loadTimeoutMs: runTimeoutMs,
        batchMax: requests.length,
      };
      const calls = requests.map(({ length }) => ({ call: { kind: 'tensors', count: length } as const }));
      const order = {
        join: calls.length > 1 ? ('joined' as const) : ('no' as const),
        calls,
        tensors: requests.flat(),
        limits,
      };
      replica.run(order, (outcome) => {
        const ms = performance.now() - startMs;
        if (outcome.kind === 'timeout') {
          reject(outcome.error);
          return;
        }
        if (outcome.kind === 'died') {
          reject(
            this.#stopped ?? new CpuError('instance-died', `an instance that was measured died: ${outcome.reason}`),
          );
          return;
        }
        const header = outcome.result.results[0]?.header;
        if (header?.kind === 'error') reject(new CpuError(header.code, header.message));
        else resolve(ms);
      });
    });
  }

  /** Ends every process; running calls reject with `stopping`. */
  stop(): void {
    this.#stopped ??= new CpuError('stopping', 'the measurement was stopped');
    for (const { replica } of this.#loaded.splice(0)) void replica.release('the measurement is over');
  }

  async #start(cores: readonly number[]): Promise<Measured> {
    if (this.#stopped !== undefined) throw this.#stopped;
    const { spec, loadTimeoutMs, log } = this.#options;
    const instance = new Instance((_pid, _key, line) => log(line));
    const threads = cores.length;
    const started = new Promise<void>((resolve, reject) => {
      instance.whenStarted(resolve);
      instance.onDead(({ reason }) => {
        reject(this.#stopped ?? new CpuError('instance-died', `an instance died: ${reason}`));
      });
    });
    const replica = new Replica({
      instance,
      spec: { ...spec, threads },
      isAlone: true,
      bytes: 0,
      runBytes: 0,
      pendingBytes: 0,
      onWeighed: () => undefined,
      onTurn: () => undefined,
      onMove: () => undefined,
      onEnd: () => undefined,
      onFreed: () => undefined,
    });
    const measured = { replica, threads, cores };
    this.#loaded.push(measured);
    await started;
    const startMs = performance.now();
    await replica.load(loadTimeoutMs, { threads, cores, ...measuredAs }, false);
    this.startsMs.push(performance.now() - startMs);
    return measured;
  }

  #end(measured: Measured): void {
    this.#loaded.splice(this.#loaded.indexOf(measured), 1);
    void measured.replica.release('it is measured');
  }

  /**
   * Each on the first socket with room for it; if none has room, on what is left of all: no such list is planned for.
   */
  #places(threads: readonly number[]): number[][] {
    const left = this.#options.sockets.map((cores) => [...cores]);
    return threads.map((count) => {
      const socket = left.find((cores) => cores.length >= count);
      return socket?.splice(0, count) ?? left.flat().slice(0, count);
    });
  }
}
