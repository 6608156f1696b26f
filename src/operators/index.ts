/** What is known about ONNX's operators, in one record each, and what follows from it alone: shapes, layers, cells. */
import type * as Unroll from './unroll/index.ts';
export { geluAt, type Arithmetic } from './gelu.ts';
export { families, fused, argumentsOf, factsOf, kernelFacts } from './records.ts';
export { runBytesOf } from './run-bytes.ts';
export { typedGraph, typesOf } from './typed-graph.ts';
export { accumulatorOf, elementOf, floatLiteral, plain, type Element } from './element.ts';
export type { LayerKind, Narrow, OperatorFacts } from './facts.ts';
export { layers, type Layer } from './layers.ts';
export { differingAxis, outerAt, placeOf, RowsMeet, type Place, type RowCounts } from './row-rules/place.ts';
export {
  hasRows,
  type Known as RowValue,
  type OtherRows,
  type Outcome,
  type Step as RowStep,
} from './row-rules/step.ts';
export {
  broadcast,
  convolutionWindows,
  inferShapes,
  poolWindows,
  sliceRange,
  type Dims,
  type InferredShapes,
  type ShapeOptions,
} from './shapes/index.ts';

export {
  eachAxis,
  findAttribute,
  floats,
  knownNumbers,
  listOf,
  numbers,
  requiredFrom,
  requireDatatype,
  Unsupported,
  type Term,
  type Expression,
  type Write,
  type Writer,
} from './writing.ts';
/** Unrolls recurrent operators into cells; loaded on demand. */
export const loadUnroll = (): Promise<typeof Unroll> => import('./unroll/index.ts');
