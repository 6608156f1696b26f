/** An entry of the cache of prepared weights: the names of its files, and what is said of it. */

/** The optimized graph; it names the weights' file beside it. */
export const preparedFile = 'model.onnx';
export const weightsFile = 'weights.bin';
/** Written last: an entry without it is none. */
export const manifestFile = 'manifest.json';

/** Sharing less than this saves no memory that counts beside a process of its own. */
export const worthBytesMin = 4 * 1024 * 1024;

export interface ManifestFile {
  readonly bytes: number;
  readonly sha256: string;
}

export interface Manifest {
  readonly model: ManifestFile;
  readonly weights: ManifestFile;
}

/** What the process that prepares an entry is asked to do. */
export interface PrepareOrder {
  /** Of the entry. */
  readonly folder: string;
  readonly modelPath: string;
}

/** What it says at its end. */
export type Prepared =
  /** `built`: it was missing or broken, and has been made anew. */
  | { readonly state: 'ready'; readonly built: boolean }
  /** The weights are so few that sharing them is not worth the files. */
  | { readonly state: 'small' };

/** Undefined for what is no manifest. */
export function parseManifest(text: string): Manifest | undefined {
  try {
    const { model, weights } = JSON.parse(text) as Partial<Manifest>;
    return isFile(model) && isFile(weights) ? { model, weights } : undefined;
  } catch {
    return undefined;
  }
}

function isFile(value: unknown): value is ManifestFile {
  if (typeof value !== 'object' || value === null) return false;
  const { bytes, sha256 } = value as Partial<ManifestFile>;
  return typeof bytes === 'number' && typeof sha256 === 'string';
}
