/** Draws attributes, shapes and values for cases of operators: the same ones for the same seed. */
import type { DataType } from '../../../src/tensor/index.ts';
import { filled, given, known, operatorCase, sequence, tensor, type Case, type CaseInput } from './case.ts';
import { inferredTypes } from './output-types.ts';

export type Attributes = Case['attributes'];

export interface DrawnOptions {
  readonly attributes?: Attributes;
  readonly opset?: number;
  /** Which outputs are used; default: one. */
  readonly outputs?: number | readonly boolean[];
}

export class Draw {
  readonly #next: () => number;
  readonly seed: number;

  constructor(seed: number) {
    this.seed = seed;
    this.#next = sequence(seed);
    for (let warm = 0; warm < 8; warm++) this.#next();
  }

  int(min: number, max: number): number {
    return min + Math.floor(this.#next() * (max - min + 1));
  }

  chance(share: number): boolean {
    return this.#next() < share;
  }

  pick<T>(list: readonly T[]): T {
    return list[this.int(0, list.length - 1)]!;
  }

  /** One in 25 is empty, one in five is 1. */
  size(max = 6): number {
    if (this.chance(0.04)) return 0;
    return this.chance(0.2) ? 1 : this.int(2, max);
  }

  /** One in twelve has an axis that is longer than half of a warp. */
  shape(rankMin: number, rankMax: number, max = 6): number[] {
    const shape = Array.from({ length: this.int(rankMin, rankMax) }, () => this.size(max));
    if (max < 6 || shape.length === 0 || !this.chance(0.08)) return shape;
    return shape.with(this.int(0, shape.length - 1), this.pick([16, 17, 33]));
  }

  /** Without empty dimensions. */
  filledShape(rankMin: number, rankMax: number, max = 6): number[] {
    return this.shape(rankMin, rankMax, max).map((size) => Math.max(1, size));
  }

  axis(rank: number): number {
    return rank === 0 ? 0 : this.int(-rank, rank - 1);
  }

  /** Some different axes, counted from either end. */
  axes(rank: number, least = 0): number[] {
    const all = Array.from({ length: rank }, (_, axis) => axis).sort(() => this.#next() - 0.5);
    return all.slice(0, this.int(Math.min(least, rank), rank)).map((axis) => (this.chance(0.5) ? axis : axis - rank));
  }

  /** Each attribute half of the time, so that its default is tested too. */
  some(attributes: Attributes, share = 0.5): Attributes {
    return Object.fromEntries(Object.entries(attributes).filter(() => this.chance(share)));
  }

  list(length: number, min: number, max: number): number[] {
    return Array.from({ length }, () => this.int(min, max));
  }

  x(datatype: DataType, shape: readonly number[], scale = 2): CaseInput {
    return given(filled(datatype, shape, this.int(1, 1000), scale));
  }

  /** A weight. */
  w(datatype: DataType, shape: readonly number[], scale = 1): CaseInput {
    return known(filled(datatype, shape, this.int(1, 1000), scale));
  }

  values(datatype: DataType, shape: readonly number[], values: readonly number[], constant = true): CaseInput {
    return { tensor: tensor(datatype, shape, values), constant };
  }

  ints(values: readonly number[], datatype: DataType = 'INT64'): CaseInput {
    return this.values(datatype, [values.length], values);
  }

  /** The shape with some sizes 1, and some dimensions in front left out. */
  narrowed(shape: readonly number[]): number[] {
    const from = this.chance(0.3) ? this.int(0, shape.length) : 0;
    return shape.map((size) => (this.chance(0.25) ? 1 : size)).slice(from);
  }

  case(operator: string, inputs: readonly (CaseInput | undefined)[], options: DrawnOptions = {}): Case {
    const { attributes = {}, opset = 17, outputs = 1 } = options;
    const taken = typeof outputs === 'number' ? Array.from({ length: outputs }, () => true) : outputs;
    const types = inferredTypes({ operator, inputs, attributes }, taken);
    if (taken.some((isTaken, place) => isTaken && types[place] === undefined))
      throw new Error(`the types of the outputs of '${operator}' are not inferred`);
    return operatorCase(operator, `seed ${this.seed}`, inputs, { attributes, opset, outputs: types });
  }
}

/** A node as a model could have it. Nodes that ONNX Runtime does not run are no cases. */
export type Drawn = (draw: Draw) => Case;

/** The cases of a family's operators; the family's records are in the file of the same name in `src/operators/families`. */
export interface FamilyCases {
  /**
   * What is not left to chance, some of each operator: an edge of a kernel or of ONNX Runtime's, sizes beyond the
   * drawn ones, types and attributes that are not drawn.
   */
  readonly named: readonly Case[];
  /** From each operator's specification, at random. */
  readonly drawn: Readonly<Record<string, Drawn>>;
}

/** Element types that most operators on any elements are drawn with. */
export const anyTypes: readonly DataType[] = [
  'FP32',
  'FP32',
  'FP16',
  'FP64',
  'INT32',
  'INT64',
  'UINT8',
  'INT8',
  'BOOL',
];

export const shuffled = (draw: Draw, length: number): number[] =>
  Array.from({ length }, (_, axis) => ({ axis, at: draw.int(0, 1e6) }))
    .sort((a, b) => a.at - b.at)
    .map(({ axis }) => axis);
