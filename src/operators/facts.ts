/**
 * What is known about an operator, as one record: everything but its kernels, which `src/gpu/operators` joins by name.
 * A record without a rule for shapes or rows does not compile. The other parts come from {@link ordinary}, and
 * an operator that is not ordinary says so.
 */
import type { AttributeReader, NodeProto } from '../onnx/index.ts';
import type { Rule as ChunkRule } from './chunks/rules.ts';
import type { Rule as RowRule } from './row-rules/step.ts';
import { like, type ResultType } from './result-types.ts';
import type { Rule as ShapeRule } from './shapes/rule.ts';
import type { Expression, Write } from './writing.ts';

export type LayerKind = 'embedding' | 'linear' | 'conv' | 'norm' | 'recurrent' | 'other';

/** Inputs, all from one place on, whose elements must be known before a run. */
export interface Arguments {
  readonly from: number;
  /** A place behind `from` that is data: STFT's window, the values of Pad and OneHot. */
  readonly but?: number;
  /**
   * - `shape`: they decide the result's shape.
   * - `growth`: they do too, and grow with each call: a program for one of the sizes would not be used twice.
   * - `kernel`: they do not, but the kernel needs them as constants.
   */
  readonly decide: 'shape' | 'growth' | 'kernel';
}

export interface OperatorFacts {
  /**
   * Shapes of the results. `run`: the inputs' shapes decide, in a way that only ONNX Runtime tells; `elements`: the
   * inputs' elements, a condition or the content of a sequence decide, so no shape is known before a run.
   */
  readonly shapes: ShapeRule | 'run' | 'elements';
  /** Element types of the results; the last one is that of all further results. */
  readonly types: readonly [ResultType, ...ResultType[]];
  /** ONNX's own inference differs from ONNX Runtime's kernels in places; the shape rule follows the kernels. */
  readonly overrulesInference?: true;
  readonly arguments: Arguments | 'none';
  /** Where the results have the rows of calls that share a run. `unknown`: nothing is known, so no calls share one. */
  readonly rows: RowRule | 'unknown';
  /**
   * How it is applied to chunks of the steps of a sequence, if the rule of its rows does not say it, because sizes are
   * among its arguments. `whole`: it needs all steps at once.
   */
  readonly chunks?: ChunkRule | 'whole';
  /** How the analytic estimate prices it. `traffic`: it is as fast as the memory that it reads and writes. */
  readonly cost: 'traffic' | 'product' | 'convolution' | 'recurrence' | 'lookup' | 'channel-normalization';
  /** Whether a rounding error of its input may change its result altogether. */
  readonly jumps: (node: NodeProto) => boolean;
  /** The kind of layer that its weights begin. */
  readonly layer: Exclude<LayerKind, 'other'> | 'none';
  /** Which inputs can be weights. `first`: constants in the others are arguments, such as scales, limits and sizes. */
  readonly weights: 'any' | 'first';
  /**
   * What its result keeps of its first input: all bytes in their order, or all elements, perhaps moved or converted.
   */
  readonly keeps: 'bytes' | 'elements' | 'nothing';
  /**
   * What it is in PyTorch. `activation`, `pool`: a module of this kind; `activation-behind-weights`: one only directly
   * behind a module with weights; `free`: it runs no kernel; `function`: it is no module.
   */
  readonly leaf: 'activation' | 'pool' | 'activation-behind-weights' | 'free' | 'function';
  /**
   * Whether models compute shapes with it: from its inputs' elements, or from its input's shape. Where the shape rule
   * gives elements, these small whole numbers are exact.
   */
  readonly arithmetic: 'elements' | 'shape' | 'none';
  /** It may have inputs in 32 bits and a result in 16. */
  readonly mixesPrecisions?: true;
  /** What an elementwise operator computes, in C. Chains of such operators become one kernel. */
  readonly expression?: Expression;
  /** What it computes, in JavaScript. Fusion evaluates trees of such operators to find GELU in all its forms. */
  readonly numbers?: (a: number, b: number) => number;
  /** The activation of a product's or convolution's kernel that does the same, if its attributes allow one. */
  readonly activation?: (attribute: AttributeReader) => 'relu' | 'gelu-tanh' | undefined;
  /** A matrix product. `general`: like Gemm, with a third input that is added, transposes and factors. */
  readonly matrices?: 'plain' | 'general';
  /** How it is written as other operators, for one that has no kernels. */
  readonly write?: Write;
  /** How it deals with values that are kept in 16 bits; undefined: as an elementwise operator, or not at all. */
  readonly narrow?: Narrow;
}

/**
 * - `product`: converts both operands to the type of its weights.
 * - `recurrent`: the same for its products, whose results and states have 32 bits.
 * - `row`: reads and writes 16 bits, and computes in 32.
 * - `pool`, `join`: passes values on in the type that they have; a join's inputs and result have one type.
 * - `lookup`: reads a table in 16 bits, and writes 32.
 */
export type Narrow = 'product' | 'recurrent' | 'row' | 'pool' | 'join' | 'lookup';

export const always = (): boolean => true;
export const never = (): boolean => false;

/** The parts that most operators share. */
export const ordinary = {
  types: [like(0)],
  arguments: 'none',
  cost: 'traffic',
  jumps: never,
  layer: 'none',
  weights: 'any',
  keeps: 'nothing',
  leaf: 'function',
  arithmetic: 'none',
} as const satisfies Partial<OperatorFacts>;

/** Arguments that decide the result's shape. */
export const sizedFrom = (from: number, but?: number): Arguments => ({
  from,
  ...(but === undefined ? {} : { but }),
  decide: 'shape',
});

type Words<Text extends string> = Text extends `${infer First} ${infer Rest}` ? First | Words<Rest> : Text;

/** One record for several operators, whose names blanks separate. */
export const each = <const Names extends string, Facts extends OperatorFacts>(
  names: Names,
  facts: Facts,
): Readonly<Record<Words<Names>, Facts>> =>
  Object.fromEntries(names.split(' ').map((name) => [name, facts])) as Record<Words<Names>, Facts>;
