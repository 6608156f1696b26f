/** What a machine's GPUs and the ways between them are, and how fast they were found to be. GB/s are decimal. */
export interface MeasuredTopology {
  readonly gpus: readonly {
    readonly index: number;
    readonly name: string;
    readonly pciBusId: string;
    /** GPUs with the same number share a way to host memory. */
    readonly switch: number;
    /** CPU socket whose memory is nearest; null where the system does not say. */
    readonly numaNode: number | null;
    /** "16.0 GT/s PCIe x16", null where the system does not say. */
    readonly link: string | null;
    /** Pinned host memory to this GPU, with no other copy under way. */
    readonly loadGBps: number;
    /** And back. */
    readonly storeGBps: number;
  }[];
  /** Each two GPUs. */
  readonly pairs: readonly {
    readonly gpus: readonly [number, number];
    readonly peerAccess: boolean;
    /** From the first to the second, and back; null where they cannot reach each other. */
    readonly peerGBps: readonly [number, number] | null;
    /** Host memory to both at once, both together. */
    readonly loadTogetherGBps: number;
  }[];
  /** Of each copy that was timed. */
  readonly copyBytes: number;
}
