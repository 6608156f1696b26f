/** DynamicQuantizeLinear: scale and zero point from the range of the elements, in two launches. */
import { floats, elementOf } from '../../../operators/index.ts';
import { indexType } from '../common/indexing.ts';
import { asDeclared, requiredOutput } from '../common/inputs.ts';
import { forEachElement, written } from '../common/elements.ts';
import { read, write } from '../common/launching.ts';
import { teamKernel } from '../common/teams.ts';
import type { Emitter, Kernels } from '../types.ts';

const block = 256;
/** Elements that one block of the first kernel reads. */
const perBlock = 4096;
/** Each thread of the second kernel reads the ranges of all blocks. */
const partsMax = 128;

function emit(emitter: Emitter): void {
  const input = asDeclared(emitter, emitter.required(0, floats));
  const scale = emitter.output(1)?.buffer ?? emitter.scratch(4);
  const zero = emitter.output(2)?.buffer ?? emitter.scratch(1);
  const element = elementOf(input.datatype);
  const count = input.elements;
  const parts = Math.max(1, Math.min(partsMax, Math.ceil(count / perBlock)));
  const ranges = emitter.scratch(parts * 8);
  const kernel = emitter.kernel(
    'dynamic_range',
    teamKernel('dynamic-range', {
      INPUT: element.stored,
      'LOAD(x)': element.load('(x)'),
      INDEX: indexType(count + partsMax * block),
      COUNT: `${count}u`,
      PARTS: parts,
      BLOCK: block,
    }),
  );
  emitter.launch({ kernel, grid: [parts], block: [block], arguments: [read(input.buffer), write(ranges)] });
  const tensors = {
    ...(count > 0 && { input, output: written(requiredOutput(emitter)) }),
    ranges: { buffer: ranges, kept: 'FP32' },
    scales: written({ buffer: scale, kept: 'FP32' }),
    zeros: written({ buffer: zero, kept: 'UINT8' }),
  } as const;
  // An empty tensor has a scale and a zero point too.
  forEachElement(emitter, 'dynamic_quantize', Math.max(1, count), tensors, (of) => [
    'float low = 0, high = 0;',
    `for (int part = 0; part < ${parts}; part++) {`,
    '  low = ranges[2 * part] < low ? ranges[2 * part] : low;',
    '  high = ranges[2 * part + 1] > high ? ranges[2 * part + 1] : high;',
    '}',
    'const float scale = high == low ? 1.0f : (high - low) / 255.0f;',
    'const float zero = rintf(fminf(fmaxf(-low / scale, 0.0f), 255.0f));',
    of.input ? `output[i] = (u8)fminf(fmaxf(rintf(${of.input.at('i')} / scale) + zero, 0.0f), 255.0f);` : '',
    'if (i == 0) {',
    '  scales[0] = scale;',
    '  zeros[0] = (u8)zero;',
    '}',
  ]);
}

export const dynamicQuantizeLinear = { type: 'DynamicQuantizeLinear', emit } satisfies Kernels;
