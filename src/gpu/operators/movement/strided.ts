/** Operators that are one strided copy: Slice, Expand, Tile, DepthToSpace and SpaceToDepth. */
import { type Emitter, type Kernels, Unsupported } from '../types.ts';
import { sliceRange } from '../../../operators/index.ts';
import { axisOf, broadcastStrides, stridesOf } from '../common/indexing.ts';
import { asDeclared, knownNumbers, listOf, requiredOutput } from '../common/inputs.ts';
import { moveStrided, sideOf } from '../common/launching.ts';
import { emitPermutation } from '../common/derived.ts';

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

const tile = {
  type: 'Tile',
  emit(emitter) {
    const repeats = knownNumbers(emitter, 1, 'repeats');
    const input = asDeclared(emitter, emitter.required(0));
    const output = requiredOutput(emitter);
    // Each axis becomes two: the repetitions, with stride 0 in the input, and the axis itself.
    const strides = stridesOf(input.shape);
    const sizes = input.shape.flatMap((size, axis) => [repeats?.[axis] ?? 1, size]);
    const from = sideOf(
      input,
      strides.flatMap((stride) => [0, stride]),
    );
    moveStrided(emitter, 'tile', sizes, input.datatype, from, sideOf(output, stridesOf(sizes)));
  },
} satisfies Kernels;

/** Reads the input as a tensor of 6 dimensions, and writes it with its axes in another order. */
function permuteBlocks(emitter: Emitter, hint: string, sizes: readonly number[], order: readonly number[]): void {
  const input = asDeclared(emitter, emitter.required(0));
  emitPermutation(emitter, hint, input, sizes, order, requiredOutput(emitter));
}

function planes(emitter: Emitter): readonly [batch: number, channels: number, height: number, width: number] {
  const { name, shape } = emitter.required(0);
  if (shape.length !== 4) throw new Unsupported(`'${name}' has ${shape.length} dimensions, not 4`);
  return shape as [number, number, number, number];
}

const depthToSpace = {
  type: 'DepthToSpace',
  emit(emitter) {
    const [batch, channels, height, width] = planes(emitter);
    const block = emitter.attribute('blocksize', 1);
    const depth = channels / block ** 2;
    if (emitter.attribute<string>('mode', 'DCR') === 'CRD') {
      permuteBlocks(emitter, 'depth_to_space', [batch, depth, block, block, height, width], [0, 1, 4, 2, 5, 3]);
    } else {
      permuteBlocks(emitter, 'depth_to_space', [batch, block, block, depth, height, width], [0, 3, 4, 1, 5, 2]);
    }
  },
} satisfies Kernels;

const spaceToDepth = {
  type: 'SpaceToDepth',
  emit(emitter) {
    const [batch, channels, height, width] = planes(emitter);
    const block = emitter.attribute('blocksize', 1);
    const sizes = [batch, channels, height / block, block, width / block, block];
    permuteBlocks(emitter, 'space_to_depth', sizes, [0, 3, 5, 1, 2, 4]);
  },
} satisfies Kernels;

export const stridedOperators = [slice, expand, tile, depthToSpace, spaceToDepth] as const satisfies readonly Kernels[];
