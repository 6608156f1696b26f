/** What DeepPlan's tables compare its plans with, and no host does. */
import type { LayerMethod, Residency } from '../../src/plan/index.ts';
import type { LayerProfile, ProfileLayer } from '../../src/profile/index.ts';

/**
 * The paper's "initial approach", which decides layer by layer without the pipeline (section 4.1, Table 3):
 * direct-host-access if it is faster than loading and then executing, and always for embeddings and batch
 * normalisations.
 */
export function initialApproach({ layers }: Pick<LayerProfile, 'layers'>): LayerMethod[] {
  return layers.map((layer) => {
    if (layer.bytes === 0 || /embedding|batchnorm/.test(plainKind(layer))) return 'dha';
    return layer.dha < layer.exec + layer.load ? 'dha' : 'load';
  });
}

/** 'BatchNorm2d' and 'batch-norm' both become 'batchnorm...'. */
const plainKind = ({ kind }: ProfileLayer): string => kind.toLowerCase().replaceAll(/[^a-z]/g, '');

/** The least latency on the curve for so many bytes. */
export function latencyKeeping({ curve }: Residency, bytes: number): number {
  let latencyMs = curve[0]!.latencyMs;
  for (const point of curve) if (point.bytes <= bytes) ({ latencyMs } = point);
  return latencyMs;
}
