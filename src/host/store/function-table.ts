/** Every version that the host knows, in memory: the registry's synchronous reads are on the path of each request. */
import type { Log } from '../../tools/index.ts';
import { primaryOf, versionFor, type HeaderOf, type Traffic } from '../rollout/traffic.ts';
import type { FunctionVersion, Registry, RegistryChange } from '../types.ts';

interface Row {
  readonly value: FunctionVersion;
  /** Order of publishing. */
  readonly sequence: number;
}

interface Entry {
  readonly rows: Map<string, Row>;
  /** By sequence; the last is current. */
  ordered: readonly FunctionVersion[];
  /** Undefined: the newest version serves. */
  traffic: Traffic | undefined;
  /** Calls that were divided by share. */
  drawn: number;
}

export class FunctionTable implements Registry {
  readonly #entries = new Map<string, Entry>();
  readonly #listeners: ((change: RegistryChange) => void)[] = [];
  readonly #logger: Log;
  #names: readonly string[] = [];

  constructor(logger: Log) {
    this.#logger = logger;
  }

  names(): readonly string[] {
    return this.#names;
  }

  versions(name: string): readonly FunctionVersion[] {
    return this.#entries.get(name)?.ordered ?? [];
  }

  find(name: string, version?: string): FunctionVersion | undefined {
    const entry = this.#entries.get(name);
    if (entry === undefined) return undefined;
    return version === undefined ? currentOf(entry) : entry.rows.get(version)?.value;
  }

  choose(name: string, headerOf: HeaderOf): FunctionVersion | undefined {
    const entry = this.#entries.get(name);
    if (entry?.traffic === undefined) return entry?.ordered.at(-1);
    const { traffic } = entry;
    if (traffic.shares.length === 1) return currentOf(entry);
    const version = versionFor(traffic, name, headerOf, entry.drawn++);
    const chosen = version === undefined ? undefined : entry.rows.get(version)?.value;
    // The calls of a version that cannot serve go to the version with the largest share.
    return chosen === undefined || chosen.state.status === 'unavailable' ? currentOf(entry) : chosen;
  }

  traffic(name: string): Traffic | undefined {
    return this.#entries.get(name)?.traffic;
  }

  /** Sets how calls are divided from now on. Listeners hear of versions that start or cease to be current. */
  setTraffic(name: string, traffic: Traffic | undefined): void {
    const entry = this.#entries.get(name);
    if (entry === undefined || JSON.stringify(entry.traffic) === JSON.stringify(traffic)) return;
    const before = currentOf(entry);
    entry.traffic = traffic;
    const after = currentOf(entry);
    if (before === after) return;
    for (const version of [before, after]) if (version !== undefined) this.#tell({ before: version, after: version });
  }

  onChange(listener: (change: RegistryChange) => void): void {
    this.#listeners.push(listener);
  }

  /** Adds a version or replaces it. The highest sequence of a name is its current version. */
  set(value: FunctionVersion, sequence: number): void {
    let entry = this.#entries.get(value.name);
    if (entry === undefined) {
      entry = { rows: new Map(), ordered: [], traffic: undefined, drawn: 0 };
      this.#entries.set(value.name, entry);
      this.#names = [...this.#entries.keys()].sort();
    }
    const before = entry.rows.get(value.version)?.value;
    entry.rows.set(value.version, { value, sequence });
    entry.ordered = inOrder(entry.rows);
    this.#tell({ before, after: value });
  }

  delete(name: string, version: string): void {
    const entry = this.#entries.get(name);
    const before = entry?.rows.get(version)?.value;
    if (entry === undefined || before === undefined) return;
    entry.rows.delete(version);
    entry.ordered = inOrder(entry.rows);
    if (entry.rows.size === 0) {
      this.#entries.delete(name);
      this.#names = [...this.#entries.keys()].sort();
    }
    this.#tell({ before, after: undefined });
  }

  #tell(change: RegistryChange): void {
    for (const listener of this.#listeners) {
      try {
        listener(change);
      } catch (error) {
        // A bug in one listener must neither undo a publication nor keep the others from hearing of it.
        this.#logger.error(
          { err: error, function: (change.after ?? change.before)?.key },
          'a registry listener failed',
        );
      }
    }
  }
}

function currentOf({ rows, ordered, traffic }: Entry): FunctionVersion | undefined {
  const primary = traffic && primaryOf(traffic);
  return (primary === undefined ? undefined : rows.get(primary)?.value) ?? ordered.at(-1);
}

function inOrder(rows: ReadonlyMap<string, Row>): FunctionVersion[] {
  return [...rows.values()].sort((left, right) => left.sequence - right.sequence).map(({ value }) => value);
}
