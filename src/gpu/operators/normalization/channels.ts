/** BatchNormalization at inference, and LRN: a thread for each element. */
import { type Kernels, Unsupported, type Value } from '../types.ts';
import { accumulatorOf, floatLiteral, floats } from '../common/element.ts';
import { forEachElement, written } from '../common/elements.ts';
import { product } from '../common/indexing.ts';
import { requiredOutput } from '../common/inputs.ts';
import { mathOf } from '../common/teams.ts';

function channelsOf({ name, shape }: Value): { readonly channels: number; readonly spatial: number } {
  if (shape.length < 2) throw new Unsupported(`'${name}' has no channels`);
  return { channels: shape[1]!, spatial: product(shape.slice(2)) };
}

const batchNormalization = {
  type: 'BatchNormalization',
  emit(emitter) {
    const given = emitter.required(0, floats);
    if (emitter.attribute('training_mode', 0) === 1 || emitter.output(1) !== undefined) {
      throw new Unsupported('it is in training mode');
    }
    const { channels, spatial } = channelsOf(given);
    const output = requiredOutput(emitter);
    const [scale, bias, mean, variance] = [1, 2, 3, 4].map((index) => emitter.required(index)) as [
      Value,
      Value,
      Value,
      Value,
    ];
    const accumulator = accumulatorOf(given.datatype);
    const sqrt = mathOf(accumulator)('sqrt');
    const tensors = { input: given, scale, bias, mean, variance, output: written(output) };
    forEachElement(emitter, 'batch_normalization', output.elements, tensors, (of) => [
      `const auto c = i / ${spatial}u % ${channels}u;`,
      `const ${accumulator} inverse = 1 / ${sqrt}(${of.variance.at('c')} + (${accumulator})${emitter.attribute('epsilon', 1e-5)});`,
      of.output.set(
        'i',
        `(${of.input.at('i')} - ${of.mean.at('c')}) * inverse * ${of.scale.at('c')} + ${of.bias.at('c')}`,
      ),
    ]);
  },
} satisfies Kernels;

const localResponseNormalization = {
  type: 'LRN',
  emit(emitter) {
    const given = emitter.required(0, floats);
    const { channels, spatial } = channelsOf(given);
    const size = emitter.attribute('size', 1);
    const output = requiredOutput(emitter);
    const accumulator = accumulatorOf(given.datatype);
    const alpha = floatLiteral(emitter.attribute('alpha', 1e-4) / size);
    const pow = mathOf(accumulator)('pow');
    const power = `${pow}((${accumulator})${floatLiteral(emitter.attribute('bias', 1))} + ${alpha} * sum, (${accumulator})${floatLiteral(emitter.attribute('beta', 0.75))})`;
    const [before, after] = [Math.floor((size - 1) / 2), Math.ceil((size - 1) / 2)];
    const tensors = { input: given, output: written(output) };
    forEachElement(emitter, 'local_response_normalization', output.elements, tensors, (of) => [
      `const int c = (int)(i / ${spatial}u % ${channels}u);`,
      `const int first = c < ${before} ? -c : -${before};`,
      `const int end = ${channels} - c <= ${after} ? ${channels} - c : ${after + 1};`,
      `${accumulator} sum = 0;`,
      'for (int step = first; step < end; step++) {',
      `  const ${accumulator} x = ${of.input.at(`(i64)i + (i64)step * ${spatial}`)};`,
      '  sum += x * x;',
      '}',
      of.output.set('i', `${of.input.at('i')} / ${power}`),
    ]);
  },
} satisfies Kernels;

export const channelNormalizationOperators = [
  batchNormalization,
  localResponseNormalization,
] as const satisfies readonly Kernels[];
