/** BatchNormalization as it is at inference, and local response normalisation: by channel, a thread to an element. */
import { Unsupported, type Operator, type Value } from '../types.ts';
import { accumulatorOf, elementOf, floatLiteral, floats, requireDatatype } from '../common/element.ts';
import { product } from '../common/indexing.ts';
import { asDeclared, requiredOutput } from '../common/inputs.ts';
import { forEachIndex } from '../common/launching.ts';
import { mathOf } from '../common/teams.ts';

function channelsOf({ name, shape }: Value): { readonly channels: number; readonly spatial: number } {
  if (shape.length < 2) throw new Unsupported(`'${name}' has no channels`);
  return { channels: shape[1]!, spatial: product(shape.slice(2)) };
}

const batchNormalization: Operator = {
  type: 'BatchNormalization',
  emit(emitter) {
    const given = emitter.required(0);
    requireDatatype(given, floats);
    if (emitter.attribute('training_mode', 0) === 1 || emitter.output(1) !== undefined) {
      throw new Unsupported('it is in training mode');
    }
    const { channels, spatial } = channelsOf(given);
    const output = requiredOutput(emitter);
    const names = ['scale', 'bias', 'mean', 'variance'] as const;
    const weights = names.map((name, index) => ({ name, value: emitter.required(index + 1) }));
    const input = asDeclared(emitter, given);
    const accumulator = accumulatorOf(input.datatype);
    const sqrt = mathOf(accumulator)('sqrt');
    const [scale, bias, mean, variance] = weights.map(({ name, value }) => elementOf(value.kept).load(`${name}[c]`));
    const element = elementOf(output.datatype);
    forEachIndex(
      emitter,
      'batch_normalization',
      output.elements,
      [
        { name: 'input', type: elementOf(input.datatype).stored, buffer: input.buffer },
        ...weights.map(({ name, value }) => ({ name, type: elementOf(value.kept).stored, buffer: value.buffer })),
        { name: 'output', type: element.stored, buffer: output.buffer, access: 'write' },
      ],
      [
        `const auto c = i / ${spatial}u % ${channels}u;`,
        `const ${accumulator} inverse = 1 / ${sqrt}(${variance} + (${accumulator})${emitter.attribute('epsilon', 1e-5)});`,
        `const ${accumulator} x = ${elementOf(input.datatype).load('input[i]')};`,
        `output[i] = ${element.store(`(x - ${mean}) * inverse * ${scale} + ${bias}`)};`,
      ].join('\n'),
    );
  },
};

const localResponseNormalization: Operator = {
  type: 'LRN',
  emit(emitter) {
    const given = emitter.required(0);
    requireDatatype(given, floats);
    const { channels, spatial } = channelsOf(given);
    const size = emitter.attribute('size', 1);
    const output = requiredOutput(emitter);
    const input = asDeclared(emitter, given);
    const element = elementOf(input.datatype);
    const accumulator = accumulatorOf(input.datatype);
    const alpha = floatLiteral(emitter.attribute('alpha', 1e-4) / size);
    const pow = mathOf(accumulator)('pow');
    const power = `${pow}((${accumulator})${floatLiteral(emitter.attribute('bias', 1))} + ${alpha} * sum, (${accumulator})${floatLiteral(emitter.attribute('beta', 0.75))})`;
    forEachIndex(
      emitter,
      'local_response_normalization',
      output.elements,
      [
        { name: 'input', type: element.stored, buffer: input.buffer },
        { name: 'output', type: element.stored, buffer: output.buffer, access: 'write' },
      ],
      [
        `const int c = (int)(i / ${spatial}u % ${channels}u);`,
        `const int first = c < ${Math.floor((size - 1) / 2)} ? -c : -${Math.floor((size - 1) / 2)};`,
        `const int end = ${channels} - c <= ${Math.ceil((size - 1) / 2)} ? ${channels} - c : ${Math.ceil((size - 1) / 2) + 1};`,
        `${accumulator} sum = 0;`,
        'for (int step = first; step < end; step++) {',
        `  const ${accumulator} x = ${element.load(`input[(i64)i + (i64)step * ${spatial}]`)};`,
        '  sum += x * x;',
        '}',
        `output[i] = ${element.store(`${element.load('input[i]')} / ${power}`)};`,
      ].join('\n'),
    );
  },
};

export const channelNormalizationOperators: readonly Operator[] = [batchNormalization, localResponseNormalization];
