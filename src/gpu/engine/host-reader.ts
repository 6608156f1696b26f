/**
 * Copies from pinned host memory that must not wait for the copies of weights: inputs, and layers that execute from
 * host memory. All copies by the driver queue in one engine of the GPU, whatever their streams: on an H200 the inputs of
 * a ResNet-50 waited 24 ms for all weights of a BERT-Large. A kernel reads beside them.
 */
import type { Cuda, CudaDevice, CudaModule, CudaStream, DeviceAddress, PreparedLaunch } from '../driver/types.ts';
import { kernelFrom } from '../operators/common/kernel-file.ts';
import { getOrMake } from '../../tools/index.ts';

const threadsPerBlock = 256;
/** Enough reads at once to fill a PCIe link of the fifth generation. */
const blocksMax = 64;
/** Of one thread's reads: fewer blocks suffice for a few bytes. */
const bytesPerThread = 64;

export class HostReader {
  /** What it has copied so far: the driver counts its own copies only. */
  bytes = 0;
  readonly #device: CudaDevice;
  readonly #module: CudaModule;
  /** By number of blocks. */
  readonly #launches = new Map<number, PreparedLaunch>();

  private constructor(device: CudaDevice, module: CudaModule) {
    this.#device = device;
    this.#module = module;
  }

  /** @throws CudaError */
  static async load(cuda: Cuda, device: CudaDevice): Promise<HostReader> {
    return new HostReader(device, device.loadModule(await cuda.compiler.compile(kernelFrom('from-host', {}), device)));
  }

  /** Submits a copy. The source must be pinned host memory. */
  copy(stream: CudaStream, to: DeviceAddress, from: DeviceAddress, bytes: number): void {
    const wanted = Math.ceil(bytes / (threadsPerBlock * bytesPerThread));
    const blocks = wanted <= 1 ? 1 : wanted <= 8 ? 8 : blocksMax;
    const launch = getOrMake(this.#launches, blocks, () =>
      this.#module
        .kernel('fromHost')
        .prepare({ grid: [blocks, 1, 1], block: [threadsPerBlock, 1, 1] }, ['pointer', 'pointer', 'i64']),
    );
    // The driver takes the arguments at the call, so that the next copy can have others.
    launch.set(0, from);
    launch.set(1, to);
    launch.set(2, bytes);
    // It is a part of larger memory, which others use meanwhile.
    this.#device.declareRange(from, bytes);
    stream.launch(launch);
    this.#device.forgetRange(from);
    this.bytes += bytes;
  }

  release(): void {
    for (const launch of this.#launches.values()) launch.release();
    this.#module.release();
  }
}
