/**
 * The matrix products of one GPU, shared by all users of the same ones: by the library if it has an algorithm, by a
 * kernel of the engine if it has none, or if it failed. Operands are in device memory.
 */
import {
  CudaError,
  type Cuda,
  type CudaDevice,
  type CudaKernel,
  type CudaModule,
  type LaunchShape,
  type Matmul,
  type MatmulDescription,
} from '../driver/types.ts';
import { SharedValues } from '../../tools/index.ts';
import { ownProductOf, type ProductOperand } from '../program/own-product.ts';
import type { Capability } from '../types.ts';

export interface OwnKernel {
  readonly module: CudaModule;
  readonly kernel: CudaKernel;
  readonly shape: LaunchShape;
  readonly operands: readonly ProductOperand[];
}

type LoadedProduct =
  { readonly library: Matmul; readonly own: null } | { readonly library: null; readonly own: OwnKernel };

export type Product = LoadedProduct & {
  /** The library failed at it while it ran: later callers get the kernel. */
  refuse(): void;
  /** Releases one user's share. */
  release(): void;
};

export class Products {
  readonly #cuda: Cuda;
  readonly #device: CudaDevice;
  readonly #without: ReadonlySet<Capability>;
  readonly #loaded = new SharedValues<LoadedProduct>();
  /** Products that the library failed at while they ran. */
  readonly #refused = new Set<string>();

  constructor(cuda: Cuda, device: CudaDevice, without: ReadonlySet<Capability>) {
    this.#cuda = cuda;
    this.#device = device;
    this.#without = without;
  }

  /** Adds one user. @throws CudaError */
  async acquire(description: MatmulDescription): Promise<Product> {
    const text = JSON.stringify(description);
    const byLibrary = !this.#without.has('products') && !this.#refused.has(text);
    const key = `${byLibrary} ${text}`;
    const loaded = await this.#loaded.take(key, () => this.#load(description, byLibrary));
    const release = (): void => {
      if (this.#loaded.leave(key) === undefined) return;
      loaded.library?.release();
      loaded.own?.module.release();
    };
    return { ...loaded, refuse: () => void this.#refused.add(text), release };
  }

  async #load(description: MatmulDescription, byLibrary: boolean): Promise<LoadedProduct> {
    const library = byLibrary ? this.#ofLibrary(description) : null;
    if (library !== null) return { library, own: null };
    const { source, grid, block, operands } = ownProductOf(description);
    const image = await this.#cuda.compiler.compile(source.replaceAll(/\bNAME\b/g, 'product'), this.#device);
    const module = this.#device.loadModule(image);
    return {
      library,
      own: { module, kernel: module.kernel('product'), shape: { grid, block }, operands },
    };
  }

  #ofLibrary(description: MatmulDescription): Matmul | null {
    try {
      return this.#device.createMatmul(description);
    } catch (error) {
      if (error instanceof CudaError && error.code === 'unsupported') return null;
      throw error;
    }
  }
}
