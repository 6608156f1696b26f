/**
 * A machine as the planners see it: what its GPUs hold and how fast they are, which links bring weights to them, and
 * what a host program pays for each step. The same form in files (`wrangler-free-config/machine.schema.json`) and in
 * memory.
 *
 * GB/s and TFLOP/s are decimal (10^9, 10^12); bytes are bytes.
 */
export interface Machine {
  readonly name: string;
  readonly description: string;
  /** Where the figures come from, in a sentence: measured where, fitted to what, or estimated from what. */
  readonly source: string;
  /** CPU sockets with the physical cores of each. */
  readonly sockets: readonly { readonly cores: number }[];
  readonly memoryBytes: number;
  /** The tier between disk and GPUs; left out: all main memory may be pinned. */
  readonly hostMemory?: HostMemory;
  /** Where the weights lie that main memory does not hold; left out: unknown. */
  readonly disk?: Disk;
  /** A GPU is named by its position in this list. */
  readonly gpus: readonly MachineGpu[];
  /** PCIe switches, named by position: GPUs on one switch share its way to host memory. */
  readonly switches: readonly PcieSwitch[];
  readonly nvlinks: readonly NvLink[];
  /** Undefined for a machine without GPUs. */
  readonly costs?: CostConstants;
}

export interface HostMemory {
  /** That may be pinned for weights. */
  readonly pinnedBytes: number;
  /** All links together, from main memory. */
  readonly bandwidthGBps: number;
}

export interface Disk {
  /** For models. */
  readonly capacityBytes: number;
  /** Sequential reading into main memory. */
  readonly readGBps: number;
}

export interface MachineGpu {
  readonly model: string;
  readonly memoryBytes: number;
  /** Kept free of weights: the driver's own, workspaces, activations. */
  readonly reserveBytes: number;
  /** Position in `switches`. */
  readonly switch: number;
  /** Host to GPU over this GPU's own PCIe link, as large pinned copies reach it. */
  readonly linkGBps: number;
  /** Of the link, before each copy. */
  readonly copySetupUs: number;
  /** FP32 matrix products. */
  readonly gemmTflops: number;
  /** FP32 batched products of small matrices, as attention has them. */
  readonly batchedGemmTflops: number;
  /** Convolutions, as a share of `gemmTflops`. */
  readonly convolutionShare: number;
  readonly memoryGBps: number;
  /** Time on the GPU that a kernel takes beside its data. */
  readonly kernelUs: number;
  readonly multiprocessors: number;
}

export interface PcieSwitch {
  /** All GPUs of the switch together, from host memory. */
  readonly uplinkGBps: number;
}

export interface NvLink {
  readonly gpus: readonly [number, number];
  /** One direction. */
  readonly linkGBps: number;
  /** Before each layer's copy. */
  readonly copySetupUs: number;
}

/** What the host program pays, and how reads of host memory by kernels behave. Microseconds unless named otherwise. */
export interface CostConstants {
  /** CPU time to issue one tensor's copy. */
  readonly issueUs: number;
  /** CPU time to launch a layer's kernels. */
  readonly launchUs: number;
  /** Added to it while the layer's weights are being loaded. */
  readonly coldLaunchUs: number;
  /** CPU time to launch an operator outside of layers (a sum, a softmax). */
  readonly operatorLaunchUs: number;
  /** Copies that belong to a normalisation by batch beside its ONNX weights (PyTorch counts its batches on the GPU). */
  readonly batchNormExtraTensors: number;
  /** What one link keeps of its speed while several are driven at once. */
  readonly parallelLinkShare: number;
  /** Kernels reading weights from host memory. */
  readonly hostRead: HostReadConstants;
  /** What a profiler cannot see below: the least that it reports. */
  readonly profilerFloor: { readonly execUs: number; readonly loadUsPerTensor: number };
}

export interface HostReadConstants {
  /** Matrix products, convolutions, normalisations by layer. */
  readonly linkGBps: number;
  /** Rows of an embedding, scattered. */
  readonly rowsGBps: number;
  /** Normalisations by batch: one small read after the other. */
  readonly batchNormGBps: number;
  /** A matrix product reads its weights once for so many rows of its input. */
  readonly gemmRowsPerPass: number;
  /** A 1x1 convolution, and one larger than 3x3, reads its weights once for so many output pixels. */
  readonly convolutionPixelsPerPass: number;
  /** A 3x3 convolution reads its weights so many times, */
  readonly convolution3x3Passes: number;
  /** and so many on an output of at most `smallOutputSize` pixels a side. */
  readonly convolution3x3PassesSmall: number;
  readonly smallOutputSize: number;
  readonly batchNormBytesPerChannel: number;
  /** Share of the rows that is read when a table has fewer rows than are looked up: caches serve some repeats. */
  readonly repeatedRowsShare: number;
}
