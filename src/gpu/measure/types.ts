import type { CopyBandwidths } from '../../hardware/index.ts';
import type { LayerProfile } from '../../profile/index.ts';

/**
 * A machine's GPUs and what copies to and between them were measured at: concludeTopology says how they hang together.
 */
export interface MeasuredTopology extends CopyBandwidths {
  readonly gpus: readonly (CopyBandwidths['gpus'][number] & {
    readonly index: number;
    readonly name: string;
    readonly pciBusId: string;
    /** As the system says, which may hide it: GPUs with the same number hang on the same PCIe switch. */
    readonly switch: number;
    /** CPU socket whose memory is nearest; null where the system does not say. */
    readonly numaNode: number | null;
    /** "16.0 GT/s PCIe x16", null where the system does not say. */
    readonly link: string | null;
    /** To pinned host memory, with no other copy under way. */
    readonly storeGBps: number;
  })[];
  /** Of each copy that was timed. */
  readonly copyBytes: number;
}

export interface MeasureOptions {
  readonly gpu: number;
  /** Timed repetitions of each measurement. Default 10. */
  readonly iterations?: number;
  /** Whether layers that are no embeddings are also timed from host memory. Default true. */
  readonly allFromHost?: boolean;
  /**
   * Weights on the GPU at a time: layers that do not fit together are timed one group after the other. Default: all of
   * them.
   */
  readonly bytesMax?: number;
}

/** How much the repetitions of one time differed. */
export interface MeasuredSpread {
  readonly medianMs: number;
  readonly minMs: number;
  readonly maxMs: number;
}

export interface MeasuredLayerProfile extends LayerProfile {
  readonly gpu: string;
  readonly iterations: number;
  /** Layer by layer, in the profile's order. */
  readonly spread: readonly {
    readonly load: MeasuredSpread;
    readonly exec: MeasuredSpread;
    readonly dha: MeasuredSpread;
  }[];
  /** One warm run from the first launch to the last, no event between. */
  readonly warm: MeasuredSpread;
}
