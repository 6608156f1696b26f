/**
 * What the layers of a function cost on a machine: the form that DeepPlan's planner takes (Jeong et al. 2023, 4.3.1).
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
  /** 'embedding', 'linear', ...; a framework's own word ('BatchNorm2d') does as well. */
  readonly kind: string;
  /** Of its weights; 0 for a layer without any, which is never loaded. */
  readonly bytes: number;
  /** Milliseconds to bring the weights to the GPU, */
  readonly load: number;
  /** to execute with the weights in GPU memory, operators that follow it included, */
  readonly exec: number;
  /** and to execute while the GPU reads them from host memory (direct-host-access). */
  readonly dha: number;
  /** What an estimate knows beyond that. A measured profile goes without. */
  readonly cost?: LayerCost;
}

/**
 * The parts of an estimate, milliseconds unless named otherwise: what a timeline needs to keep two clocks per stage.
 */
export interface LayerCost {
  /** Bytes of each tensor that is copied. */
  readonly tensorBytes: readonly number[];
  /** Of the GPU, for the layer's own kernels with weights in GPU memory; no profiler's floor in it. */
  readonly gpu: number;
  /** The same, with weights in host memory. */
  readonly gpuDha: number;
  /** How long those reads keep the GPU's PCIe link from copies. */
  readonly hostRead: number;
  /** Of the CPU, to launch the layer. */
  readonly launch: number;
  /** Operators that follow and are no layer of their own (sums, softmax, attention's products). */
  readonly operators: {
    readonly count: number;
    readonly gpu: number;
    readonly launch: number;
  };
}

const check = profileCheck('layers', 'layer profile');

/**
 * Checks what was read from a file. Throws {@link ProfileError} with a sentence that names the field: also for a number
 * that JSON can hold and no clock can show (1e999 reads as infinite).
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
