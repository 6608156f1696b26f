import { Unsupported } from '../../../operators/index.ts';
import { elementBytes, elementCount } from '../../../tensor/index.ts';
import type { Emitter, Kernels } from '../types.ts';
import { asDeclared, requiredOutput } from '../common/inputs.ts';
import { collapse, coordinates, indexType, stridesOf, weightedSum, type Dimension } from '../common/indexing.ts';
import { kernelFrom } from '../common/kernel-file.ts';
import { moveStrided, read, sideOf, wordType, write } from '../common/launching.ts';

/** From this number of rows and columns on, tiles are faster in spite of their barrier. */
const tileFrom = 16;
const tileSize = 32;

function permutation(emitter: Emitter, rank: number): readonly number[] {
  const given = emitter.attribute<readonly number[]>('perm', []);
  if (given.length === 0) return Array.from({ length: rank }, (_, axis) => rank - 1 - axis);
  if (given.toSorted((a, b) => a - b).some((axis, index) => axis !== index) || given.length !== rank) {
    throw new Unsupported(`its permutation [${given.join(',')}] does not name each of ${rank} axes once`);
  }
  return given;
}

/** Dimensions in the output's order, with the strides of the input and the output. */
function walkOf(shape: readonly number[], order: readonly number[]): Dimension[] {
  const inputStrides = stridesOf(shape);
  const sizes = order.map((axis) => shape[axis]!);
  return collapse(
    sizes,
    order.map((axis) => inputStrides[axis]!),
    stridesOf(sizes),
  );
}

/** Whether the elements keep their order, because only axes of size 1 move. */
function isView(emitter: Emitter): boolean {
  const { shape } = emitter.required(0);
  return walkOf(shape, permutation(emitter, shape.length)).length <= 1 || elementCount(shape) === 0;
}

function emit(emitter: Emitter): void {
  const order = permutation(emitter, emitter.required(0).shape.length);
  const input = asDeclared(emitter, emitter.required(0));
  const output = requiredOutput(emitter);
  if (output.elements === 0) return;
  const walk = walkOf(input.shape, order);
  const columns = walk.find(({ steps }) => steps[0] === 1);
  const rows = walk.at(-1);
  if (
    columns === undefined ||
    rows === undefined ||
    columns === rows ||
    columns.size < tileFrom ||
    rows.size < tileFrom
  ) {
    const strides = stridesOf(input.shape);
    const from = sideOf(
      input,
      order.map((axis) => strides[axis]!),
    );
    moveStrided(emitter, 'transpose', output.shape, input.datatype, from, sideOf(output, stridesOf(output.shape)));
    return;
  }
  const rest = walk.filter((dimension) => dimension !== columns && dimension !== rows);
  const restSizes = rest.map(({ size }) => size);
  const start = (side: 0 | 1): string =>
    `(${weightedSum(
      coordinates('(p)', restSizes),
      rest.map(({ steps }) => steps[side]!),
    )})`;
  // With enough tiles, twice the threads hide more latency.
  const lines = columns.size >= 2 * tileSize && rows.size >= 2 * tileSize ? 8 : 4;
  const kernel = emitter.kernel(
    'transpose_tiled',
    kernelFrom('transpose', {
      WORD: wordType(elementBytes[input.datatype]),
      INDEX: indexType(output.elements),
      ROWS: `${rows.size}u`,
      COLUMNS: `${columns.size}u`,
      ROW_STEP: `${rows.steps[0]}u`,
      COLUMN_STEP: `${columns.steps[1]}u`,
      'INPUT_START(p)': start(0),
      'OUTPUT_START(p)': start(1),
      LINES: lines,
    }),
  );
  const tiles = Math.ceil(columns.size / tileSize) * Math.ceil(rows.size / tileSize) * elementCount(restSizes);
  emitter.launch({
    kernel,
    grid: [tiles],
    block: [tileSize, lines],
    arguments: [read(input.buffer), write(output.buffer)],
  });
}

export const transpose = {
  type: 'Transpose',
  viewOf: (emitter) =>
    isView(emitter) && emitter.required(0).storedType === emitter.required(0).datatype ? 0 : undefined,
  emit,
} satisfies Kernels;
