/**
 * A machine as the planners see it: memory and speed of its GPUs, the links that bring weights to them, and the CPU
 * time of each step. The form in files (`wrangler-free-config/machine.schema.json`) and in memory is the same.
 *
 * GB/s and TFLOP/s are decimal (10^9, 10^12).
 */
export interface Machine {
  readonly name: string;
  readonly description: string;
  /** Where the figures come from, in a sentence: measured (where), fitted (to what), or estimated (from what). */
  readonly source: string;
  /** CPU sockets, each with its physical cores. */
  readonly sockets: readonly { readonly cores: number }[];
  readonly memoryBytes: number;
  /** The tier between disk and GPUs; left out: all main memory may be pinned. */
  readonly hostMemory?: HostMemory;
  /** Holds the weights that main memory does not; left out: unknown. */
  readonly disk?: Disk;
  /** A GPU is named by its position in this list. */
  readonly gpus: readonly MachineGpu[];
  /** PCIe switches, named by position: GPUs on one switch share its link to host memory. */
  readonly switches: readonly PcieSwitch[];
  readonly nvlinks: readonly NvLink[];
  /** Undefined for a machine without GPUs. */
  readonly costs?: CostConstants;
}

export interface HostMemory {
  /** Bytes that may be pinned for weights. */
  readonly pinnedBytes: number;
  /** Bandwidth of all links together, from main memory. */
  readonly bandwidthGBps: number;
}

export interface Disk {
  /** Bytes for models. */
  readonly capacityBytes: number;
  /** Sequential reads into main memory. */
  readonly readGBps: number;
}

export interface MachineGpu {
  readonly model: string;
  readonly memoryBytes: number;
  /** Kept free of weights, for the driver, workspaces and activations. */
  readonly reserveBytes: number;
  /** Position in `switches`. */
  readonly switch: number;
  /** Host to GPU over this GPU's own PCIe link, in large pinned copies. */
  readonly linkGBps: number;
  /** Time of the link before each copy. */
  readonly copySetupUs: number;
  /** FP32 matrix products. */
  readonly gemmTflops: number;
  /** FP32 batched products of small matrices, as in attention. */
  readonly batchedGemmTflops: number;
  /** Convolutions, as a share of `gemmTflops`. */
  readonly convolutionShare: number;
  readonly memoryGBps: number;
  /** GPU time of a kernel beyond that for its data. */
  readonly kernelUs: number;
  readonly multiprocessors: number;
}

export interface PcieSwitch {
  /** Host memory to all GPUs of the switch together. */
  readonly uplinkGBps: number;
}

export interface NvLink {
  readonly gpus: readonly [number, number];
  /** One direction. */
  readonly linkGBps: number;
  /** Before each layer's copy. */
  readonly copySetupUs: number;
}

/** CPU time of each step, and how fast kernels read host memory. In microseconds unless the name says otherwise. */
export interface CostConstants {
  /** CPU time to issue one tensor's copy. */
  readonly issueUs: number;
  /** CPU time to launch a layer's kernels. */
  readonly launchUs: number;
  /** Extra launch time while the layer's weights are being loaded. */
  readonly coldLaunchUs: number;
  /** CPU time to launch an operator outside of layers (a sum, a softmax). */
  readonly operatorLaunchUs: number;
  /** Extra copies for a batch normalisation beyond its ONNX weights (PyTorch keeps a batch counter on the GPU). */
  readonly batchNormExtraTensors: number;
  /** Share of its speed that a link keeps while several links are in use. */
  readonly parallelLinkShare: number;
  /** Kernels reading weights from host memory. */
  readonly hostRead: HostReadConstants;
  /** The least times that a profiler reports. */
  readonly profilerFloor: { readonly execUs: number; readonly loadUsPerTensor: number };
}

export interface HostReadConstants {
  /** Matrix products, convolutions, normalisations by layer. */
  readonly linkGBps: number;
  /** Rows of an embedding, scattered. */
  readonly rowsGBps: number;
  /** Batch normalisation: many small reads in turn. */
  readonly batchNormGBps: number;
  /** A matrix product reads its weights once for this many rows of its input. */
  readonly gemmRowsPerPass: number;
  /** A 1x1 convolution, or one larger than 3x3, reads its weights once for this many output pixels. */
  readonly convolutionPixelsPerPass: number;
  /** A 3x3 convolution reads its weights this many times, */
  readonly convolution3x3Passes: number;
  /** or this many if the output has at most `smallOutputSize` pixels a side. */
  readonly convolution3x3PassesSmall: number;
  readonly smallOutputSize: number;
  readonly batchNormBytesPerChannel: number;
  /** Share of the rows that is read if a table has fewer rows than lookups: caches serve some repeats. */
  readonly repeatedRowsShare: number;
  /** Time that the link's copies lose to the short reads of a batch normalisation, beside the reads. Left out: none. */
  readonly batchNormPauseUs?: number;
}
