/** A function's records on disk: `version.json` beside a version's files, and settings changed since. */
import { join } from 'node:path';
import type { ManifestFile } from '../../queue/index.ts';
import { jsonAs } from '../../tools/index.ts';
import type { Traffic } from '../rollout/traffic.ts';
import type { ModelMetadata } from '../types.ts';
import { fileBytes, readTextIfThere } from './disk.ts';
import { isSha256, uploadedModel, versionFile } from './names.ts';
import type { GivenSettings } from './settings.ts';
import { reviveMetadata } from './validation.ts';

/** Its name is relative to the version's folder. */
export type StoredFile = ManifestFile;

/** The content of `version.json`. */
export interface VersionRecord {
  readonly format: 1;
  readonly name: string;
  readonly version: string;
  /** Rises with every publication of this store; the highest of a name is current. */
  readonly sequence: number;
  readonly publishedAtMs: number;
  /** As given: omitted settings follow the host's defaults, also when those change. */
  readonly settings: GivenSettings;
  /** The model first. */
  readonly files: readonly StoredFile[];
  readonly metadata: ModelMetadata;
}

/** The content of `serving/<name>.json`: changes to a function after its versions were published. */
export interface ServingRecord {
  readonly format: 1;
  /** By version: changes by `PATCH`. */
  readonly settings: Readonly<Record<string, GivenSettings>>;
  /** Undefined: all calls go to the newest version. */
  readonly traffic?: Traffic | undefined;
}

/** A published version as `start` finds it. */
export type LoadedRecord =
  /** Its files have been hashed since the host started, and match the record. */
  | { readonly status: 'whole'; readonly record: VersionRecord }
  /** Its files have the right sizes; their bytes have not been read yet. */
  | { readonly status: 'unverified'; readonly record: VersionRecord }
  /** Its files do not match the record. */
  | { readonly status: 'damaged'; readonly record: VersionRecord; readonly reason: string }
  /** Published in the fleet; its files are at other hosts. */
  | { readonly status: 'elsewhere'; readonly record: VersionRecord }
  /** Nothing is known but its name. */
  | { readonly status: 'unreadable'; readonly reason: string };

export async function loadRecord(folder: string, name: string, version: string): Promise<LoadedRecord> {
  const text = await readTextIfThere(join(folder, versionFile));
  if (text === undefined) return { status: 'unreadable', reason: `its ${versionFile} is missing` };
  const record = jsonAs(text, checked);
  if (record === undefined || record.name !== name || record.version !== version) {
    return { status: 'unreadable', reason: `its ${versionFile} is damaged` };
  }
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

/** The content of `version.json` as a record; undefined when it is not one. */
function checked(record: VersionRecord): VersionRecord | undefined {
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
