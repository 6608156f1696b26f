/** What a fleet's registry has of a function, and what this host's store asks of the fleet. */
import { withoutVersion, type Traffic } from '../traffic.ts';
import type { GivenSettings } from './settings.ts';
import type { ServingRecord, StoredFile, VersionRecord } from './version-record.ts';

/** A function as the registry has it. */
export interface FleetFunction {
  readonly versions: readonly VersionRecord[];
  readonly serving?: {
    readonly settings: Readonly<Record<string, GivenSettings>>;
    readonly traffic?: Traffic | undefined;
  };
}

/** Where this host's store stands in a fleet. */
export interface FleetStore {
  /** Reads this host's copy of the registry; before everything else. @param folder for the fleet's own files */
  load(folder: string): Promise<void>;
  /** Functions that the fleet has or had, as this host's copy of the registry says. */
  names(): readonly string[];
  get(name: string): FleetFunction | undefined;
  /** Before a change. @throws HostError 'fleet-unavailable' */
  ready(): Promise<void>;
  /** Resolves when another host has these files as well, or there is none. @throws HostError 'fleet-unavailable' */
  secure(name: string, files: readonly StoredFile[]): Promise<void>;
  /** Changes the registry; undefined removes the function. @throws ChangedElsewhere, HostError 'fleet-unavailable' */
  commit(name: string, next: FleetFunction | undefined): Promise<void>;
  /** Takes in what others have changed. */
  sync(): Promise<void>;
  /** A caller waits for a version whose content is at other hosts. */
  want(name: string, version: string): void;
}

/** Writes a file of a function to a path. */
export type FetchFile = (file: StoredFile, path: string) => Promise<void>;

/** Of two states that hosts have acknowledged without each other. Of versions of one name the fleet's stays. */
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

/** A function of the fleet with one version more; what was set for it is what `serving` says. */
export function withRecord(
  before: FleetFunction | undefined,
  record: VersionRecord,
  { settings, traffic }: ServingRecord,
): FleetFunction {
  const others = before?.versions.filter(({ version }) => version !== record.version) ?? [];
  return { versions: [...others, record], serving: { settings, traffic } };
}

/** Without a version, or without any; undefined where nothing is left. */
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
