/**
 * What a graph shows about the rows of a call in a run with more rows: other calls' (they are joined), or its own last
 * row repeated (it is padded). The graphs for few and for many rows are compared node by node. For each value, the
 * rules show that each row of the larger one follows from the same row of the inputs alone, as in the smaller one, or
 * that both are the same. Where they cannot, the error says whether a node is known to mix rows.
 */
import { elementCount, type Tensor } from '../tensor/index.ts';
import { isRandom, type NodeProto } from '../onnx/index.ts';
import {
  differingAxis,
  factsOf,
  hasRows,
  outerAt,
  placeOf,
  RowsMeet,
  type OtherRows,
  type Outcome,
  type Place,
  type RowCounts,
  type RowStep as Step,
  type RowValue as Known,
} from '../operators/index.ts';
import { repeated } from './layout.ts';

/** A model's graph for one number of rows. */
export interface RowGraph {
  /** Version of the default operator set. */
  readonly opset: number;
  /** In an order in which they can run. */
  readonly nodes: readonly { readonly proto: NodeProto; readonly name: string }[];
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  /** Shapes by value; those that are not known are missing. */
  readonly values: ReadonlyMap<string, { readonly shape: readonly number[] }>;
  /** Values that are known before a run. */
  readonly constants: ReadonlyMap<string, Tensor>;
  /** Values that are the same for any number of rows, and whose elements are not needed. */
  readonly weights: { has(value: string): boolean };
}

export interface RowsOf {
  readonly name: string;
  /** The tensor's memory is [outer, rows, ...]; undefined for a tensor without rows. */
  readonly outer: number | undefined;
  /** The shape with the call's rows. */
  readonly shape: readonly number[];
}

export interface Rows {
  readonly inputs: readonly RowsOf[];
  readonly outputs: readonly RowsOf[];
}

export type RowsFound =
  | ({ readonly kind: 'apart' } & Rows)
  /** @see RowsMeet */
  | { readonly kind: 'meet'; readonly isShown: boolean; readonly reason: string };

/** @param axes of the rows, by input */
export function rowsOf(
  few: RowGraph,
  many: RowGraph,
  axes: ReadonlyMap<string, number>,
  counts: RowCounts,
  others: OtherRows,
): RowsFound {
  try {
    return { kind: 'apart', ...new Comparison(few, many, counts, others).run(axes) };
  } catch (error) {
    if (error instanceof RowsMeet) return { kind: 'meet', isShown: error.isShown, reason: error.message };
    throw error;
  }
}

const textOf = (attributes: unknown): string =>
  JSON.stringify(attributes, (_, value: unknown) => {
    if (typeof value === 'bigint') return String(value);
    return value instanceof Uint8Array ? Buffer.from(value).toString('base64') : value;
  });

class Comparison {
  readonly #few: RowGraph;
  readonly #many: RowGraph;
  readonly #counts: RowCounts;
  readonly #others: OtherRows;
  /** By name in the smaller graph. */
  readonly #known = new Map<string, Known>();
  /** Names in the larger graph. */
  readonly #names = new Map<string, string>();

  constructor(few: RowGraph, many: RowGraph, counts: RowCounts, others: OtherRows) {
    this.#few = few;
    this.#many = many;
    this.#counts = counts;
    this.#others = others;
  }

  run(axes: ReadonlyMap<string, number>): Rows {
    const [few, many] = [this.#few, this.#many];
    if (few.nodes.length !== many.nodes.length) throw new RowsMeet('the graph changes with the number of rows');
    const inputs = few.inputs.map((name): RowsOf => {
      const axis = axes.get(name);
      const sizes = this.#sizes(name, name);
      const outer = axis === undefined ? undefined : outerAt(sizes.few, { axis, before: 1 });
      this.#add(name, name, outer === undefined ? { kind: 'same' } : { kind: 'rows', outer });
      return { name, outer, shape: sizes.few };
    });
    for (const [index, node] of few.nodes.entries()) this.#step(node, many.nodes[index]!);
    const outputs = few.outputs.map((name, index): RowsOf => {
      const known = this.#valueOf(name, many.outputs[index]!);
      if (known.kind === 'other') throw new RowsMeet(`output '${name}' depends on the number of rows`);
      return { name, outer: known.kind === 'rows' ? known.outer : undefined, shape: known.few };
    });
    return { inputs, outputs };
  }

  #step({ proto, name }: RowGraph['nodes'][number], larger: RowGraph['nodes'][number]): void {
    const isAlike =
      proto.opType === larger.proto.opType &&
      proto.domain === larger.proto.domain &&
      proto.input.length === larger.proto.input.length &&
      proto.output.length === larger.proto.output.length &&
      textOf(proto.attribute) === textOf(larger.proto.attribute);
    if (!isAlike) throw new RowsMeet(`node '${name}' changes with the number of rows`);
    const results = proto.output.map((value, place) => [value, larger.proto.output[place]!] as const);
    // Arithmetic on shapes, in a graph that nobody has folded.
    if (results.every(([own, other]) => this.#few.constants.has(own) && this.#many.constants.has(other))) {
      for (const [own, other] of results) this.#valueOf(own, other);
      return;
    }
    const inputs = proto.input.map((value, place) => this.#taken(value, larger.proto.input[place]!));
    const sizes = results.map(([own, other]) =>
      own === '' || !this.#few.values.has(own) ? undefined : this.#sizes(own, other),
    );
    const [{ opset }, counts, others] = [this.#few, this.#counts, this.#others];
    const step: Step = { proto, name, opset, inputs, outputs: sizes, counts, others };
    for (const [place, outcome] of outcomesOf(step).entries()) {
      if (sizes[place] !== undefined) this.#add(...results[place]!, outcome);
    }
  }

  #taken(value: string, larger: string): Known | undefined {
    if ((value === '') !== (larger === '')) throw new RowsMeet('the omitted inputs change with the number of rows');
    return value === '' ? undefined : this.#valueOf(value, larger);
  }

  #valueOf(value: string, larger: string): Known {
    const known = this.#known.get(value);
    if (known !== undefined) {
      if (this.#names.get(value) !== larger)
        throw new RowsMeet(`the use of '${value}' changes with the number of rows`);
      return known;
    }
    if (this.#few.weights.has(value) && value === larger) return this.#add(value, larger, { kind: 'same' });
    const [own, other] = [this.#few.constants.get(value), this.#many.constants.get(larger)];
    if (own === undefined || other === undefined) throw new RowsMeet(`'${value}' is not known`);
    return this.#add(value, larger, comparedConstants(own, other, this.#counts));
  }

  #sizes(value: string, larger: string): { few: readonly number[]; many: readonly number[] } {
    const [few, many] = [this.#few.values.get(value)?.shape, this.#many.values.get(larger)?.shape];
    if (few === undefined || many === undefined) throw new RowsMeet(`the shape of '${value}' is not known`);
    if (few.includes(0) || many.includes(0)) throw new RowsMeet(`'${value}' has no elements`);
    return { few, many };
  }

  #add(value: string, larger: string, outcome: Outcome): Known {
    const sizes = this.#sizes(value, larger);
    const constant = this.#few.constants.get(value);
    let known: Known;
    if (outcome.kind === 'rows') {
      const place: Place = placeOf(sizes, outcome.outer, this.#counts);
      known = { kind: 'rows', outer: outcome.outer, place, ...sizes, constant };
    } else {
      if (outcome.kind === 'same' && sizes.few.join() !== sizes.many.join())
        throw new RowsMeet(`'${value}' depends on the number of rows`);
      known = { kind: outcome.kind, ...sizes, constant };
    }
    this.#known.set(value, known);
    this.#names.set(value, larger);
    return known;
  }
}

function outcomesOf(step: Step): readonly Outcome[] {
  const { proto, inputs, outputs, name } = step;
  const rule = factsOf(proto)?.rows ?? 'unknown';
  const isSame =
    inputs.every((input) => input === undefined || input.kind === 'same') &&
    outputs.every((sizes) => sizes === undefined || sizes.few.join() === sizes.many.join());
  if (isRandom(proto.opType) || proto.attribute.some(({ g }) => g !== undefined))
    throw new RowsMeet(`${proto.opType} '${name}' is random or has a nested graph`);
  if (isSame) return outputs.map(() => ({ kind: 'same' }));
  try {
    if (rule === 'unknown') throw new RowsMeet(`there is no rule for the rows of ${proto.opType} '${name}'`);
    if (outputs[0] === undefined && proto.output[0] !== '') throw new RowsMeet(`the shape of '${name}' is not known`);
    return rule(step);
  } catch (error) {
    // No row is in it, only their number: the nodes that read it say whether that matters.
    if (error instanceof RowsMeet && !inputs.some(hasRows)) return outputs.map(() => ({ kind: 'other' }));
    throw error;
  }
}

function comparedConstants(few: Tensor, many: Tensor, counts: RowCounts): Outcome {
  if (few.datatype !== many.datatype) return { kind: 'other' };
  const [own, other] = [Buffer.from(few.data), Buffer.from(many.data)];
  const sizes = { few: few.shape, many: many.shape };
  if (few.shape.join() === many.shape.join()) return { kind: own.equals(other) ? 'same' : 'other' };
  const axis = differingAxis(sizes);
  const perRow = axis === undefined ? 0 : few.shape[axis]! / counts.few;
  if (axis === undefined || !Number.isInteger(perRow) || many.shape[axis]! / counts.many !== perRow)
    return { kind: 'other' };
  for (let before = 1; before <= perRow; before++) {
    if (perRow % before !== 0) continue;
    const outer = elementCount(few.shape.slice(0, axis)) * before;
    if (repeated(own, outer, counts).equals(other)) return { kind: 'rows', outer };
  }
  return { kind: 'other' };
}
