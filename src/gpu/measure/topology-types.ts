import type { CopyBandwidths } from '../../hardware/index.ts';

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
