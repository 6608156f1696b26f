/** Recognises by its first bytes what a file is if it is not a model. */
import { OnnxError } from './error.ts';

const magics: readonly { readonly at: number; readonly bytes: string; readonly what: string }[] = [
  { at: 0, bytes: 'version https://git-lfs', what: 'a Git LFS pointer and not the file that it stands for' },
  { at: 0, bytes: 'PK\x03\x04', what: 'a ZIP archive (a PyTorch checkpoint, perhaps)' },
  { at: 0, bytes: '\x80\x02', what: 'a Python pickle' },
  { at: 0, bytes: '\x80\x04\x95', what: 'a Python pickle' },
  { at: 0, bytes: '\x1f\x8b', what: 'compressed with gzip' },
  { at: 0, bytes: '\x89HDF', what: 'an HDF5 file' },
  { at: 0, bytes: 'GGUF', what: 'a GGUF file' },
  { at: 4, bytes: 'TFL3', what: 'a TensorFlow Lite model' },
  { at: 4, bytes: 'ORTM', what: "a model in ONNX Runtime's own format, not in ONNX" },
  { at: 8, bytes: '{"', what: 'a safetensors file' },
  { at: 0, bytes: '\x89PNG', what: 'an image' },
];

/** Bytes of a file that {@link otherFormat} needs. */
export const signatureBytes = 64;

/** The format of a file by its first bytes, as the end of a sentence; undefined if unknown. */
export function otherFormat(first: Uint8Array): string | undefined {
  const head = Buffer.from(first.buffer, first.byteOffset, Math.min(first.byteLength, signatureBytes));
  const text = head.toString('latin1');
  const found = magics.find(({ at, bytes }) => text.startsWith(bytes, at));
  if (found !== undefined) return found.what;
  // All printable: a page, a JSON error, a path. A model's first bytes hold its IR version, which is not printable.
  if (/^[\t\n\r\x20-\x7e]+$/.test(text)) return `text ("${text.slice(0, 24).replaceAll(/\s+/g, ' ').trim()}...")`;
  return undefined;
}

/** The error for a file that cannot be read as a model; it names the format if that is known. */
export function explained(error: unknown, first: Uint8Array): unknown {
  if (!(error instanceof OnnxError) || (error.code !== 'not-onnx' && error.code !== 'truncated')) return error;
  const what = otherFormat(first);
  return what === undefined ? error : new OnnxError('not-onnx', `the file is ${what}`, { cause: error });
}
