/** What a worker needs to run a function: its files by hash, and its limits. Hosts write it into Redis. */
import { createHash } from 'node:crypto';
import type { PoolLimits } from '../cpu/index.ts';
import type { ModelOpening } from '../onnx/index.ts';
import {
  manifestFile as chunkManifestFile,
  parseChunkManifest,
  type NamedContent,
  type WantedContent,
} from '../store/index.ts';
import { given, jsonAs } from '../tools/index.ts';

export type ManifestFile = NamedContent;

export interface FunctionManifest {
  /** `name@version` at the host. */
  readonly key: string;
  /** Hash of everything that decides the function's answers: workers identify it by this. */
  readonly revision: string;
  /** The model first, then its external data. */
  readonly files: readonly [ManifestFile, ...ManifestFile[]];
  /** The manifest, where the model is in the store in chunks, which lie here in place of its files. */
  readonly chunks?: WantedContent;
  /** How the model is opened; default: its file as it is. */
  readonly opening?: ModelOpening;
  /** The compiled handler. */
  readonly handler?: ManifestFile;
  /** Threads that the function asks for; undefined: the worker's default. */
  readonly threads?: number;
  /** What runs keep beside a session, estimated. */
  readonly runBytes?: number;
  /** It shares no process with other functions. */
  readonly isolation?: 'own';
  /** Rows that may share a run, and the time limits; the worker decides on the number of instances. */
  readonly limits: Pick<
    PoolLimits,
    'batchMax' | 'batchDelayMs' | 'handlerTimeoutMs' | 'loadTimeoutMs' | 'inferTimeoutMs'
  >;
}

/** The manifest with its revision. */
export function sealManifest(manifest: Omit<FunctionManifest, 'revision'>): FunctionManifest {
  const { files, chunks, handler, threads, limits, opening, isolation } = manifest;
  // Without the key: two hosts may serve the same function under different versions.
  const parts = [files.map(({ name, sha256 }) => [name, sha256]), handler?.sha256, threads, limits];
  const more = [opening, chunks?.sha256, isolation].filter((part) => part !== undefined);
  const text = JSON.stringify([...parts, ...more]);
  return { ...manifest, revision: createHash('sha256').update(text).digest('hex').slice(0, 32) };
}

/** Where a worker keeps the compiled handler, whose name at its host is of no use to it. */
const handlerFile = '.handler.mjs';

/** Every file of a function under the name that it has at a worker; the handler last. */
export function filesOf({ files, handler }: Pick<FunctionManifest, 'files' | 'handler'>): readonly ManifestFile[] {
  return handler === undefined ? files : [...files, { ...handler, name: handlerFile }];
}

/** The same for a function in chunks, by the text that lists them. @throws Error with a sentence if it is damaged */
export function chunkFilesOf({ chunks, handler }: FunctionManifest, text: string): readonly ManifestFile[] {
  const [layout, ...others] = parseChunkManifest(text);
  const listed: ManifestFile = { name: chunkManifestFile, ...chunks! };
  const files = [listed, layout!, ...others] as const;
  return filesOf({ files, ...given({ handler }) });
}

export function manifestBytes({ files, handler }: FunctionManifest): number {
  return files.reduce((sum, { bytes }) => sum + bytes, handler?.bytes ?? 0);
}

/** Undefined if the text is no manifest, or names a file outside of its folder. */
export const parseManifest = (text: string): FunctionManifest | undefined => jsonAs(text, soundManifest);

/** A manifest that another member tells; undefined if it is invalid, or names a file outside of its folder. */
export function soundManifest(value: unknown): FunctionManifest | undefined {
  try {
    const manifest = value as FunctionManifest;
    const { chunks, handler } = manifest;
    const listed = chunks === undefined ? [] : [{ name: chunkManifestFile, ...chunks }];
    const files = [...manifest.files, ...(handler === undefined ? [] : [handler]), ...listed];
    const isSound =
      manifest.files.length > 0 &&
      /^[0-9a-f]{32}$/.test(manifest.revision) &&
      typeof manifest.key === 'string' &&
      typeof manifest.limits === 'object' &&
      files.every(({ name, sha256, bytes }) => isInside(name) && /^[0-9a-f]{64}$/.test(sha256) && bytes >= 0);
    return isSound ? manifest : undefined;
  } catch {
    return undefined;
  }
}

/** Names come from another machine and become paths here. */
function isInside(name: string): boolean {
  return name !== '' && !name.startsWith('/') && !name.includes('\\') && !name.split('/').includes('..');
}
