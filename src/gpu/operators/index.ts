/** All operators of the engine. */
import { families, type OperatorFacts } from '../../operators/index.ts';
import { attention } from './attention/attention.ts';
import { headProduct, wholeAttention } from './attention/head-product.ts';
import { groupQueryAttention } from './attention/group-query.ts';
import { rotaryOperators } from './attention/rotary.ts';
import { convolutionOperators } from './dense/convolution.ts';
import { matmulOperators } from './dense/matmul.ts';
import { recurrentOperators } from './dense/recurrent.ts';
import { elementwiseOperators } from './elementwise/expressed.ts';
import { gatheringOperators } from './movement/gathering.ts';
import { joiningOperators } from './movement/joining.ts';
import { resample } from './movement/resample.ts';
import { scatteringOperators } from './movement/scattering.ts';
import { stridedOperators } from './movement/strided.ts';
import { transpose } from './movement/transpose.ts';
import { rowNormalizationOperators } from './normalization/layer-normalization.ts';
import { softmaxOperators } from './normalization/softmax.ts';
import { poolingOperators } from './pooling/index.ts';
import { blockwiseOperators } from './quantized/blockwise.ts';
import { integerOperators } from './quantized/products.ts';
import { reductionOperators } from './reduction/index.ts';
import type { KernelFamily, KernelNameOf, Operator } from './types.ts';
import { viewOperators } from './views.ts';
import { gridOperators } from './vision/grid-sample.ts';
import { regionOperators } from './vision/regions.ts';

/** Compiles only if each operator of each family has kernels, and none is in another family than its record. */
type Whole<Kernels extends Record<KernelFamily, readonly Operator[]>> = {
  readonly [Family in KernelFamily]: [Exclude<KernelNameOf<Family>, Kernels[Family][number]['type']>] extends [never]
    ? readonly (Operator & { readonly type: KernelNameOf<Family> })[]
    : { readonly lacks: Exclude<KernelNameOf<Family>, Kernels[Family][number]['type']> };
};

const kernelsOf = <Kernels extends Record<KernelFamily, readonly Operator[]>>(
  kernels: Kernels & Whole<Kernels>,
): Readonly<Record<KernelFamily, readonly Operator[]>> => kernels;

/** The kernels of each family of records. */
const byFamily = kernelsOf({
  views: viewOperators,
  /** Attention operators, and the parts that fusion makes. */
  attention: [headProduct, wholeAttention, attention, ...rotaryOperators, groupQueryAttention],
  /** Matrix products, convolutions, and recurrent networks. */
  dense: [...matmulOperators, ...convolutionOperators, ...recurrentOperators],
  /** Operators that move elements without computing with them. */
  movement: [
    transpose,
    ...stridedOperators,
    ...joiningOperators,
    ...gatheringOperators,
    ...scatteringOperators,
    resample,
  ],
  reduction: reductionOperators,
  /** Softmax and the normalisations. */
  normalization: [...softmaxOperators, ...rowNormalizationOperators],
  pooling: poolingOperators,
  /** On quantised tensors: 8-bit products and convolutions, and weights of few bits. */
  quantized: [...integerOperators, ...blockwiseOperators],
  /** Operators on images: sampling by a grid, pooling of regions, and deformable convolutions. */
  vision: [...gridOperators, ...regionOperators],
});

const written = Object.values(families)
  .flatMap((family) => Object.entries<OperatorFacts>(family))
  .flatMap(([type, { write }]): Operator[] => (write === undefined ? [] : [{ type, write, emit() {} }]));

export const operators: readonly Operator[] = [...elementwiseOperators, ...Object.values(byFamily).flat(), ...written];
