/** The records of all operators, by family. Each family of kernels in `src/gpu/operators` has the names of one of these. */
import { isDefaultDomain, type NodeProto } from '../onnx/index.ts';
import type { Arguments, OperatorFacts } from './facts.ts';
import { attention } from './families/attention.ts';
import { dense } from './families/dense.ts';
import { elementwise, scaleShift } from './families/elementwise.ts';
import { movement } from './families/movement.ts';
import { normalization } from './families/normalization.ts';
import { pooling } from './families/pooling.ts';
import { dequantize, quantize, quantized } from './families/quantized.ts';
import { reduction } from './families/reduction.ts';
import { signal } from './families/signal.ts';
import { views } from './families/views.ts';
import { vision } from './families/vision.ts';
import { withoutKernels } from './families/without-kernels.ts';

export const families = {
  views,
  elementwise,
  attention,
  dense,
  movement,
  reduction,
  normalization,
  pooling,
  quantized,
  vision,
  signal,
  withoutKernels,
} as const satisfies Record<string, Readonly<Record<string, OperatorFacts>>>;

type KernelFacts = Pick<OperatorFacts, 'keeps' | 'narrow' | 'expression' | 'numbers' | 'activation' | 'matrices'>;

const computed: KernelFacts = { keeps: 'nothing' };
const product: KernelFacts = { keeps: 'nothing', narrow: 'product' };
const ofRows: KernelFacts = { keeps: 'nothing', narrow: 'row' };

/** Operators that the compiler makes of several nodes. No model has them, so they have these facts alone. */
export const fused = {
  views: { 'turntable.View': { keeps: 'bytes' } },
  elementwise: {
    'turntable.ScaleShift': { ...computed, expression: scaleShift },
    'turntable.Quantize': { ...computed, expression: quantize },
    'turntable.Dequantize': { ...computed, expression: dequantize },
  },
  attention: { 'turntable.HeadProduct': product, 'turntable.Attention': ofRows },
  dense: {
    'turntable.Product': { ...product, matrices: 'general' },
    'turntable.JointProduct': product,
    'turntable.Conv': product,
  },
  movement: { 'turntable.Resample': computed },
  normalization: { 'turntable.MaskedSoftmax': ofRows, 'turntable.AddLayerNormalization': ofRows },
} as const satisfies { readonly [Family in keyof typeof families]?: Readonly<Record<string, KernelFacts>> };

const microsoft = 'com.microsoft.';
const byType = new Map<string, OperatorFacts>(Object.values(families).flatMap((family) => Object.entries(family)));
/** Fused and quantized operators appear in either domain: exporters and ONNX Runtime do not agree on it. */
const byName = new Map([...byType].map(([type, facts]) => [type.replace(microsoft, ''), facts]));
for (const [type, facts] of byType) if (!type.startsWith(microsoft)) byName.set(type, facts);

/** The record of a node's operator; undefined for an operator that is not known. */
export function factsOf({ opType, domain }: Pick<NodeProto, 'opType' | 'domain'>): OperatorFacts | undefined {
  if (isDefaultDomain(domain)) return byName.get(opType);
  return domain === 'com.microsoft' ? (byType.get(`${microsoft}${opType}`) ?? byName.get(opType)) : undefined;
}

const ofKernels = new Map<string, KernelFacts>([
  ...byType,
  ...Object.values(fused).flatMap((family) => Object.entries<KernelFacts>(family)),
]);

/** What the compiler knows about kernels of a type ('com.microsoft.Gelu', 'turntable.View'). */
export const kernelFacts = (type: string): KernelFacts | undefined => ofKernels.get(type);

/** The inputs of a node whose elements decide one of these. */
export function argumentsOf(proto: NodeProto, ...decide: readonly Arguments['decide'][]): readonly string[] {
  const given = factsOf(proto)?.arguments ?? 'none';
  if (given === 'none' || !decide.includes(given.decide)) return [];
  return proto.input.filter((_, place) => place >= given.from && place !== given.but);
}
