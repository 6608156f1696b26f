/**
 * The cost of a function's layers on a machine, in the form that DeepPlan's planner takes (Jeong et al. 2023, 4.3.1).
 */

import { profileCheck, ProfileError } from './profile-error.ts';

/** The same form in files (`wrangler-free-config/profiles/layers.schema.json`) and in memory. */
export interface LayerProfile {
  readonly unit: 'ms';
  /** In execution order. */
  readonly layers: readonly ProfileLayer[];
}

export interface ProfileLayer {
  readonly name: string;
  /** 'embedding', 'linear', ...; a framework's own word ('BatchNorm2d') is accepted too. */
  readonly kind: string;
  /** Bytes of its weights; 0 for a layer without any, which is never loaded. */
  readonly bytes: number;
  /** Milliseconds to bring the weights to the GPU, */
  readonly load: number;
  /** to execute with the weights in GPU memory, operators that follow it included, */
  readonly exec: number;
  /** and to execute while the GPU reads them from host memory (direct-host-access). */
  readonly dha: number;
  /** Left out where its weights cross the link as they are. */
  readonly coded?: CodedLayer;
  /** Details that only an estimate has, not a measured profile. */
  readonly cost?: LayerCost;
}

/** Weights that are coded without loss on their way to the GPU: `load` is of these bytes. */
export interface CodedLayer {
  /** On the link, and in host memory. */
  readonly bytes: number;
  /** Milliseconds to decode them on the GPU, once they are there. */
  readonly decode: number;
}

/** What crosses the link where a layer is loaded. */
export const linkBytes = ({ bytes, coded }: Pick<ProfileLayer, 'bytes' | 'coded'>): number => coded?.bytes ?? bytes;

/**
 * The parts of an estimate, in milliseconds unless the name says otherwise. A timeline needs them to keep two clocks
 * per stage.
 */
export interface LayerCost {
  /** Bytes of each copied tensor, as they cross the link. */
  readonly tensorBytes: readonly number[];
  /** GPU time of the layer's own kernels with weights in GPU memory, without a profiler's floor. */
  readonly gpu: number;
  /** The same, with weights in host memory. */
  readonly gpuDha: number;
  /** How long those reads keep the GPU's PCIe link from copies. */
  readonly hostRead: number;
  /** CPU time to launch the layer. */
  readonly launch: number;
  /** Following operators that are not layers (sums, softmax, attention's products). */
  readonly operators: {
    readonly count: number;
    readonly gpu: number;
    readonly launch: number;
  };
}

const check = profileCheck('layers', 'layer profile');

/**
 * Checks the contents of a file. Infinite numbers are refused too: JSON text can contain 1e999.
 * @throws ProfileError with a sentence that names the field
 */
export function parseLayerProfile(json: unknown): LayerProfile {
  check(json);
  const profile = json as LayerProfile;
  for (const [index, layer] of profile.layers.entries()) {
    for (const field of ['bytes', 'load', 'exec', 'dha'] as const) {
      if (Number.isFinite(layer[field])) continue;
      throw new ProfileError(
        `field 'layers[${index}].${field}' of the layer profile is ${layer[field]}, but must be finite`,
      );
    }
    const copied = layer.cost?.tensorBytes.length ?? 1;
    if (layer.bytes > 0 && copied === 0) {
      throw new ProfileError(
        `field 'layers[${index}].cost.tensorBytes' of the layer profile is empty, but the layer has ` +
          `${layer.bytes} bytes`,
      );
    }
  }
  return profile;
}
