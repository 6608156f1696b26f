/** A batch of products with one library call for each item, for batches that the library has no algorithm for. */
import { NativeMatmul, type MatmulLibrary } from './matmul.ts';
import { Owned } from './session.ts';
import { CudaError, type Matmul, type MatmulDescription, type MatmulOperands, type MatmulType } from './types.ts';

/** For larger batches one launch of the engine's slower kernel is better. */
const itemsMax = 8;

const bytesOf: Readonly<Record<MatmulType, number>> = { f32: 4, f16: 2, bf16: 2 };

/** @throws CudaError 'unsupported' if the library has an algorithm for neither the batch nor its items */
export function createMatmul(library: MatmulLibrary, description: MatmulDescription): NativeMatmul | MatmulByItems {
  try {
    return new NativeMatmul(library, description);
  } catch (error) {
    const isRefused = error instanceof CudaError && error.code === 'unsupported';
    if (!isRefused || description.batch === 1 || description.batch > itemsMax) throw error;
    return new MatmulByItems(library, description);
  }
}

export class MatmulByItems extends Owned implements Matmul {
  readonly description: MatmulDescription;
  readonly #item: NativeMatmul;

  constructor(library: MatmulLibrary, description: MatmulDescription) {
    super();
    this.description = description;
    const alone = { batch: 1, strideA: 0, strideB: 0, strideD: 0, strideBias: 0 };
    this.#item = new NativeMatmul(library, { ...description, ...alone });
  }

  get workspaceBytes(): number {
    return this.#item.workspaceBytes;
  }

  /** The device's context must be current. */
  run(operands: MatmulOperands, stream: number): void {
    const { batch, strideA, strideB, strideD, strideBias = 0, typeA, typeB, typeD } = this.description;
    for (let item = 0; item < batch; item++) {
      const { a, b, d, bias, workspace } = operands;
      const at = {
        a: a + item * strideA * bytesOf[typeA],
        b: b + item * strideB * bytesOf[typeB],
        d: d + item * strideD * bytesOf[typeD],
        bias: bias + item * strideBias * bytesOf[typeD],
        workspace,
      };
      this.#item.run(at, stream);
    }
  }

  protected giveBack(): void {
    this.#item.release();
  }
}
