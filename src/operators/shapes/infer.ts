import { attributeReader, wholeNumbers, type Graph, type Weight } from '../../onnx/index.ts';
import type { Dims, Known } from './dims.ts';
import { factsOf } from '../records.ts';

/** Whole-number constants with more elements than this are tables, not shapes. */
const smallCount = 4096;

export interface ShapeOptions {
  /** Sizes of open dimensions by their names: `{ batch: 1, sequence: 384 }`. */
  readonly dimensions?: Readonly<Record<string, number>>;
  /** Size of an open dimension that `dimensions` does not name; undefined: the shape stays unknown. Default: 1. */
  readonly openSize?: (name: string | undefined) => number | undefined;
  /** The shape of a value from another source, such as ONNX Runtime; it overrides the operator's rule. */
  readonly shapeElsewhere?: (value: string) => Dims | undefined;
}

export interface InferredShapes {
  /** By value name, for every value whose shape is known. */
  readonly values: ReadonlyMap<string, Known>;
  /** Names of nodes whose result shape neither follows from the operator nor is in the file. */
  readonly unknown: readonly string[];
  /** Names of nodes whose rule overrides `shapeElsewhere`. What that says about later values is wrong then. */
  readonly disputed: readonly string[];
}

/**
 * Infers the shape of every value of a graph without running it: from the inputs through the operators, with the whole
 * numbers that shapes are computed from. Lazy weights stay lazy.
 */
export function inferShapes(graph: Graph, options: ShapeOptions = {}): InferredShapes {
  const { dimensions = {}, openSize = () => 1, shapeElsewhere = () => undefined } = options;
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
    const facts = factsOf(proto);
    const rule = typeof facts?.shapes === 'function' ? facts.shapes : undefined;
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
      const agreed = agreement(ruled, shapeElsewhere(output));
      if (agreed !== ruled && ruled !== undefined && facts?.overrulesInference === true) disputed.push(name);
      const result = agreed ?? inFile(output);
      if (result === undefined) {
        // Later results (masks, means) are rarely used; an unknown one does not matter.
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

/** The shape from elsewhere, with the rule's elements if both agree on the dimensions. */
function agreement(ruled: Known | undefined, dims: Dims | undefined): Known | undefined {
  if (dims === undefined) return ruled;
  const isSame = ruled?.dims.length === dims.length && dims.every((size, axis) => size === ruled.dims[axis]);
  return isSame ? ruled : { dims };
}

/** Elements of a constant; those in another file are not read. */
const elementsOf = (weight: Weight): readonly number[] | undefined =>
  weight.tensor?.dataLocation === 1 ? undefined : wholeNumbers(weight, smallCount);
