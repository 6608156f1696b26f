/** Operators that are one strided copy, Slice and Expand. */
import type { Kernels } from '../types.ts';
import { sliceRange, Unsupported, knownNumbers, listOf } from '../../../operators/index.ts';
import { axisOf, broadcastStrides, stridesOf } from '../common/indexing.ts';
import { asDeclared, requiredOutput } from '../common/inputs.ts';
import { moveStrided, sideOf } from '../common/launching.ts';

const slice = {
  type: 'Slice',
  emit(emitter) {
    const given = emitter.required(0);
    const starts = listOf(emitter, 'starts', 1);
    const ends = listOf(emitter, 'ends', 2);
    if (starts === undefined || ends === undefined) throw new Unsupported('it has no starts or no ends');
    const axes = listOf(emitter, 'axes', 3) ?? starts.map((_, axis) => axis);
    const steps = knownNumbers(emitter, 4, 'steps') ?? starts.map(() => 1);
    if (steps.includes(0)) throw new Unsupported('a step of its slice is 0');
    const input = asDeclared(emitter, given);
    const output = requiredOutput(emitter);
    const strides = stridesOf(input.shape);
    const walk = [...strides];
    let start = 0;
    for (const [index, named] of axes.entries()) {
      const axis = axisOf(named, input.shape.length);
      const { from } = sliceRange(input.shape[axis]!, starts[index]!, ends[index]!, steps[index]!);
      start += from * strides[axis]!;
      walk[axis] = steps[index]! * strides[axis]!;
    }
    const to = sideOf(output, stridesOf(output.shape));
    moveStrided(emitter, 'slice', output.shape, input.datatype, sideOf(input, walk, start), to);
  },
} satisfies Kernels;

const expand = {
  type: 'Expand',
  emit(emitter) {
    const input = asDeclared(emitter, emitter.required(0));
    const output = requiredOutput(emitter);
    const from = sideOf(input, broadcastStrides(input.shape, output.shape));
    moveStrided(emitter, 'expand', output.shape, input.datatype, from, sideOf(output, stridesOf(output.shape)));
  },
} satisfies Kernels;

export const stridedOperators = [slice, expand] as const satisfies readonly Kernels[];
