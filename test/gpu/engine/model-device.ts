/**
 * One GPU of the model driver, which stands in for CUDA in tests of the engine: its memory, and what buffers declared.
 */
import {
  CudaError,
  type CudaDevice,
  type CudaEvent,
  type CudaModule,
  type CudaStream,
  type DeviceMemory,
  type PreparedLaunch,
} from '../../../src/gpu/driver/types.ts';
import { ModelEvent, ModelStream, never, type ModelMachine, type PeerDevice } from './model-streams.ts';

export class ModelDevice implements PeerDevice {
  readonly index: number;
  readonly name = 'Model GPU';
  readonly computeCapability = { major: 9, minor: 0 };
  readonly multiprocessors = 1;
  /** Bytes copied so far, by direction. */
  readonly copied = { fromHost: 0, toHost: 0, toPeers: 0 };
  /** Bytes of the ranges that buffers have declared, by address. */
  readonly declared = new Map<number, number>();
  /** GPUs whose memory this one may access. */
  readonly peers = new Set<number>();
  readonly #cuda: ModelMachine;
  #usedBytes = 0;
  #nextAddress: number;

  constructor(cuda: ModelMachine, index: number) {
    this.#cuda = cuda;
    this.index = index;
    this.#nextAddress = (index + 1) * 2 ** 40;
  }

  get uuid(): string {
    return `GPU-${this.index}`;
  }

  get pciBusId(): string {
    return `0000:0${this.index}:00.0`;
  }

  get totalBytes(): number {
    return this.#cuda.options.deviceBytes;
  }

  memory() {
    return { freeBytes: this.totalBytes - this.#usedBytes, totalBytes: this.totalBytes };
  }

  allocate(bytes: number): DeviceMemory {
    this.#cuda.check('allocate');
    if (bytes > this.totalBytes - this.#usedBytes) {
      throw new CudaError('out-of-memory', 'cuMemAlloc_v2', 2, 'CUDA_ERROR_OUT_OF_MEMORY', 'out of memory');
    }
    const address = this.#nextAddress;
    this.#nextAddress += Math.ceil(bytes / 4096) * 4096 + 4096;
    const allocation = this.#cuda.allocate(address, bytes, this.index);
    this.#usedBytes += bytes;
    this.#cuda.live.deviceBytes += bytes;
    return {
      bytes,
      address,
      ...this.#cuda.releasable(() => {
        this.#cuda.drop(allocation);
        this.#usedBytes -= bytes;
        this.#cuda.live.deviceBytes -= bytes;
      }),
    };
  }

  createStream(): CudaStream {
    return new ModelStream(this.#cuda, this);
  }

  createEvent(): CudaEvent {
    return new ModelEvent(this.#cuda, this);
  }

  loadModule(): CudaModule {
    this.#cuda.live.modules++;
    return {
      kernel: (name) => ({
        name,
        prepare: (shape): PreparedLaunch => {
          const values: number[] = [];
          return {
            kernel: this.#module.kernel(name),
            shape,
            set: (index, value) => (values[index] = value),
            values,
            ...this.#cuda.releasable(() => undefined),
          } as PreparedLaunch & { values: number[] };
        },
      }),
      ...this.#cuda.releasable(() => this.#cuda.live.modules--),
    };
  }

  readonly #module = { kernel: (name: string) => ({ name, prepare: () => never() }) };

  canAccessPeer(other: CudaDevice): boolean {
    return this.#cuda.options.peers?.(this.index, other.index) ?? true;
  }

  enablePeerAccess(other: CudaDevice): void {
    this.peers.add(other.index);
  }

  createMatmul(): never {
    return never();
  }

  declareRange(address: number, bytes: number): void {
    this.declared.set(address, bytes);
  }

  forgetRange(address: number): void {
    if (!this.declared.delete(address))
      throw new Error(`the range at ${address} is to be forgotten, but was never declared`);
  }
}
