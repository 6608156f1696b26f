/** Operator sets. ONNX's own has two names. */
import type { ModelProto } from './types.ts';

export const isDefaultDomain = (domain: string): boolean => domain === '' || domain === 'ai.onnx';

/** Version of ONNX's own operators in a model; undefined if it uses none of them. */
export function opsetOf({ opsetImport }: ModelProto): number | undefined {
  const version = opsetImport.find(({ domain }) => isDefaultDomain(domain))?.version;
  return version === undefined ? undefined : Number(version);
}
