/** The seam around the model store: what it is given. Nothing here runs. */
import type { ContentSource } from '../../queue/index.ts';
import type { HostConfig } from '../config.ts';
import type { ModelStore } from '../types.ts';
import type { FetchFile, FleetFunction, FleetStore } from './fleet-store.ts';
import type { ValidateModel } from './validation.ts';
import type { StoredFile, VersionRecord } from './version-record.ts';

/** The part of a pino logger that the store writes to. */
export interface StoreLogger {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

export interface ModelStoreOptions {
  /** Everything that survives a restart; one host at a time. Created when missing. */
  readonly dataDir: string;
  /** Where an earlier version kept the same; moved to `dataDir` at start. */
  readonly dataDirBefore?: string | undefined;
  /** One folder for each function that ships as a folder; may be missing. */
  readonly functionsDir: string;
  /** Hosts to ask for the bytes of damaged files; default: none. */
  readonly healFrom?: ContentSource;
  /** Undefined: this host is in no fleet. */
  readonly fleet?: FleetStore | undefined;
  readonly defaults: HostConfig['defaults'];
  readonly limits: Pick<HostConfig['limits'], 'uploadBytesMax'>;
  readonly validate: ValidateModel;
  readonly logger: StoreLogger;
}

/** A model store that holds its data folder until it is closed. */
export interface DiskModelStore extends ModelStore {
  /** Resolves when the files of every version that `start` found have been hashed. */
  verified(): Promise<void>;
  /** The registry of the fleet has changed: takes in what it has of a function. */
  adopt(name: string): Promise<void>;
  /** What this host has of a function by itself, for a fleet that does not know it. */
  ownRecords(name: string): FleetFunction | undefined;
  /** Versions whose content is at other hosts. */
  elsewhere(name: string): readonly VersionRecord[];
  /** Versions whose content is here and whole. */
  held(): readonly VersionRecord[];
  /** Whether a version's content is here and whole. */
  holds(content: Pick<VersionRecord, 'name' | 'version' | 'files'>): boolean;
  /** Gives the content of a version up; it is at other hosts from then on. */
  drop(record: VersionRecord): Promise<void>;
  /** Has files among the blobs, fetched where they are not. */
  keepFiles(files: readonly StoredFile[], fetch: FetchFile): Promise<void>;
  /** Has the content of a version here, so that it can serve. */
  hold(record: VersionRecord, fetch: FetchFile): Promise<void>;
  /** Lets another host use the data folder. Uploads under way must be over. */
  close(): Promise<void>;
}
