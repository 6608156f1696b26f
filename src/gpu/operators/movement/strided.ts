/** Operators that are one walk over elements by strides: Slice, Expand, Tile, DepthToSpace and SpaceToDepth. */
import { Unsupported, type Emitter, type Operator, type Value } from '../types.ts';
import { axisOf, broadcastStrides, stridesOf } from '../common/indexing.ts';
import { asDeclared, knownNumbers, listOf, requiredOutput } from '../common/inputs.ts';
import { moveStrided, sideOf } from '../common/launching.ts';

interface Range {
  readonly start: number;
  readonly step: number;
  readonly size: number;
}

const clamp = (value: number, low: number, high: number): number => Math.min(Math.max(value, low), high);

/** A slice of an axis by numpy's rules, with ONNX's: what lies beyond an end is moved to it. */
function rangeOf(start: number, end: number, step: number, size: number): Range {
  if (step === 0) throw new Unsupported('a step of its slice is 0');
  const fromFront = (at: number): number => (at < 0 ? at + size : at);
  if (step > 0) {
    const first = clamp(fromFront(start), 0, size);
    return { start: first, step, size: Math.max(0, Math.ceil((clamp(fromFront(end), 0, size) - first) / step)) };
  }
  // Unlike numpy, ONNX moves a start in front of the first element to that element.
  const first = clamp(fromFront(start), 0, size - 1);
  return { start: first, step, size: Math.max(0, Math.ceil((clamp(fromFront(end), -1, size - 1) - first) / step)) };
}

function slicedRanges(emitter: Emitter, input: Value): Range[] {
  const starts = listOf(emitter, 'starts', 1);
  const ends = listOf(emitter, 'ends', 2);
  if (starts === undefined || ends === undefined) throw new Unsupported('it has no starts or no ends');
  const axes = listOf(emitter, 'axes', 3) ?? starts.map((_, axis) => axis);
  const steps = knownNumbers(emitter, 4, 'steps') ?? starts.map(() => 1);
  const ranges = input.shape.map((size): Range => ({ start: 0, step: 1, size }));
  for (const [index, given] of axes.entries()) {
    const axis = axisOf(given, input.shape.length);
    ranges[axis] = rangeOf(starts[index]!, ends[index]!, steps[index]!, input.shape[axis]!);
  }
  return ranges;
}

const slice: Operator = {
  type: 'Slice',
  emit(emitter) {
    const given = emitter.required(0);
    const ranges = slicedRanges(emitter, given);
    const input = asDeclared(emitter, given);
    const output = requiredOutput(emitter);
    const strides = stridesOf(input.shape);
    const start = ranges.reduce((sum, range, axis) => sum + range.start * strides[axis]!, 0);
    moveStrided(
      emitter,
      'slice',
      output.shape,
      input.datatype,
      sideOf(
        input,
        ranges.map(({ step }, axis) => step * strides[axis]!),
        start,
      ),
      sideOf(output, stridesOf(output.shape)),
    );
  },
};

const expand: Operator = {
  type: 'Expand',
  emit(emitter) {
    const input = asDeclared(emitter, emitter.required(0));
    const output = requiredOutput(emitter);
    const from = sideOf(input, broadcastStrides(input.shape, output.shape));
    moveStrided(emitter, 'expand', output.shape, input.datatype, from, sideOf(output, stridesOf(output.shape)));
  },
};

const tile: Operator = {
  type: 'Tile',
  emit(emitter) {
    const repeats = knownNumbers(emitter, 1, 'repeats');
    const input = asDeclared(emitter, emitter.required(0));
    const output = requiredOutput(emitter);
    // Each axis is walked as two: the repetitions, which step nowhere in the input, and the axis itself.
    const strides = stridesOf(input.shape);
    const sizes = input.shape.flatMap((size, axis) => [repeats?.[axis] ?? 1, size]);
    const from = sideOf(
      input,
      strides.flatMap((stride) => [0, stride]),
    );
    moveStrided(emitter, 'tile', sizes, input.datatype, from, sideOf(output, stridesOf(sizes)));
  },
};

/** Reads the input as a tensor of 6 dimensions, and writes it with these in another order. */
function permuteBlocks(emitter: Emitter, hint: string, sizes: readonly number[], order: readonly number[]): void {
  const input = asDeclared(emitter, emitter.required(0));
  const output = requiredOutput(emitter);
  const strides = stridesOf(sizes);
  const permuted = order.map((axis) => sizes[axis]!);
  const from = sideOf(
    input,
    order.map((axis) => strides[axis]!),
  );
  moveStrided(emitter, hint, permuted, input.datatype, from, sideOf(output, stridesOf(permuted)));
}

function planes(emitter: Emitter): readonly [batch: number, channels: number, height: number, width: number] {
  const { name, shape } = emitter.required(0);
  const [batch, channels, height, width] = shape;
  if (
    batch === undefined ||
    channels === undefined ||
    height === undefined ||
    width === undefined ||
    shape.length > 4
  ) {
    throw new Unsupported(`'${name}' has ${shape.length} dimensions, not 4`);
  }
  return [batch, channels, height, width];
}

const depthToSpace: Operator = {
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
};

const spaceToDepth: Operator = {
  type: 'SpaceToDepth',
  emit(emitter) {
    const [batch, channels, height, width] = planes(emitter);
    const block = emitter.attribute('blocksize', 1);
    const sizes = [batch, channels, height / block, block, width / block, block];
    permuteBlocks(emitter, 'space_to_depth', sizes, [0, 3, 5, 1, 2, 4]);
  },
};

export const stridedOperators: readonly Operator[] = [slice, expand, tile, depthToSpace, spaceToDepth];
