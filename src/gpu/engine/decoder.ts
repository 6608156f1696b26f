/** Decodes coded layers on a GPU: one launch for each, from where the copy left it to the layer's place. */
import type { Cuda, CudaDevice, CudaModule, CudaStream, DeviceAddress, PreparedLaunch } from '../driver/types.ts';
import type { CodedPack } from '../../coding/index.ts';
import { kernelFrom } from '../operators/common/kernel-file.ts';
import { getOrMake } from '../../tools/index.ts';

/** As in the kernel. */
const warpsPerBlock = 4;

export interface DecodeOrder {
  /** In the memory of the GPU. */
  readonly coded: DeviceAddress;
  readonly codedBytes: number;
  readonly pack: CodedPack;
  readonly to: DeviceAddress;
  /** A word that GPUs can write. It becomes 1 where the coded bytes are not those that were coded. */
  readonly failed: DeviceAddress;
}

export class Decoder {
  readonly #device: CudaDevice;
  readonly #module: CudaModule;
  /** By number of blocks. */
  readonly #launches = new Map<number, PreparedLaunch>();

  private constructor(device: CudaDevice, module: CudaModule) {
    this.#device = device;
    this.#module = module;
  }

  /** @throws CudaError */
  static async load(cuda: Cuda, device: CudaDevice): Promise<Decoder> {
    return new Decoder(device, device.loadModule(await cuda.compiler.compile(kernelFrom('decode', {}), device)));
  }

  /** Submits the launch. */
  decode(stream: CudaStream, { coded, codedBytes, pack, to, failed }: DecodeOrder): void {
    const blocks = Math.ceil((pack.units + 1) / warpsPerBlock);
    const launch = getOrMake(this.#launches, blocks, () =>
      this.#module
        .kernel('decodePack')
        .prepare({ grid: [blocks, 1, 1], block: [32 * warpsPerBlock, 1, 1] }, [
          'pointer',
          'pointer',
          'pointer',
          'u32',
          'u32',
          'u32',
          'i64',
        ]),
    );
    // The driver takes the arguments at the call, so that the next launch can have others.
    for (const [index, value] of [coded, to, failed, codedBytes / 4, pack.units, pack.check, pack.bytes].entries())
      launch.set(index, value);
    // They are parts of larger memory, which others use meanwhile.
    this.#device.declareRange(coded, codedBytes);
    this.#device.declareRange(failed, 4);
    stream.launch(launch);
    this.#device.forgetRange(coded);
    this.#device.forgetRange(failed);
  }

  release(): void {
    for (const launch of this.#launches.values()) launch.release();
    this.#module.release();
  }
}
