/**
 * Compares an upload's files with what exists: whether they match the model, and whether this version was published
 * before.
 */
import { HostError } from '../errors.ts';
import type { FunctionVersion } from '../types.ts';
import { quoted, uploadedModel } from './names.ts';
import type { StoredFile } from './version-record.ts';

/** Throws HostError 'model-refused' naming a missing file, or 'bad-request' naming one too many. */
export function checkExternalFiles(files: readonly StoredFile[], external: readonly string[]): void {
  const uploaded = new Set(files.map(({ name }) => name));
  const missing = external.find((name) => !uploaded.has(name));
  if (missing !== undefined) {
    throw new HostError(
      'model-refused',
      `the model was refused: it keeps weights in the file ${quoted(missing)}, which was not uploaded`,
    );
  }
  const extra = files.find(({ name }) => name !== uploadedModel && !external.includes(name));
  if (extra !== undefined) {
    throw new HostError(
      'bad-request',
      `the upload brings the file ${quoted(extra.name)}, which the model does not name`,
    );
  }
}

export function sameFiles(known: readonly StoredFile[], files: readonly StoredFile[]): boolean {
  return (
    known.length === files.length &&
    known.every((file) => files.some(({ name, sha256 }) => name === file.name && sha256 === file.sha256))
  );
}

/** For a folder's version only the model's own hash is known, so this holds for models of one file. */
export function isOnlyFile(known: FunctionVersion, files: readonly StoredFile[]): boolean {
  const [model] = files;
  return (
    files.length === 1 &&
    known.state.status === 'ready' &&
    model?.sha256 === known.modelSha256 &&
    model.bytes === known.modelBytes
  );
}

/** The model's path in its folder does not affect what it does. */
export function sameSettings(known: FunctionVersion, settings: FunctionVersion['settings']): boolean {
  return JSON.stringify({ ...known.settings, model: '' }) === JSON.stringify({ ...settings, model: '' });
}
