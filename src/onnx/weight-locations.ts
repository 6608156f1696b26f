/** Where the bytes of weights are in files, for readers that load them directly into their own memory. */
import { statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { chunksFolder } from './cut.ts';
import { checkExternal, externalReference, isExternal } from './external-data.ts';
import type { ModelStructure } from './read.ts';
import { tensorByteLength, tensorsOfModel } from './tensor-data.ts';
import type { ModelProto } from './types.ts';

export interface WeightLocation {
  /** Absolute path of the model, or of the file beside it. */
  readonly path: string;
  /** Path of that file relative to the model's folder; undefined for the model itself. */
  readonly location: string | undefined;
  readonly byteOffset: number;
  readonly byteLength: number;
}

/**
 * By initializer name: those in external files, and those in the model that are large (16 KiB) and raw. The others are
 * small or not contiguous; they are in the structure of the model's file, which `readStructure` read.
 * @throws OnnxError `external-data` for a file that is missing or too short
 */
export function weightLocations({ model, skipped }: ModelStructure, modelPath: string): Map<string, WeightLocation> {
  const path = resolve(modelPath);
  const folder = dirname(path);
  const locations = new Map<string, WeightLocation>();
  for (const [{ name }, { offset, byteLength }] of skipped) {
    locations.set(name, { path, location: undefined, byteOffset: offset, byteLength });
  }
  for (const tensor of model.graph.initializer) {
    if (!isExternal(tensor)) continue;
    const byteLength = tensorByteLength(tensor);
    checkExternal(tensor, byteLength, folder);
    const { location, offset } = externalReference(tensor);
    locations.set(tensor.name, { path: join(folder, location), location, byteOffset: offset, byteLength });
  }
  return locations;
}

/**
 * The files beside the model that hold its weights: distinct locations, relative to the model's folder, in order of
 * their tensors.
 * @throws OnnxError `external-data` for a location outside the folder
 */
export function externalFiles(model: ModelProto): string[] {
  const files = new Set<string>();
  for (const tensor of tensorsOfModel(model)) {
    if (isExternal(tensor)) files.add(externalReference(tensor).location);
  }
  return [...files];
}

/**
 * Distinguishes a file from one that replaced it, without reading it. The graph of a model in chunks is one file for all
 * models of its shape, so its chunks' folder counts too.
 */
export function fileStamp(path: string): string {
  const chunks = statSync(join(dirname(path), chunksFolder), { throwIfNoEntry: false });
  return [statSync(path), ...(chunks === undefined ? [] : [chunks])]
    .map(({ size, mtimeMs, ino, dev }) => `${size}-${mtimeMs}-${ino}-${dev}`)
    .join(' ');
}
