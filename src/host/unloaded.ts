/** Versions that an operator has unloaded: not ready for clients until they are loaded again. */
import { HostError } from './errors.ts';
import type { FunctionVersion } from './types.ts';

export class Unloaded {
  readonly #keys = new Set<string>();
  /** Whether the first call loads such a version again, or is refused. */
  readonly #until: 'until-call' | 'until-load';

  constructor(until: 'until-call' | 'until-load') {
    this.#until = until;
  }

  has({ key }: FunctionVersion): boolean {
    return this.#keys.has(key);
  }

  add({ key }: FunctionVersion): void {
    this.#keys.add(key);
  }

  delete({ key }: { readonly key: string }): void {
    this.#keys.delete(key);
  }

  /** @throws HostError 'unloaded' */
  check(version: FunctionVersion): void {
    if (this.has(version)) throw unloaded(version);
  }

  /**
   * A call has come for the version.
   *
   * @throws HostError 'unloaded' if calls do not load
   */
  called(version: FunctionVersion): void {
    if (!this.has(version)) return;
    if (this.#until === 'until-load') throw unloaded(version);
    this.delete(version);
  }

  /** Replaces the metadata; an error if calls are refused too. */
  described(version: FunctionVersion): { readonly state: 'UNAVAILABLE'; readonly reason: 'unloaded' } | undefined {
    if (!this.has(version)) return undefined;
    if (this.#until === 'until-load') throw unloaded(version);
    return { state: 'UNAVAILABLE', reason: 'unloaded' };
  }
}

function unloaded({ name, version }: FunctionVersion): HostError {
  return new HostError(
    'unloaded',
    `function '${name}' version ${version} is unloaded; load it with POST ` +
      `/v2/repository/models/${encodeURIComponent(name)}/load`,
  );
}
