import type { CopyBandwidths } from '../../hardware/index.ts';
import type { LayerProfile } from '../../profile/index.ts';

/** The measured bandwidths of copies to and between GPUs, from which concludeTopology finds how they are connected. */
export interface MeasuredTopology extends CopyBandwidths {
  readonly gpus: readonly (CopyBandwidths['gpus'][number] & {
    readonly index: number;
    readonly name: string;
    readonly pciBusId: string;
    /** GPUs with the same number are on the same PCIe switch, as far as the operating system shows it. */
    readonly switch: number;
    /** CPU socket with the nearest memory; null if the operating system does not say. */
    readonly numaNode: number | null;
    /** '16.0 GT/s x16'; null if the operating system does not say. */
    readonly link: string | null;
    /** From the GPU to pinned host memory, with no other copy under way. */
    readonly storeGBps: number;
  })[];
  /** Bytes of a timed copy. */
  readonly copyBytes: number;
}

export interface MeasureOptions {
  readonly gpu: number;
  /** Timed repetitions of each measurement. Default 10. */
  readonly iterations?: number;
  /**
   * Limit for the weights on the GPU. Layers that do not fit together are timed one group after the other. Default: no
   * limit.
   */
  readonly bytesMax?: number;
}

/** Median and range of a time's repetitions. */
export interface MeasuredSpread {
  readonly medianMs: number;
  readonly minMs: number;
  readonly maxMs: number;
}

export interface MeasuredLayerProfile extends LayerProfile {
  readonly gpu: string;
  readonly iterations: number;
  /** By layer, in the profile's order. */
  readonly spread: readonly {
    readonly load: MeasuredSpread;
    readonly exec: MeasuredSpread;
    readonly dha: MeasuredSpread;
  }[];
  /** A warm run from the first launch to the last, without events in between. */
  readonly warm: MeasuredSpread;
}
