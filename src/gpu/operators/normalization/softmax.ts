/**
 * Softmax, LogSoftmax, and `turntable.MaskedSoftmax`, which fusion makes:
 *
 *     Y = softmax(scale * X + mask, axis)
 *
 * Inputs: X; mask (optional), a float tensor that broadcasts to X by numpy's rules. Attributes: `scale` (float, 1),
 * `axis` (-1). It replaces Mul or Div by a constant, Add of a mask, and Softmax. It computes the same in float, without
 * rounding to 16 bits in between.
 */
import { elementCount } from '../../../tensor/index.ts';
import {
  Unsupported,
  floats,
  requireDatatype,
  accumulatorOf,
  elementOf,
  floatLiteral,
} from '../../../operators/index.ts';
import type { Emitter, KernelName, Kernels, Operator } from '../types.ts';
import { axisOf, broadcastIndex, coordinates, indexType, weightedSum } from '../common/indexing.ts';
import { parametersOf, type Stored } from '../common/elements.ts';
import { requiredOutput } from '../common/inputs.ts';
import { argumentsOf, declaredBehind, read, write, type Parameter } from '../common/launching.ts';
import { alone, heldPerThread, launchTeams, mathOf, teamForRows, typeDefinitions } from '../common/teams.ts';

interface Rows {
  readonly outer: number;
  readonly columns: number;
  readonly inner: number;
}

function rowsOf(emitter: Emitter, shape: readonly number[], coerced: boolean): Rows {
  if (shape.length === 0) return { outer: 1, columns: 1, inner: 1 };
  const axis = emitter.attribute('axis', coerced ? 1 : -1);
  if (coerced) {
    const split = axis === shape.length ? axis : axisOf(axis, shape.length);
    return { outer: elementCount(shape.slice(0, split)), columns: elementCount(shape.slice(split)), inner: 1 };
  }
  const along = axisOf(axis, shape.length);
  return {
    outer: elementCount(shape.slice(0, along)),
    columns: shape[along]!,
    inner: elementCount(shape.slice(along + 1)),
  };
}

/** @param coerced before opset 13 the axis splits the tensor into a matrix, and the softmax is over its rows */
function emitSoftmax(emitter: Emitter, hint: string, logarithm: boolean, coerced: boolean): void {
  const rows = rowsOf(emitter, emitter.required(0).shape, coerced);
  const input = emitter.required(0, floats);
  const [scale, mask] = [emitter.attribute('scale', 1), emitter.input(1)];
  if (mask !== undefined) {
    requireDatatype(mask, floats);
    if (elementCount(mask.shape) > input.elements)
      throw new Unsupported(`its mask '${mask.name}' is larger than its input`);
  }
  const output = requiredOutput(emitter);
  if (output.elements === 0) return;
  const scaled = `${elementOf(input.storedType).load('input[at]')}${scale === 1 ? '' : ` * ${floatLiteral(scale)}`}`;
  const masked =
    mask === undefined
      ? ''
      : ` + ${elementOf(mask.storedType).load(`mask[${broadcastIndex('(at)', mask.shape, input.shape)}]`)}`;
  emitSoftmaxRows(emitter, {
    hint,
    input,
    output,
    ...rows,
    element: `${scaled}${masked}`,
    parameters: parametersOf({ mask }),
    logarithm,
    zeroRows: false,
  });
}

export interface SoftmaxRows extends Rows {
  readonly hint: string;
  readonly input: Stored;
  readonly output: Stored;
  /** C expression of a softmax input, over at (the index in `input`), row and column. */
  readonly element: string;
  /** Further tensors that `element` reads. */
  readonly parameters: readonly Parameter[];
  readonly logarithm: boolean;
  /** A row of minus infinities becomes zeros instead of NaN. */
  readonly zeroRows: boolean;
}

export function emitSoftmaxRows(emitter: Emitter, softmax: SoftmaxRows): void {
  const { hint, input, output, outer, columns, inner, element, parameters, logarithm, zeroRows } = softmax;
  const rows = outer * inner;
  if (rows * columns === 0) return;
  const team = inner === 1 ? teamForRows(rows, columns) : alone;
  const held = heldPerThread(columns, team);
  const accumulator = accumulatorOf(input.storedType);
  const math = mathOf(accumulator);
  launchTeams(emitter, hint, 'softmax', {
    team,
    rows,
    definitions: {
      ...typeDefinitions(input.storedType, output.storedType, accumulator),
      INDEX: indexType(rows * columns),
      ROWS: `${rows}u`,
      COLUMNS: `${columns}u`,
      STEP: `${inner}u`,
      HELD: held > 0 ? 1 : 0,
      UNROLL: held > 0 ? held : 4,
      LOGARITHM: logarithm ? 1 : 0,
      ZERO_ROWS: zeroRows ? 1 : 0,
      LOWEST: accumulator === 'double' ? '(-F64_INFINITY)' : '(-F32_INFINITY)',
      EXP: math('exp'),
      LOG: math('log'),
      MASK_PARAMETER: declaredBehind(parameters),
      'ROW_AT(row)':
        inner === 1 ? `(row) * ${columns}u` : weightedSum(coordinates('(row)', [outer, inner]), [columns * inner, 1]),
      'ELEMENT(at, row, column)': `(ACCUMULATOR)(${element})`,
    },
    arguments: [read(input.buffer), ...argumentsOf(parameters), write(output.buffer)],
  });
}

const softmax = <Type extends KernelName>(type: Type, hint: string, logarithm = false): Operator<Type> => ({
  type,
  emit: (emitter) => emitSoftmax(emitter, hint, logarithm, emitter.opset < 13 && type !== 'turntable.MaskedSoftmax'),
});

export const softmaxOperators = [
  softmax('Softmax', 'softmax'),
  softmax('LogSoftmax', 'log_softmax', true),
  softmax('turntable.MaskedSoftmax', 'masked_softmax'),
] as const satisfies readonly Kernels[];
