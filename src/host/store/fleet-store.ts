/** A function in the fleet's registry, and what this host's store needs from the fleet. */
import type { FunctionEntry, StoredFile, VersionRecord } from './version-record.ts';

/** A function in the registry. */
export interface FleetFunction {
  readonly versions: readonly VersionRecord[];
  readonly serving?: Pick<FunctionEntry, 'settings' | 'traffic'>;
}

/** The fleet, as this host's store sees it. */
export interface FleetStore {
  /** Reads this host's copy of the registry; call it first. @param folder for the fleet's own files */
  load(folder: string): Promise<void>;
  /** Functions that the fleet has or had, according to this host's copy of the registry. */
  names(): readonly string[];
  get(name: string): FleetFunction | undefined;
  /** Called before a change. @throws HostError 'fleet-unavailable' */
  ready(): Promise<void>;
  /** Resolves when another host has these files as well, or there is none. @throws HostError 'fleet-unavailable' */
  secure(name: string, files: readonly StoredFile[]): Promise<void>;
  /** Changes the registry; undefined removes the function. @throws ChangedElsewhere, HostError 'fleet-unavailable' */
  commit(name: string, next: FleetFunction | undefined): Promise<void>;
  /** Applies changes by other hosts. */
  sync(): Promise<void>;
  /** A caller waits for a version whose content is at other hosts. */
  want(name: string, version: string): void;
}

/** Writes a file of a function to a path. */
export type FetchFile = (file: StoredFile, path: string) => Promise<void>;

/** Merges two states that hosts have acknowledged independently. Of versions with the same name the fleet's stays. */
export function mergedFunctions(
  mine: FleetFunction | undefined,
  theirs: FleetFunction | undefined,
): FleetFunction | undefined {
  if (mine === undefined || theirs === undefined) return mine ?? theirs;
  const known = new Set(theirs.versions.map(({ version }) => version));
  const serving = theirs.serving ?? mine.serving;
  return {
    versions: [...theirs.versions, ...mine.versions.filter(({ version }) => !known.has(version))],
    ...(serving === undefined ? {} : { serving }),
  };
}

/** A function's entry as the registry has it. */
export function asFleetFunction({ versions, settings, traffic }: FunctionEntry): FleetFunction {
  return { versions, serving: { settings, traffic } };
}
