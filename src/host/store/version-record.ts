/** What the store says of a function, and how a published version is found at start. */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ManifestFile } from '../../queue/index.ts';
import { manifestFile, parseChunkManifest, type WantedContent } from '../../store/index.ts';
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
  /** The manifest, where its model is stored in chunks; undefined: the files are stored as they were published. */
  readonly chunks?: WantedContent;
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

/** A published version as `start` finds it; `stored` is what lies in its folder, as far as that is known. */
export type LoadedRecord =
  /** Its files have been hashed since the host started, and match the record. */
  | { readonly status: 'whole'; readonly record: VersionRecord; readonly stored: readonly StoredFile[] }
  /** Its files are there; their bytes have not been read yet. */
  | { readonly status: 'unverified'; readonly record: VersionRecord; readonly stored: readonly StoredFile[] }
  /** Its files do not match the record. */
  | {
      readonly status: 'damaged';
      readonly record: VersionRecord;
      readonly stored: readonly StoredFile[];
      readonly reason: string;
    }
  /** Its files are in the store, and not here. */
  | { readonly status: 'elsewhere'; readonly record: VersionRecord }
  /** Nothing is known but its name: its record is lost. */
  | { readonly status: 'unreadable'; readonly reason: string };

/** The manifest of a version in chunks, as a file of its folder. */
export const manifestOf = ({ chunks }: Pick<VersionRecord, 'chunks'>): StoredFile | undefined =>
  chunks && { name: manifestFile, sha256: chunks.sha256, bytes: chunks.bytes };

/** What lies in the folder of a version. @param manifest its text, for one in chunks @throws Error with a sentence */
export function storedFiles(record: Pick<VersionRecord, 'files' | 'chunks'>, manifest: string): readonly StoredFile[] {
  const listed = manifestOf(record);
  if (listed === undefined) return record.files;
  const sha256 = createHash('sha256').update(manifest).digest('hex');
  if (sha256 !== listed.sha256) throw new Error('the list of its chunks is damaged');
  const handler = record.files.filter(({ name }) => name === handlerFile);
  return [listed, ...parseChunkManifest(manifest), ...handler];
}

/** Compares the files of a version with its record by their sizes; of a version in chunks the manifest alone. */
export async function loadVersion(folder: string, record: VersionRecord): Promise<LoadedRecord> {
  const manifest = manifestOf(record);
  const stored = manifest === undefined ? record.files : [manifest];
  for (const file of stored) {
    const damaged = (reason: string): LoadedRecord => ({ status: 'damaged', record, stored, reason });
    let bytes: number | undefined;
    try {
      bytes = await fileBytes(join(folder, file.name));
    } catch (error) {
      return damaged(
        `its file '${file.name}' cannot be read: ${(error as NodeJS.ErrnoException).code ?? String(error)}`,
      );
    }
    if (bytes === undefined) return damaged(`its file '${file.name}' is missing`);
    if (bytes !== file.bytes)
      return damaged(`its file '${file.name}' has ${bytes} bytes, but ${file.bytes} were published`);
    if (file !== manifest) continue;
    try {
      return {
        status: 'unverified',
        record,
        stored: storedFiles(record, await readFile(join(folder, file.name), 'utf8')),
      };
    } catch (error) {
      return damaged((error as Error).message);
    }
  }
  return { status: 'unverified', record, stored };
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
    record.files.every(({ name, sha256, bytes }) => typeof name === 'string' && isSha256(sha256) && bytes >= 0) &&
    (record.chunks === undefined || (isSha256(record.chunks.sha256) && record.chunks.bytes >= 0));
  return readable ? { ...record, metadata: reviveMetadata(record.metadata) } : undefined;
}
