/** ArgMax, ArgMin and TopK, and running sums (CumSum, CumProd), along lines of an axis. */
import { elementCount } from '../../../tensor/index.ts';
import { Unsupported, numbers, knownNumbers } from '../../../operators/index.ts';
import type { Emitter, Kernels, Value } from '../types.ts';
import { axisOf, coordinates, indexType, stridesOf, weightedSum } from '../common/indexing.ts';
import { asDeclared, requiredOutput } from '../common/inputs.ts';
import { read, write } from '../common/launching.ts';
import { alone, launchTeams, teamForRows, typeDefinitions, type Team } from '../common/teams.ts';
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

const better = (largest: boolean): string => (largest ? '((a) > (b))' : '((a) < (b))');

function emitArg(emitter: Emitter, largest: boolean): void {
  const given = emitter.required(0, numbers);
  const axis = axisOf(emitter.attribute('axis', 0), given.shape.length);
  const output = requiredOutput(emitter);
  if (output.elements === 0) return;
  const { lines, count, step } = linesOf(given, axis);
  if (count === 0) throw new Unsupported(`'${given.name}' has no elements along axis ${axis}`);
  const input = asDeclared(emitter, given);
  launchTeams(emitter, largest ? 'arg_max' : 'arg_min', 'arg-reduce', {
    team: step === 1 ? teamForRows(lines, count) : alone,
    rows: lines,
    definitions: {
      ...typeDefinitions(input.datatype, 'INT64', reducedType(input.datatype)),
      INDEX: indexType(input.elements),
      COUNT: count,
      STEP: `${step}u`,
      OUTPUTS: `${lines}u`,
      LAST: emitter.attribute('select_last_index', 0),
      'BETTER(a, b)': better(largest),
      'OUTPUT_AT(o)': lineStart('o', { lines, count, step }, count),
    },
    arguments: [read(input.buffer), write(output.buffer)],
  });
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
  const line = linesOf(given, axis);
  if (elementCount(shape) === 0) return;
  const input = asDeclared(emitter, given);
  const wide = teamForRows(line.lines, line.count);
  // A round ends with a reduction over a team, so it needs a warp at least.
  const team: Team = wide.threads === 1 ? { threads: 32, block: 128 } : wide;
  const at = `out + (INDEX)rank * ${line.step}u`;
  launchTeams(emitter, 'top_k', 'top-k', {
    team,
    rows: line.lines,
    definitions: {
      ...typeDefinitions(input.datatype, input.datatype, reducedType(input.datatype)),
      INDEX: indexType(input.elements),
      COUNT: line.count,
      STEP: `${line.step}u`,
      LINES: `${line.lines}u`,
      K: k,
      TOP_PARAMETERS: `${values ? ', OUTPUT *top' : ''}${places ? ', i64 *where' : ''}`,
      TOP_VALUE: values ? `top[${at}] = STORE(best);` : '',
      TOP_PLACE: places ? `where[${at}] = place;` : '',
      'BETTER(a, b)': better(emitter.attribute('largest', 1) === 1),
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
