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
import { Unsupported, floats, requireDatatype, accumulatorOf, elementOf } from '../../../operators/index.ts';
import type { Emitter, KernelName, Kernels, Operator, Value } from '../types.ts';
import { axisOf, broadcastIndex, indexType } from '../common/indexing.ts';
import { requiredOutput } from '../common/inputs.ts';
import { argumentsOf, declared } from '../common/launching.ts';
import { heldPerThread, launchTeams, mathOf, teamForRows, typeDefinitions } from '../common/teams.ts';
import { parametersOf, written } from '../common/elements.ts';

interface Normalization {
  readonly hint: string;
  /** Their sum is normalised. The first has the shape of the result. */
  readonly addends: readonly Value[];
  readonly columns: number;
  /** Default true. */
  readonly centered?: boolean;
  /** Default: the attribute, or 1e-5. */
  readonly epsilon?: number;
  readonly scale?: Weighting | undefined;
  readonly bias?: Weighting | undefined;
  readonly sum?: Value | undefined;
  readonly mean?: Value | undefined;
  readonly inverse?: Value | undefined;
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

function emitNormalization(emitter: Emitter, normalization: Normalization): void {
  const { hint, addends, columns, centered = true, scale, bias, sum, mean, inverse } = normalization;
  const epsilon = normalization.epsilon ?? emitter.attribute('epsilon', 1e-5);
  const [input] = addends;
  for (const { value } of [scale, bias].filter((each) => each !== undefined)) requireDatatype(value, floats);
  for (const addend of addends) requireDatatype(addend, floats);
  const output = requiredOutput(emitter);
  if (input === undefined || output.elements === 0) return;
  const others = addends.slice(1);
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
  const added = others.map((addend, index) =>
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
      EPSILON: epsilon,
      HELD: held > 0 ? 1 : 0,
      UNROLL: held > 0 ? held : 4,
      SQRT: mathOf(accumulator)('sqrt'),
      PARAMETERS: declared(parameters).join(', '),
      'ELEMENT(at, row, column)': `(ACCUMULATOR)(${[element('input', input, 'at'), ...added].join(' + ')})`,
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

const columnsFrom = ({ shape }: Value, axis: number): number => elementCount(shape.slice(axisOf(axis, shape.length)));

/** Outputs: Y; mean and inverse standard deviation (optional). */
const rowOperator = <Type extends KernelName>(type: Type, hint: string, centered: boolean): Operator<Type> => ({
  type,
  emit(emitter) {
    const input = emitter.required(0);
    const columns = columnsFrom(input, emitter.attribute('axis', -1));
    emitNormalization(emitter, {
      hint,
      addends: [input],
      columns,
      centered,
      scale: weighting(emitter.required(1), input, columns),
      bias: weighting(centered ? emitter.input(2) : undefined, input, columns),
      mean: centered ? emitter.output(1) : undefined,
      inverse: emitter.output(centered ? 2 : 1),
    });
  },
});

const addLayerNormalization = {
  type: 'turntable.AddLayerNormalization',
  emit(emitter) {
    const input = emitter.required(0);
    const columns = columnsFrom(input, emitter.attribute('axis', -1));
    const addend = emitter.input(4);
    emitNormalization(emitter, {
      hint: 'add_layer_normalization',
      addends: [input, emitter.required(1), ...(addend === undefined ? [] : [addend])],
      columns,
      scale: weighting(emitter.input(2), input, columns),
      bias: weighting(emitter.input(3), input, columns),
      sum: emitter.output(1),
    });
  },
} satisfies Kernels;

/**
 * ONNX Runtime's SkipLayerNormalization. Inputs: input, skip, gamma, beta (only if centered), bias. Outputs: Y, mean,
 * inverse standard deviation, sum.
 */
const skipOperator = <Type extends KernelName>(type: Type, hint: string, centered: boolean): Operator<Type> => ({
  type,
  emit(emitter) {
    const input = emitter.required(0);
    const columns = input.shape.at(-1);
    if (columns === undefined) throw new Unsupported(`'${input.name}' is a scalar`);
    const addend = emitter.input(centered ? 4 : 3);
    emitNormalization(emitter, {
      hint,
      addends: [input, emitter.required(1), ...(addend === undefined ? [] : [addend])],
      columns,
      centered,
      epsilon: emitter.attribute('epsilon', 1e-12),
      scale: weighting(emitter.required(2), input, columns),
      bias: weighting(centered ? emitter.input(3) : undefined, input, columns),
      mean: emitter.output(1),
      inverse: emitter.output(2),
      sum: emitter.output(3),
    });
  },
});

export const rowNormalizationOperators = [
  rowOperator('LayerNormalization', 'layer_normalization', true),
  rowOperator('RMSNormalization', 'rms_normalization', false),
  rowOperator('SimplifiedLayerNormalization', 'rms_normalization', false),
  addLayerNormalization,
  skipOperator('com.microsoft.SkipLayerNormalization', 'skip_layer_normalization', true),
  skipOperator('com.microsoft.SkipSimplifiedLayerNormalization', 'skip_rms_normalization', false),
] as const satisfies readonly Kernels[];
