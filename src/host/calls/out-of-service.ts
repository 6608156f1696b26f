/**
 * Versions that are registered and not ready: an operator has unloaded them, or they were stopped because they kill
 * their processes. Loading one makes it ready again.
 */
import { stoppedText, type CpuPools } from '../../cpu/index.ts';
import { HostError } from '../errors.ts';
import type { FunctionVersion } from '../types.ts';

export interface OutOfServiceOptions {
  /** Whether the first call loads an unloaded version again, or is refused. */
  readonly until: 'until-call' | 'until-load';
  readonly pools: Pick<CpuPools, 'stopped'>;
  /** Whether its calls need no process of the pools, because its model may run on a GPU and it has no handler. */
  readonly needsNoPool: (version: FunctionVersion) => boolean;
  /** Why no place can ever run it as things are; undefined if one can. */
  readonly whyNowhere: (version: FunctionVersion) => string | undefined;
}

export class OutOfService {
  readonly #options: OutOfServiceOptions;
  readonly #unloaded = new Set<string>();

  constructor(options: OutOfServiceOptions) {
    this.#options = options;
  }

  /** Why it is not ready; undefined if nothing but its own state is against it. */
  why(version: FunctionVersion): string | undefined {
    if (this.#unloaded.has(version.key)) return 'unloaded';
    return this.stopped(version) ?? this.#options.whyNowhere(version);
  }

  /** Why it is stopped, and until when; undefined if it is not. */
  stopped(version: FunctionVersion): string | undefined {
    const stopped = this.#options.pools.stopped(version.key);
    if (stopped === undefined || this.#options.needsNoPool(version)) return undefined;
    return stoppedText(stopped, performance.now());
  }

  unload({ key }: FunctionVersion): void {
    this.#unloaded.add(key);
  }

  load({ key }: { readonly key: string }): void {
    this.#unloaded.delete(key);
  }

  /** @throws HostError 'unloaded' or 'not-ready' */
  check(version: FunctionVersion): void {
    if (this.#unloaded.has(version.key)) throw unloaded(version);
    this.checkStopped(version);
    this.checkPlaces(version);
  }

  /** @throws HostError 'not-ready' if no place can run it */
  checkPlaces(version: FunctionVersion): void {
    const why = this.#options.whyNowhere(version);
    if (why !== undefined) throw nowhere(version, why);
  }

  /**
   * A call has come for the version.
   *
   * @throws HostError 'unloaded' if calls do not load
   */
  called(version: FunctionVersion): void {
    if (!this.#unloaded.has(version.key)) return;
    if (this.#options.until === 'until-load') throw unloaded(version);
    this.load(version);
  }

  /** What the metadata of the version say besides; an error if an unloaded version refuses calls too. */
  described(version: FunctionVersion): { readonly state: 'UNAVAILABLE'; readonly reason: string } | undefined {
    if (this.#unloaded.has(version.key) && this.#options.until === 'until-load') throw unloaded(version);
    const reason = this.why(version);
    return reason === undefined ? undefined : { state: 'UNAVAILABLE', reason };
  }

  /** @throws HostError 'not-ready' if it is stopped */
  checkStopped(version: FunctionVersion): void {
    const stopped = this.stopped(version);
    if (stopped === undefined) return;
    const { untilMs = Infinity } = this.#options.pools.stopped(version.key) ?? {};
    const retryAfterS = Math.max(1, Math.ceil((untilMs - performance.now()) / 1000));
    throw new HostError(
      'not-ready',
      `function '${version.name}' version ${version.version} cannot serve: ${stopped}`,
      retryAfterS === Infinity ? {} : { retryAfterS },
    );
  }
}

/** @param reason the last place's, if any gave one */
export function nowhere({ name }: Pick<FunctionVersion, 'name'>, reason: string | undefined): HostError {
  return new HostError('not-ready', `no place runs function '${name}'${reason === undefined ? '' : `: ${reason}`}`);
}

function unloaded({ name, version }: FunctionVersion): HostError {
  return new HostError(
    'unloaded',
    `function '${name}' version ${version} is unloaded; load it with POST ` +
      `/v2/repository/models/${encodeURIComponent(name)}/load`,
  );
}
