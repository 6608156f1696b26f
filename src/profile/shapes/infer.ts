import { attributeReader, wholeNumbers, type Graph, type Weight } from '../../onnx/index.ts';
import type { Dims, Known } from './dims.ts';
import { shapeRules } from './rules.ts';

/** Whole-number constants with more elements than this are tables, not shapes. */
const smallCount = 4096;

export interface ShapeOptions {
  /** Sizes of open dimensions by their names: `{ batch: 1, sequence: 384 }`. */
  readonly dimensions?: Readonly<Record<string, number>>;
  /**
   * Size of an open dimension that `dimensions` does not name; undefined where the shape is not known then. Default: 1.
   */
  readonly openSize?: (name: string | undefined) => number | undefined;
  /** The shape of a value as somebody else found it, ONNX Runtime for one: it goes before the operator's rule. */
  readonly told?: (value: string) => Dims | undefined;
}

export interface InferredShapes {
  /** By value name, for every value whose shape follows. */
  readonly values: ReadonlyMap<string, Known>;
  /** Names of nodes whose results have a shape that neither follows from the operator nor stands in the file. */
  readonly unknown: readonly string[];
  /** Names of nodes whose rule knows better than what was told: what was told of later values is then worth nothing. */
  readonly disputed: readonly string[];
}

/** Their rules are those of ONNX Runtime's kernels, which the inference of ONNX does not follow everywhere. */
const ruledByKernels = new Set(['AveragePool', 'ConvTranspose', 'LpPool', 'MaxPool', 'Slice']);

/**
 * The shape of every value of a graph, without running it: from the inputs' shapes through the operators, with the
 * whole numbers that shapes are computed from. A model that was built with lazy weights is never filled.
 */
export function inferShapes(graph: Graph, options: ShapeOptions = {}): InferredShapes {
  const { dimensions = {}, openSize = () => 1, told = () => undefined } = options;
  const sized = (size: number | string | undefined): number | undefined =>
    typeof size === 'number' ? size : ((size === undefined ? undefined : dimensions[size]) ?? openSize(size));
  const inFile = (name: string): Known | undefined => {
    const dims = graph.shape(name)?.map(sized);
    return dims?.every((size) => size !== undefined) === true ? { dims } : undefined;
  };
  const values = new Map<string, Known>();
  const weights = new Map<Weight, Known>();
  const lookUp = (name: string): Known | undefined => {
    const known = values.get(name);
    if (known !== undefined) return known;
    const weight = graph.weight(name);
    if (weight === undefined) return undefined;
    let found = weights.get(weight);
    if (found === undefined) weights.set(weight, (found = { dims: weight.dims, ints: elementsOf(weight) }));
    values.set(name, found);
    return found;
  };
  for (const name of graph.inputs) {
    const known = inFile(name);
    if (known !== undefined) values.set(name, known);
  }
  const unknown: string[] = [];
  const disputed: string[] = [];
  for (const { proto, name } of graph.nodes) {
    const rule = shapeRules.get(proto.opType);
    const found = rule?.({
      inputs: proto.input.map((input) => (input === '' ? undefined : lookUp(input))),
      isGiven: (place) => (proto.input[place] ?? '') !== '',
      attribute: attributeReader(proto),
      outputCount: proto.output.length,
    });
    let complete = true;
    for (const [place, output] of proto.output.entries()) {
      if (output === '' || graph.weight(output) !== undefined) continue;
      const ruled = found?.[place];
      const agreed = agreement(ruled, told(output));
      if (agreed !== ruled && ruled !== undefined && ruledByKernels.has(proto.opType)) disputed.push(name);
      const result = agreed ?? inFile(output);
      if (result === undefined) {
        // The second and later results (masks, means) are rarely used, and cost nothing to leave open.
        if (place === 0) complete = false;
        continue;
      }
      const { dims, ints } = result;
      values.set(output, ints !== undefined && ints.length <= smallCount ? result : { dims });
    }
    if (!complete) unknown.push(name);
  }
  return { values, unknown, disputed };
}

/** What was told, with the elements of the rule where both mean the same tensor. */
function agreement(ruled: Known | undefined, told: Dims | undefined): Known | undefined {
  if (told === undefined) return ruled;
  const isSame = ruled?.dims.length === told.length && told.every((size, axis) => size === ruled.dims[axis]);
  return isSame ? ruled : { dims: told };
}

/** Those of a constant in another file are left there. */
const elementsOf = (weight: Weight): readonly number[] | undefined =>
  weight.tensor?.dataLocation === 1 ? undefined : wholeNumbers(weight, smallCount);
