/** An entry of the cache of prepared weights: the names of its files, and its manifest. */

/** The optimized graph; it names the weights' file beside it. */
export const preparedFile = 'model.onnx';
export const weightsFile = 'weights.bin';
/** Written last: without it the entry is invalid. */
export const manifestFile = 'manifest.json';

/** Sharing less than this saves no memory worth mentioning beside a process. */
export const worthBytesMin = 4 * 1024 * 1024;

export interface ManifestFile {
  readonly bytes: number;
  readonly sha256: string;
}

export interface Manifest {
  readonly model: ManifestFile;
  readonly weights: ManifestFile;
}

/** The task of the process that prepares an entry. */
export interface PrepareOrder {
  /** Of the entry. */
  readonly folder: string;
  readonly modelPath: string;
}

/** Its result. */
export type Prepared =
  /** `built`: the entry was missing or broken, and has been built again. */
  | { readonly state: 'ready'; readonly built: boolean }
  /** The weights are so few that sharing them is not worth the files. */
  | { readonly state: 'small' };

/** Undefined if the text is no manifest. */
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
