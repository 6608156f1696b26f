import type { ProfileLayer } from '../../profile/index.ts';
import type { LayerMethod } from './algorithm.ts';

/**
 * The methods with no more layers loaded than fit into the GPU. The layers whose reads cost least per byte stay in host
 * memory: a model larger than the GPU's memory pays for these reads in every run. Of layers with equal cost the last
 * ones stay.
 */
export function methodsWithin(
  layers: readonly Pick<ProfileLayer, 'bytes' | 'exec' | 'dha'>[],
  methods: readonly LayerMethod[],
  capacityBytes: number,
): LayerMethod[] {
  const within = [...methods];
  const bytesOf = (index: number): number => layers[index]!.bytes;
  const addedMs = (index: number): number => layers[index]!.dha - layers[index]!.exec;
  const loaded = [...methods.keys()].filter((index) => methods[index] === 'load');
  let bytes = loaded.reduce((sum, index) => sum + bytesOf(index), 0);
  const stay: number[] = [];
  // A layer that is too large alone stays in any case.
  const fits = (index: number): boolean => bytesOf(index) <= capacityBytes;
  const perByte = (index: number): number => (fits(index) ? addedMs(index) / bytesOf(index) : -Infinity);
  for (const index of loaded.toSorted((a, b) => (perByte(a) === perByte(b) ? b - a : perByte(a) - perByte(b)))) {
    if (bytes <= capacityBytes) break;
    within[index] = 'dha';
    bytes -= bytesOf(index);
    stay.push(index);
  }
  // The last one that stayed may have left more room than was missing.
  for (const index of stay.toSorted((a, b) => addedMs(b) - addedMs(a))) {
    if (bytes + bytesOf(index) > capacityBytes) continue;
    within[index] = 'load';
    bytes += bytesOf(index);
  }
  return within;
}
