/**
 * Normalisation of rows: LayerNormalization, RMSNormalization and ONNX Runtime's variants of them, and
 * `turntable.AddLayerNormalization`, which fusion makes:
 *
 *     S = A + B (+ addend)
 *     Y = LayerNormalization(S, scale, bias)
 *
 * Inputs: A; B; scale (optional); bias (optional); addend (optional). B, scale, bias and addend broadcast to A by
 * numpy's rules, so that an addend may be the bias of a layer. Attributes: `axis` (-1, the first normalised axis),
 * `epsilon` (1e-5). Outputs: Y; S (optional), for the next residual connection.
 */
import { elementCount } from '../../../tensor/index.ts';
import { floats, requireDatatype, accumulatorOf, elementOf } from '../../../operators/index.ts';
import type { Emitter, KernelName, Kernels, Operator, Value } from '../types.ts';
import { axisOf, broadcastIndex, indexType } from '../common/indexing.ts';
import { requiredOutput } from '../common/inputs.ts';
import { argumentsOf, declared } from '../common/launching.ts';
import { heldPerThread, launchTeams, mathOf, teamForRows, typeDefinitions } from '../common/teams.ts';
import { parametersOf, written } from '../common/elements.ts';

/** Which inputs and outputs an operator has where. */
interface Places {
  /** Their sum is normalized. The first has the shape of the result; one behind the second is optional. */
  readonly addends: readonly number[];
  readonly scale: number;
  readonly bias?: number;
  readonly sum?: number;
  readonly mean?: number;
  readonly inverse?: number;
}

interface Rules {
  /** Default true. */
  readonly centered?: boolean;
  /** Default of the attribute: 1e-5. */
  readonly epsilon?: number;
}

interface Weighting {
  readonly value: Value;
  /** C expression over at, row and column of the input, of the weight's index. */
  readonly index: string;
}

const element = (name: string, value: Value, index: string): string =>
  elementOf(value.storedType).load(`${name}[${index}]`);

/** C statement that writes x to an output; does nothing if the output is unused. */
function keep(name: string, value: Value | undefined, index: string): string {
  if (value === undefined) return '(void)0';
  const { computed, store } = elementOf(value.storedType);
  return `${name}[${index}] = ${store(`(${computed})(x)`)}`;
}

function emitNormalization(emitter: Emitter, hint: string, places: Places, rules: Rules): void {
  const { centered = true, epsilon = 1e-5 } = rules;
  const input = emitter.required(places.addends[0]!);
  const others = places.addends.slice(1).flatMap((place, index) => {
    const addend = index === 0 ? emitter.required(place) : emitter.input(place);
    return addend === undefined ? [] : [addend];
  });
  const columns = elementCount(input.shape.slice(axisOf(emitter.attribute('axis', -1), input.shape.length)));
  const weight = (place: number | undefined): Weighting | undefined =>
    weighting(place === undefined ? undefined : emitter.input(place), input, columns);
  const [scale, bias] = [weight(places.scale), weight(places.bias)];
  const further = (place: number | undefined): Value | undefined =>
    place === undefined ? undefined : emitter.output(place);
  const [sum, mean, inverse] = [further(places.sum), further(places.mean), further(places.inverse)];
  for (const { value } of [scale, bias].filter((each) => each !== undefined)) requireDatatype(value, floats);
  for (const addend of [input, ...others]) requireDatatype(addend, floats);
  const output = requiredOutput(emitter);
  if (output.elements === 0) return;
  const rows = input.elements / columns;
  const team = teamForRows(rows, columns);
  const held = heldPerThread(columns, team);
  const accumulator = accumulatorOf(input.datatype);
  const parameters = parametersOf({
    input,
    ...Object.fromEntries(others.map((addend, index) => [`addend${index}`, addend])),
    scale: scale?.value,
    bias: bias?.value,
    output: written(output),
    sums: sum && written(sum),
    means: mean && written(mean),
    inverses: inverse && written(inverse),
  });
  const sums = others.map((addend, index) =>
    element(`addend${index}`, addend, broadcastIndex('(at)', addend.shape, input.shape)),
  );
  const scaled = scale === undefined ? '(y)' : `(y) * ${element('scale', scale.value, scale.index)}`;
  launchTeams(emitter, hint, 'normalize', {
    team,
    rows,
    definitions: {
      ...typeDefinitions(input.storedType, output.storedType, accumulator),
      INDEX: indexType(input.elements),
      ROWS: `${rows}u`,
      COLUMNS: `${columns}u`,
      CENTERED: centered ? 1 : 0,
      EPSILON: emitter.attribute('epsilon', epsilon),
      HELD: held > 0 ? 1 : 0,
      UNROLL: held > 0 ? held : 4,
      SQRT: mathOf(accumulator)('sqrt'),
      PARAMETERS: declared(parameters).join(', '),
      'ELEMENT(at, row, column)': `(ACCUMULATOR)(${[element('input', input, 'at'), ...sums].join(' + ')})`,
      'WEIGHTED(y, at, row, column)':
        bias === undefined ? scaled : `${scaled} + ${element('bias', bias.value, bias.index)}`,
      'KEEP_SUM(at, x)': keep('sums', sum, 'at'),
      'KEEP_MEAN(row, x)': keep('means', mean, 'row'),
      'KEEP_INVERSE(row, x)': keep('inverses', inverse, 'row'),
    },
    arguments: argumentsOf(parameters),
  });
}

/** A weight along the normalised axes, mostly one for each column. */
function weighting(value: Value | undefined, input: Value, columns: number): Weighting | undefined {
  if (value === undefined) return undefined;
  const perColumn = value.elements === columns && value.shape.length <= input.shape.length;
  const same = perColumn && value.shape.every((size, axis) => size === input.shape.at(axis - value.shape.length));
  return { value, index: same ? 'column' : broadcastIndex('(at)', value.shape, input.shape) };
}

const normalizing = <Type extends KernelName>(
  type: Type,
  hint: string,
  places: Places,
  rules: Rules = {},
): Operator<Type> => ({ type, emit: (emitter) => emitNormalization(emitter, hint, places, rules) });

const added = { addends: [0, 1, 4], scale: 2, bias: 3 };
const rms = { addends: [0], scale: 1, inverse: 1 };
const skipped = { mean: 1, inverse: 2, sum: 3 };
const uncentered = { centered: false };

export const rowNormalizationOperators = [
  normalizing('LayerNormalization', 'layer_normalization', { addends: [0], scale: 1, bias: 2, mean: 1, inverse: 2 }),
  normalizing('RMSNormalization', 'rms_normalization', rms, uncentered),
  normalizing('SimplifiedLayerNormalization', 'rms_normalization', rms, uncentered),
  normalizing('turntable.AddLayerNormalization', 'add_layer_normalization', { ...added, sum: 1 }),
  normalizing(
    'com.microsoft.SkipLayerNormalization',
    'skip_layer_normalization',
    { ...added, ...skipped },
    { epsilon: 1e-12 },
  ),
  normalizing(
    'com.microsoft.SkipSimplifiedLayerNormalization',
    'skip_rms_normalization',
    { addends: [0, 1, 3], scale: 2, ...skipped },
    { ...uncentered, epsilon: 1e-12 },
  ),
] as const satisfies readonly Kernels[];
