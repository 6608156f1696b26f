/** Rows for a check of a model's independence of rows: ordinary ones, and extreme neighbours for them. */
import { dataTypeOf, Graph, isExternal, tensorBytes, type ModelProto } from '../onnx/index.ts';
import { bytesElements, bytesOfNumbers, elementCount, numbersOf, packBytes, type Tensor } from '../tensor/index.ts';
import { mix32 } from '../tools/index.ts';

/** One row of each input: the shapes begin with 1. */
export type Row = readonly Tensor[];

/** Factors of extreme rows. A row of zeros, and rows that dwarf their neighbours. */
const factors = [0, 100, 1e4, -1e4];
const thresholdsMax = 8;
const nearZero = 64;

/** Whole numbers of an input, both ends included. */
export type Range = readonly [low: number, high: number];

const isFloat = ({ datatype }: Tensor): boolean => /^(FP|BF)/.test(datatype);

function filled({ datatype, ...tensor }: Tensor, valueAt: (index: number) => number): Tensor {
  const count = elementCount(tensor.shape);
  const data =
    datatype === 'BYTES'
      ? packBytes(Array.from({ length: count }, (_, index) => String(valueAt(index))))
      : bytesOfNumbers(
          datatype,
          Array.from({ length: count }, (_, index) => valueAt(index)),
        );
  return { ...tensor, datatype, data };
}

/**
 * A row like `row`: number 0 is the row itself; others have its numbers in another order and slightly changed. Every fourth is
 * near zero: what a neighbour does may show between a constant of the model and its negative alone.
 *
 * @param rangeOf of whole numbers, by input
 */
export function ordinaryRow(row: Row, number: number, rangeOf: (input: string) => Range): Row {
  if (number === 0) return row;
  return row.map((tensor, place): Tensor => {
    if (tensor.datatype === 'BYTES') {
      const texts = [...bytesElements(tensor)].map(
        (text, at) => `${Buffer.from(text).toString()}${'abc'.charAt((at + number) % 3)}`,
      );
      return { ...tensor, data: packBytes(texts) };
    }
    const random = (index: number): number => mix32(mix32(number * 31 + place) + index) >>> 0;
    if (!isFloat(tensor)) {
      const [low, high] = tensor.datatype === 'BOOL' ? [0, 1] : rangeOf(tensor.name);
      return filled(tensor, (index) => low + (random(index) % (high - low + 1)));
    }
    const values = numbersOf(tensor);
    const moved = (index: number): number => Number(values[(index + number) % values.length]);
    if (number % 4 === 3) return filled(tensor, (index) => moved(index) / nearZero);
    return filled(tensor, (index) => moved(index) * (1 + number / 8) + (number % 2) / 16);
  });
}

/**
 * Rows that a mixing model lets its other rows feel: zeros, numbers that dwarf its own, and beyond its constants.
 * @param thresholds see {@link thresholdsOf}
 */
export function extremeRows(row: Row, thresholds: readonly number[], rangeOf: (input: string) => Range): Row[] {
  const ordinary = ordinaryRow(row, 1, rangeOf);
  const changed = (ofFloat: (value: number) => number, ofWhole: (tensor: Tensor, place: number) => Tensor): Row =>
    row.map((tensor, place) => {
      if (!isFloat(tensor)) return ofWhole(tensor, place);
      const values = numbersOf(tensor);
      return filled(tensor, (index) => ofFloat(Number(values[index])));
    });
  const end =
    (place: 0 | 1) =>
    (tensor: Tensor): Tensor =>
      filled(tensor, () => (tensor.datatype === 'BOOL' ? place : rangeOf(tensor.name)[place]));
  // Some keep ordinary whole numbers, so that a mask of zeros does not hide the values.
  const asTheyAre = (_: Tensor, place: number): Tensor => ordinary[place]!;
  const wholes = [end(0), end(1), asTheyAre, asTheyAre];
  return [
    ...factors.map((factor, index) => changed((value) => value * factor, wholes[index]!)),
    ...thresholds.map((threshold) =>
      changed(
        () => 2 * threshold,
        (tensor) => filled(tensor, () => (tensor.datatype === 'BOOL' ? 1 : Math.round(2 * threshold))),
      ),
    ),
  ];
}

/** Constants of one element in a graph and its nested ones: something may compare rows with them. */
export function thresholdsOf(model: ModelProto): number[] {
  const found = new Set<number>();
  for (const { tensor, elementCount: count, elementType, name } of new Graph(model).weights) {
    const datatype = dataTypeOf(elementType);
    if (tensor === undefined || count !== 1 || datatype === undefined || datatype === 'BYTES') continue;
    if (isExternal(tensor)) continue;
    const value = Number(numbersOf({ name, datatype, shape: [], data: tensorBytes(tensor) })[0]);
    if (Math.abs(value) >= 1e-3 && Math.abs(value) < 1e30) found.add(value);
  }
  // The larger ones: what ordinary rows do not reach.
  return [...found].sort((a, b) => Math.abs(b) - Math.abs(a)).slice(0, thresholdsMax);
}
