import { externalReference, isExternal } from './external-data.ts';
import { tensorsOfModel } from './tensor-data.ts';
import type { ModelProto } from './types.ts';

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
