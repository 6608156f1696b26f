/** A function in the fleet's registry, and what this host's store needs from the fleet. */
import { withoutVersion } from '../rollout/traffic.ts';
import type { ServingRecord, StoredFile, VersionRecord } from './version-record.ts';

/** A function in the registry. */
export interface FleetFunction {
  readonly versions: readonly VersionRecord[];
  readonly serving?: Omit<ServingRecord, 'format'>;
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

/** Adds a version to a fleet's function; its settings are those in `serving`. */
export function withRecord(
  before: FleetFunction | undefined,
  record: VersionRecord,
  { settings, traffic }: ServingRecord,
): FleetFunction {
  const others = before?.versions.filter(({ version }) => version !== record.version) ?? [];
  return { versions: [...others, record], serving: { settings, traffic } };
}

/** Removes a version, or all; undefined if none is left. */
export function withoutRecord(
  before: FleetFunction | undefined,
  version: string | undefined,
): FleetFunction | undefined {
  const versions = before?.versions.filter((record) => version !== undefined && record.version !== version) ?? [];
  if (before === undefined || versions.length === 0) return undefined;
  const { settings = {}, traffic } = before.serving ?? {};
  const { [version ?? '']: _gone, ...kept } = settings;
  const left = traffic && version !== undefined ? withoutVersion(traffic, version) : traffic;
  return { versions, serving: { settings: kept, traffic: left } };
}
