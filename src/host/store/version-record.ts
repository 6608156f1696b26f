/** What the store says of a function, and how a published version is found at start. */
import { join } from 'node:path';
import type { ManifestFile } from '../../queue/index.ts';
import type { Traffic } from '../rollout/traffic.ts';
import type { ModelMetadata } from '../types.ts';
import { fileBytes } from './disk.ts';
import { handlerFile, isSha256, uploadedModel } from './names.ts';
import type { GivenSettings } from './settings.ts';
import { reviveMetadata } from './validation.ts';

/** Its name is relative to the version's folder. */
export type StoredFile = ManifestFile;

/** A published version. */
export interface VersionRecord {
  readonly format: 1;
  readonly name: string;
  readonly version: string;
  /** Rises with every publication of this store; the highest of a name is current. */
  readonly sequence: number;
  readonly publishedAtMs: number;
  /** As given: omitted settings follow the host's defaults, also when those change. */
  readonly settings: GivenSettings;
  /** The model first; the compiled handler, if it brings one, is {@link handlerFile} among them. */
  readonly files: readonly StoredFile[];
  readonly metadata: ModelMetadata;
}

/** What is said about a function: the body of its entry in the store. */
export interface FunctionEntry {
  readonly versions: readonly VersionRecord[];
  /** By version: changes by `PATCH`. */
  readonly settings: Readonly<Record<string, GivenSettings>>;
  /** Undefined: all calls go to the newest version. */
  readonly traffic?: Traffic | undefined;
  /** Versions whose records were lost; their files are here. */
  readonly unreadable?: readonly string[] | undefined;
}

/** The files that its model consists of. */
export const modelFiles = ({ files }: Pick<VersionRecord, 'files'>): readonly StoredFile[] =>
  files.filter(({ name }) => name !== handlerFile);

/** A published version as `start` finds it. */
export type LoadedRecord =
  /** Its files have been hashed since the host started, and match the record. */
  | { readonly status: 'whole'; readonly record: VersionRecord }
  /** Its files have the right sizes; their bytes have not been read yet. */
  | { readonly status: 'unverified'; readonly record: VersionRecord }
  /** Its files do not match the record. */
  | { readonly status: 'damaged'; readonly record: VersionRecord; readonly reason: string }
  /** Its files are in the store, and not here. */
  | { readonly status: 'elsewhere'; readonly record: VersionRecord }
  /** Nothing is known but its name: its record is lost. */
  | { readonly status: 'unreadable'; readonly reason: string };

/** Compares the files of a version with its record, by their sizes. */
export async function loadVersion(folder: string, record: VersionRecord): Promise<LoadedRecord> {
  for (const file of record.files) {
    const bytes = await fileBytes(join(folder, file.name));
    if (bytes === undefined) return { status: 'damaged', record, reason: `its file '${file.name}' is missing` };
    if (bytes !== file.bytes) {
      const reason = `its file '${file.name}' has ${bytes} bytes, but ${file.bytes} were published`;
      return { status: 'damaged', record, reason };
    }
  }
  return { status: 'unverified', record };
}

/** A record that was read from a disk; undefined when it is none. */
export function checkedRecord(record: VersionRecord): VersionRecord | undefined {
  const readable =
    record.format === 1 &&
    typeof record.name === 'string' &&
    typeof record.version === 'string' &&
    Number.isSafeInteger(record.sequence) &&
    Number.isFinite(record.publishedAtMs) &&
    typeof record.settings === 'object' &&
    record.files[0]?.name === uploadedModel &&
    record.files.every(({ name, sha256, bytes }) => typeof name === 'string' && isSha256(sha256) && bytes >= 0);
  return readable ? { ...record, metadata: reviveMetadata(record.metadata) } : undefined;
}
