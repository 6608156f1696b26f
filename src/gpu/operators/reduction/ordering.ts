/** ArgMax, ArgMin and TopK, and running sums (CumSum, CumProd), along lines of an axis. */
import { elementCount } from '../../../tensor/index.ts';
import { Unsupported, numbers, knownNumbers } from '../../../operators/index.ts';
import type { Emitter, Kernels, Value } from '../types.ts';
import { axisOf, coordinates, indexType, stridesOf, weightedSum } from '../common/indexing.ts';
import { asDeclared, requiredOutput } from '../common/inputs.ts';
import { read, write } from '../common/launching.ts';
import { alone, launchTeams, teamForRows, typeDefinitions } from '../common/teams.ts';
import { reducedType } from './reducing.ts';

interface Lines {
  readonly lines: number;
  readonly count: number;
  readonly step: number;
}

function linesOf({ shape, elements }: Value, axis: number): Lines {
  const count = shape[axis] ?? 1;
  return { lines: count === 0 ? 0 : elements / count, count, step: stridesOf(shape)[axis] ?? 1 };
}

/** C expression of the first index of line `l`, whose `count` elements are `step` apart. */
const lineStart = (l: string, { lines, step }: Lines, count: number): string =>
  step === 1
    ? `(${l}) * ${count}u`
    : weightedSum(coordinates(`(${l})`, [Math.max(1, lines / step), step]), [count * step, 1]);

interface Best {
  readonly k: number;
  readonly largest: boolean;
  /** Among equal elements the last comes first. */
  readonly last?: boolean;
  readonly values?: Value | undefined;
  readonly places: Value | undefined;
}

/** Values and places of the k best elements of each line. */
function emitBest(emitter: Emitter, hint: string, given: Value, axis: number, best: Best): void {
  const { k, largest, last = false, values, places } = best;
  const line = linesOf(given, axis);
  const input = asDeclared(emitter, given);
  const at = `out + (INDEX)rank * ${line.step}u`;
  launchTeams(emitter, hint, 'top-k', {
    team: k === 1 && line.step !== 1 ? alone : teamForRows(line.lines, line.count),
    rows: line.lines,
    definitions: {
      ...typeDefinitions(input.datatype, input.datatype, reducedType(input.datatype)),
      INDEX: indexType(input.elements),
      COUNT: line.count,
      STEP: `${line.step}u`,
      LINES: `${line.lines}u`,
      K: k,
      LAST: last ? 1 : 0,
      TOP_PARAMETERS: `${values ? ', OUTPUT *top' : ''}${places ? ', i64 *where' : ''}`,
      TOP_VALUE: values ? `top[${at}] = STORE(best);` : '',
      TOP_PLACE: places ? `where[${at}] = place;` : '',
      'BETTER(a, b)': largest ? '((a) > (b))' : '((a) < (b))',
      'LINE_AT(l)': lineStart('l', line, line.count),
      'OUTPUT_AT(l)': lineStart('l', line, k),
    },
    arguments: [
      read(input.buffer),
      ...(values ? [write(values.buffer)] : []),
      ...(places ? [write(places.buffer)] : []),
    ],
  });
}

function emitArg(emitter: Emitter, largest: boolean): void {
  const given = emitter.required(0, numbers);
  const axis = axisOf(emitter.attribute('axis', 0), given.shape.length);
  const places = requiredOutput(emitter);
  if (places.elements === 0) return;
  if (given.shape[axis] === 0) throw new Unsupported(`'${given.name}' has no elements along axis ${axis}`);
  const last = emitter.attribute('select_last_index', 0) === 1;
  emitBest(emitter, largest ? 'arg_max' : 'arg_min', given, axis, { k: 1, largest, last, places });
}

/** Each of the k elements takes a round over the line: for more, sorting would be much faster. */
const topMax = 1024;

function emitTopK(emitter: Emitter): void {
  const given = emitter.required(0, numbers);
  const axis = axisOf(emitter.attribute('axis', -1), given.shape.length);
  const values = emitter.output(0);
  const places = emitter.output(1);
  const shape = (values ?? places)?.shape;
  if (shape === undefined) throw new Unsupported('its outputs are not used');
  const k = emitter.input(1) === undefined ? emitter.attribute('k', 1) : shape[axis]!;
  if (k > topMax) throw new Unsupported(`its K is ${k}, but at most ${topMax} are covered`);
  if (elementCount(shape) === 0) return;
  emitBest(emitter, 'top_k', given, axis, { k, largest: emitter.attribute('largest', 1) === 1, values, places });
}

/** From this number of lines on, one thread per line keeps the device busy. */
const manyLines = 1024;

function emitScan(emitter: Emitter, operation: 'Sum' | 'Product'): void {
  const given = emitter.required(0, numbers);
  const [axisGiven] = knownNumbers(emitter, 1, 'axis') ?? [];
  if (axisGiven === undefined) throw new Unsupported('it does not say along which axis it runs');
  const axis = axisOf(axisGiven, given.shape.length);
  const output = requiredOutput(emitter);
  if (output.elements === 0) return;
  const input = asDeclared(emitter, given);
  const line = linesOf(input, axis);
  const together = line.count > 16 && (line.step === 1 || line.lines < manyLines);
  launchTeams(emitter, operation === 'Sum' ? 'cumulative_sum' : 'cumulative_product', 'scan', {
    team: together ? { threads: 32, block: 128 } : alone,
    rows: line.lines,
    definitions: {
      ...typeDefinitions(input.datatype, output.datatype, reducedType(input.datatype)),
      INDEX: indexType(input.elements),
      LENGTH: `${line.count}u`,
      STEP: `${line.step}u`,
      LINES: `${line.lines}u`,
      OPERATION: operation,
      INITIAL: operation === 'Sum' ? 0 : 1,
      EXCLUSIVE: emitter.attribute('exclusive', 0),
      REVERSED: emitter.attribute('reverse', 0),
      'LINE_AT(l)': lineStart('l', line, line.count),
    },
    arguments: [read(input.buffer), write(output.buffer)],
  });
}

export const orderingOperators = [
  { type: 'ArgMax', emit: (emitter) => emitArg(emitter, true) },
  { type: 'ArgMin', emit: (emitter) => emitArg(emitter, false) },
  { type: 'TopK', emit: emitTopK },
  { type: 'CumSum', emit: (emitter) => emitScan(emitter, 'Sum') },
  { type: 'CumProd', emit: (emitter) => emitScan(emitter, 'Product') },
] as const satisfies readonly Kernels[];
