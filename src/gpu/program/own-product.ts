/** A matrix product by the engine's own kernel, for products that the library refuses or operands it cannot read. */
import type { MatmulDescription, MatmulEpilogue, MatmulType } from '../driver/types.ts';
import { kernelOf, ownProduct, type Activation } from '../operators/dense/product.ts';
import type { DataType } from '../../tensor/index.ts';
import type { MatmulWork } from '../work.ts';

export type ProductOperand = keyof Pick<MatmulWork<unknown>, 'a' | 'b' | 'bias' | 'd'>;

const datatypes: Readonly<Record<MatmulType, DataType>> = { f32: 'FP32', f16: 'FP16', bf16: 'BF16' };

const activations: Readonly<Record<MatmulEpilogue, Activation>> = {
  none: 'none',
  bias: 'none',
  relu: 'relu',
  'relu-bias': 'relu',
  'gelu-tanh': 'gelu-tanh',
  'gelu-tanh-bias': 'gelu-tanh',
};

/** A placeholder: the kernel's source has no addresses, they are set when the launch is bound. */
const buffer = { id: 0, byteOffset: 0, bytes: 0 };

export function ownProductOf(description: MatmulDescription) {
  const { m, n, k, batch, alpha, beta, epilogue } = description;
  const product = ownProduct({
    rows: m,
    columns: n,
    depth: k,
    batch: [batch],
    a: {
      buffer,
      storedType: datatypes[description.typeA],
      transposed: description.transposeA,
      leading: description.lda,
      batchStrides: [description.strideA],
    },
    b: {
      buffer,
      storedType: datatypes[description.typeB],
      transposed: description.transposeB,
      leading: description.ldb,
      batchStrides: [description.strideB],
    },
    d: {
      buffer,
      storedType: datatypes[description.typeD],
      leading: description.ldd,
      batchStrides: [description.strideD],
    },
    alpha,
    accumulate: beta !== 0,
    bias: epilogue.endsWith('bias') ? buffer : undefined,
    biasStride: description.strideBias,
    activation: activations[epilogue],
  });
  const { source, blocks, threads } = kernelOf(product);
  return {
    /** One `KERNEL void NAME(...)`. */
    source,
    grid: [blocks, 1, 1] as const,
    block: [threads, 1, 1] as const,
    /** The operand of each kernel parameter, in order. */
    operands: product.parameters.map(({ name }) => name as ProductOperand),
  };
}
