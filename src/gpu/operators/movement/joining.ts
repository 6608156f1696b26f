/** Concat and Split: several tensors (pieces) that are parts of one (the whole) along an axis. */
import { listOf } from '../../../operators/index.ts';
import { elementCount, elementBytes } from '../../../tensor/index.ts';
import type { Emitter, Kernels, Value } from '../types.ts';
import { axisOf } from '../common/indexing.ts';
import { asDeclared, requiredOutput } from '../common/inputs.ts';
import { forEachIndex, moveStrided, sideOf, widestWord, wordType } from '../common/launching.ts';

/** Limit for the pieces of one kernel: with more pointers it is slower than another launch. */
const piecesMax = 8;

interface Piece {
  readonly value: Value;
  /** In a row of the whole, in elements. */
  readonly start: number;
  readonly length: number;
}

/**
 * Copies between the pieces and the whole, a thread for each word of the whole. If the whole has one row, each piece is
 * one copy; many pieces take several kernels.
 */
function movePieces(emitter: Emitter, whole: Value, pieces: readonly Piece[], rows: number, join: boolean): void {
  const rowLength = rows === 0 ? 0 : whole.elements / rows;
  const present = pieces.filter(({ length }) => length > 0);
  const hint = join ? 'concat' : 'split';
  if (rows <= 1 || present.length === 1) {
    for (const { value, start, length } of present) {
      const inWhole = sideOf(whole, [rowLength, 1], start);
      const inPiece = sideOf(value, [length, 1]);
      const [from, to] = join ? [inPiece, inWhole] : [inWhole, inPiece];
      moveStrided(emitter, hint, [rows, length], whole.storedType, from, to);
    }
    return;
  }
  for (let first = 0; first < present.length; first += piecesMax) {
    moveTogether(emitter, hint, whole, present.slice(first, first + piecesMax), rows, rowLength, join);
  }
}

function moveTogether(
  emitter: Emitter,
  hint: string,
  whole: Value,
  pieces: readonly Piece[],
  rows: number,
  rowLength: number,
  join: boolean,
): void {
  const bytes = elementBytes[whole.storedType];
  const offsets = [whole, ...pieces.map(({ value }) => value)].map(({ buffer }) => buffer.byteOffset);
  const lengths = [rowLength, ...pieces.flatMap(({ start, length }) => [start, length])];
  const word = widestWord(bytes, [...offsets, ...lengths.map((length) => length * bytes)]);
  const scale = bytes / word;
  const row = rowLength * scale;
  const begin = pieces[0]!.start * scale;
  const last = pieces.at(-1)!;
  const span = (last.start + last.length) * scale - begin;
  const branches = pieces.map(({ start, length }, index) => {
    const at = `r * ${length * scale}u + (c - ${start * scale}u)`;
    const piece = `piece${index}[${at}]`;
    const inWhole = `whole[r * ${row}u + c]`;
    const move = join ? `${inWhole} = ${piece};` : `${piece} = ${inWhole};`;
    const end = (start + length) * scale;
    return index === pieces.length - 1 ? move : `if (c < ${end}u) ${move} else`;
  });
  forEachIndex(
    emitter,
    hint,
    rows * span,
    [
      ...pieces.map(({ value }, index) => ({
        name: `piece${index}`,
        type: wordType(word),
        buffer: value.buffer,
        access: join ? ('read' as const) : ('write' as const),
      })),
      { name: 'whole', type: wordType(word), buffer: whole.buffer, access: join ? 'write' : 'read' },
    ],
    [`const auto r = i / ${span}u;`, `const auto c = i % ${span}u + ${begin}u;`, ...branches],
  );
}

function piecesOf(values: readonly Value[], axis: number): Piece[] {
  let start = 0;
  return values.map((value) => {
    const length = elementCount(value.shape.slice(axis));
    start += length;
    return { value, start: start - length, length };
  });
}

const concat = {
  type: 'Concat',
  emit(emitter) {
    const output = requiredOutput(emitter);
    const axis = axisOf(emitter.attribute('axis', 0), output.shape.length);
    const count = emitter.node.proto.input.length;
    const given = Array.from({ length: count }, (_, index) => emitter.required(index));
    // Pieces and whole must have one type: all in 16 bits, or none.
    const values = given.map((value) => (value.storedType === output.storedType ? value : asDeclared(emitter, value)));
    movePieces(emitter, output, piecesOf(values, axis), elementCount(output.shape.slice(0, axis)), true);
  },
} satisfies Kernels;

const split = {
  type: 'Split',
  emit(emitter) {
    const given = emitter.required(0);
    const axis = axisOf(emitter.attribute('axis', 0), given.shape.length);
    // Unused outputs have no shape: their sizes are in the node, or all are equal except the last.
    const count = emitter.node.proto.output.length;
    const outputs = Array.from({ length: count }, (_, index) => emitter.output(index));
    const size = given.shape[axis]!;
    const listed = splitSizes(emitter, outputs, axis, size);
    const input = asDeclared(emitter, given);
    const inner = elementCount(given.shape.slice(axis + 1));
    let start = 0;
    const pieces: Piece[] = [];
    for (const [index, value] of outputs.entries()) {
      const length = listed[index]! * inner;
      if (value !== undefined) pieces.push({ value, start, length });
      start += length;
    }
    const rows = elementCount(given.shape.slice(0, axis));
    if (pieces.length === count) movePieces(emitter, input, pieces, rows, false);
    else for (const piece of pieces) movePieces(emitter, input, [piece], rows, false);
  },
} satisfies Kernels;

function splitSizes(emitter: Emitter, outputs: readonly (Value | undefined)[], axis: number, size: number): number[] {
  if (outputs.every((output) => output !== undefined)) return outputs.map((output) => output.shape[axis]!);
  const listed = listOf(emitter, 'split', 1);
  if (listed !== undefined) return [...listed];
  const each = Math.ceil(size / outputs.length);
  return outputs.map((_, index) => Math.min(each, size - each * index));
}

export const joiningOperators = [concat, split] as const satisfies readonly Kernels[];
