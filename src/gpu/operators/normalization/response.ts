/** LRN: a thread for each element. */
import { type Kernels, Unsupported } from '../types.ts';
import { accumulatorOf, floatLiteral, floats } from '../common/element.ts';
import { forEachElement, written } from '../common/elements.ts';
import { product } from '../common/indexing.ts';
import { requiredOutput } from '../common/inputs.ts';
import { mathOf } from '../common/teams.ts';

export const localResponseNormalization = {
  type: 'LRN',
  emit(emitter) {
    const given = emitter.required(0, floats);
    const [, channels, ...sizes] = given.shape;
    if (channels === undefined) throw new Unsupported(`'${given.name}' has no channels`);
    const spatial = product(sizes);
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
