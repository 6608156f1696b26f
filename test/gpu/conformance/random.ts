/** Random cases: shapes, broadcasts, axes and attributes of the operators where these matter most. */
import fc from 'fast-check';
import type { AttributeValue } from '../../../src/onnx/index.ts';
import { elementCount, type DataType } from '../../../src/tensor/index.ts';
import { wholeAttention } from './cases/attention.ts';
import { conformanceCase, filled, given, ints, scalar, tensor, type Case, type CaseInput } from './case.ts';

const size = fc.oneof({ weight: 8, arbitrary: fc.integer({ min: 1, max: 7 }) }, fc.constantFrom(16, 17, 33));
/** Shapes of up to 2,500 elements, with an occasional long or empty axis. */
const shapeOf = (minLength: number, maxLength: number, emptyToo = true): fc.Arbitrary<number[]> =>
  fc
    .array(emptyToo ? fc.oneof({ weight: 30, arbitrary: size }, fc.constant(0)) : size, { minLength, maxLength })
    .filter((shape) => elementCount(shape) <= 2500);
const movable = fc.constantFrom<DataType>('FP32', 'FP16', 'FP64', 'INT32', 'INT64', 'UINT8', 'BOOL');
const seeds = fc.nat(1000);

const x = (shape: readonly number[], datatype: DataType, seed = 1): CaseInput => given(filled(datatype, shape, seed));

/** The shape with some axes replaced by 1, and some leading ones omitted. */
const narrowed = (shape: readonly number[]): fc.Arbitrary<number[]> =>
  fc
    .tuple(fc.nat(shape.length), fc.array(fc.boolean(), { minLength: shape.length, maxLength: shape.length }))
    .map(([from, ones]) => shape.map((of, axis) => (ones[axis] === true ? 1 : of)).slice(from));

const axisIn = (rank: number): fc.Arbitrary<number> => fc.integer({ min: -rank, max: rank - 1 });

const broadcast = fc
  .tuple(
    fc.constantFrom('Add', 'Mul', 'Sub', 'Max'),
    shapeOf(0, 4),
    fc.constantFrom<DataType>('FP32', 'INT64', 'INT32'),
    seeds,
  )
  .chain(([operator, shape, datatype, seed]) =>
    fc
      .tuple(narrowed(shape), narrowed(shape))
      .map(([a, b]) => conformanceCase(operator, 'random', [x(a, datatype, seed), x(b, datatype, seed + 1)])),
  );

const where = shapeOf(0, 4).chain((shape) =>
  fc
    .tuple(narrowed(shape), narrowed(shape), narrowed(shape))
    .map(([a, b, c]) =>
      conformanceCase('Where', 'random', [x(a, 'BOOL'), x(b, 'FP32', 2), x(c, 'FP32', 3)], { outputs: ['FP32'] }),
    ),
);

const transpose = fc
  .tuple(shapeOf(1, 5), movable)
  .chain(([shape, datatype]) =>
    fc
      .shuffledSubarray([...shape.keys()], { minLength: shape.length })
      .map((perm) => conformanceCase('Transpose', 'random', [x(shape, datatype)], { attributes: { perm } })),
  );

const slice = fc.tuple(shapeOf(1, 4), movable).chain(([shape, datatype]) =>
  fc
    .shuffledSubarray([...shape.keys()])
    .chain((axes) =>
      fc.tuple(
        ...axes.map((axis) =>
          fc.record({
            axis: fc.constantFrom(axis, axis - shape.length),
            start: fc.integer({ min: -shape[axis]! - 2, max: shape[axis]! + 2 }),
            end: fc.integer({ min: -shape[axis]! - 2, max: shape[axis]! + 2 }),
            step: fc.constantFrom(1, 1, 2, 3, -1, -2),
          }),
        ),
      ),
    )
    .map((parts) => {
      const list = (key: 'axis' | 'start' | 'end' | 'step'): CaseInput => ints(...parts.map((part) => part[key]));
      return conformanceCase('Slice', 'random', [
        x(shape, datatype),
        list('start'),
        list('end'),
        list('axis'),
        list('step'),
      ]);
    }),
);

const concat = fc.tuple(shapeOf(1, 4), movable).chain(([shape, datatype]) =>
  fc
    .tuple(axisIn(shape.length), fc.array(fc.integer({ min: 0, max: 9 }), { minLength: 1, maxLength: 10 }))
    .map(([axis, sizes]) =>
      conformanceCase(
        'Concat',
        'random',
        sizes.map((of, index) => x(shape.with(axis, of), datatype, index + 1)),
        { attributes: { axis } },
      ),
    ),
);

const split = fc.tuple(shapeOf(1, 4), movable).chain(([shape, datatype]) =>
  fc
    .tuple(axisIn(shape.length), fc.array(fc.integer({ min: 0, max: 9 }), { minLength: 1, maxLength: 9 }))
    .map(([axis, sizes]) => {
      const whole = shape.with(
        axis,
        sizes.reduce((a, b) => a + b, 0),
      );
      return conformanceCase('Split', 'random', [x(whole, datatype), ints(...sizes)], {
        attributes: { axis },
        outputs: sizes.map(() => datatype),
      });
    }),
);

const gather = fc.tuple(shapeOf(1, 4, false), shapeOf(0, 2), movable).chain(([shape, indices, datatype]) =>
  axisIn(shape.length).chain((axis) => {
    const along = shape.at(axis)!;
    const count = elementCount(indices);
    return fc.array(fc.integer({ min: -along, max: along - 1 }), { minLength: count, maxLength: count }).map((values) =>
      conformanceCase('Gather', 'random', [x(shape, datatype), given(tensor('INT64', indices, values))], {
        attributes: { axis },
      }),
    );
  }),
);

const pad = shapeOf(1, 4, false).chain((shape) =>
  fc
    .tuple(
      fc.constantFrom('constant', 'constant', 'reflect', 'edge'),
      fc.array(fc.integer({ min: -2, max: 3 }), { minLength: 2 * shape.length, maxLength: 2 * shape.length }),
    )
    .map(([mode, wanted]) => {
      // Reflection must end before the other end, and ONNX Runtime reflects and repeats before it removes elements.
      const pads = wanted.map((of, index) => {
        const along = shape[index % shape.length]!;
        if (mode === 'constant') return Math.max(of, -Math.floor(along / 2));
        return Math.max(0, mode === 'reflect' ? Math.min(of, along - 1) : of);
      });
      return conformanceCase(
        'Pad',
        'random',
        [x(shape, 'FP32'), ints(...pads), ...(mode === 'constant' ? [scalar('FP32', 1.25)] : [])],
        {
          attributes: { mode },
        },
      );
    }),
);

const expand = shapeOf(1, 4).chain((shape) =>
  narrowed(shape).map((from) => conformanceCase('Expand', 'random', [x(from, 'FP32'), ints(...shape)])),
);

const reduce = fc
  .tuple(
    fc.constantFrom('ReduceMean', 'ReduceMax', 'ReduceL2', 'ReduceLogSumExp', 'ReduceMin', 'ReduceSumSquare'),
    shapeOf(1, 5, false),
    fc.constantFrom(0, 1),
  )
  .chain(([operator, shape, keepdims]) =>
    fc
      .subarray([...shape.keys()], { minLength: 1 })
      .map((axes) => conformanceCase(operator, 'random', [x(shape, 'FP32')], { attributes: { axes, keepdims } })),
  );

const alongAxis = fc
  .tuple(fc.constantFrom('Softmax', 'LogSoftmax', 'ArgMax', 'CumSum', 'TopK'), shapeOf(1, 4, false), seeds)
  .chain(([operator, shape, seed]) =>
    fc
      .tuple(axisIn(shape.length), fc.nat(8), fc.constantFrom(0, 1), fc.constantFrom(0, 1))
      .map(([axis, k, one, other]): Case => {
        const input = x(shape, 'FP32', seed);
        switch (operator) {
          case 'ArgMax':
            return conformanceCase(operator, 'random', [input], {
              attributes: { axis, keepdims: one },
              outputs: ['INT64'],
            });
          case 'CumSum':
            return conformanceCase(operator, 'random', [input, scalar('INT64', axis)], {
              attributes: { exclusive: one, reverse: other },
            });
          case 'TopK':
            return conformanceCase(operator, 'random', [input, ints(Math.min(k, shape.at(axis)!))], {
              attributes: { axis, largest: one },
              outputs: ['FP32', 'INT64'],
            });
          default:
            return conformanceCase(operator, 'random', [input], { attributes: { axis } });
        }
      }),
  );

const normalize = fc.tuple(shapeOf(1, 4, false), seeds).chain(([shape, seed]) =>
  axisIn(shape.length).map((axis) => {
    const weights = shape.slice(axis < 0 ? axis + shape.length : axis);
    return conformanceCase(
      'LayerNormalization',
      'random',
      [x(shape, 'FP32', seed), x(weights, 'FP32', 2), x(weights, 'FP32', 3)],
      {
        attributes: { axis, epsilon: { float: 1e-3 } },
        // The result of a row of two nearly equal values is mostly rounding error.
        tolerance: 1e-4,
      },
    );
  }),
);

const pool = fc
  .record({
    operator: fc.constantFrom('MaxPool', 'AveragePool'),
    sizes: fc.array(fc.integer({ min: 5, max: 11 }), { minLength: 1, maxLength: 2 }),
    kernel: fc.integer({ min: 1, max: 4 }),
    stride: fc.integer({ min: 1, max: 3 }),
    before: fc.nat(1),
    after: fc.nat(1),
    ceiling: fc.constantFrom(0, 1),
    count: fc.constantFrom(0, 1),
  })
  .filter(({ kernel, before, after }) => before < kernel && after < kernel)
  .map(({ operator, sizes, kernel, stride, before, after, ceiling, count }) => {
    const each = (value: number): number[] => sizes.map(() => value);
    const attributes: Record<string, AttributeValue> = {
      kernel_shape: each(kernel),
      strides: each(stride),
      pads: [...each(before), ...each(after)],
      ceil_mode: ceiling,
      ...(operator === 'AveragePool' ? { count_include_pad: count } : {}),
    };
    return conformanceCase(operator, 'random', [x([2, 3, ...sizes], 'FP32')], { attributes, opset: 19 });
  });

const matmul = fc
  .tuple(
    shapeOf(0, 2, false),
    fc.integer({ min: 1, max: 20 }),
    fc.integer({ min: 1, max: 20 }),
    fc.integer({ min: 1, max: 20 }),
  )
  .chain(([batch, m, n, k]) =>
    fc
      .tuple(narrowed(batch), narrowed(batch))
      .map(([a, b]) => conformanceCase('MatMul', 'random', [x([...a, m, k], 'FP32'), x([...b, k, n], 'FP32', 2)])),
  );

const convolution = fc
  .record({
    groups: fc.integer({ min: 1, max: 3 }),
    inputs: fc.integer({ min: 1, max: 3 }),
    outputs: fc.integer({ min: 1, max: 3 }),
    sizes: fc.array(fc.integer({ min: 5, max: 8 }), { minLength: 1, maxLength: 2 }),
    kernel: fc.integer({ min: 1, max: 3 }),
    stride: fc.integer({ min: 1, max: 2 }),
    dilation: fc.integer({ min: 1, max: 2 }),
    pad: fc.nat(2),
  })
  .map(({ groups, inputs, outputs, sizes, kernel, stride, dilation, pad }) => {
    const each = (value: number): number[] => sizes.map(() => value);
    return conformanceCase(
      'Conv',
      'random',
      [
        x([2, groups * inputs, ...sizes], 'FP32'),
        x([groups * outputs, inputs, ...each(kernel)], 'FP32', 2),
        x([groups * outputs], 'FP32', 3),
      ],
      {
        attributes: {
          group: groups,
          strides: each(stride),
          dilations: each(dilation),
          pads: [...each(pad), ...each(pad)],
        },
      },
    );
  });

const lie = (width: number) =>
  fc.oneof(
    fc.constantFrom('apart' as const, 'together' as const),
    fc.tuple(fc.nat(5), fc.nat(5)).map(([from, rest]) => ({ from, width: from + width + rest })),
  );
const rowCount = fc.oneof(fc.integer({ min: 1, max: 70 }), fc.constantFrom(1, 16, 32, 64, 65, 130));
const whole = fc
  .record({
    batch: fc.integer({ min: 1, max: 3 }),
    heads: fc.oneof(fc.integer({ min: 1, max: 4 }), fc.constant(64)),
    queries: rowCount,
    keys: rowCount,
    size: fc.oneof(fc.integer({ min: 1, max: 20 }), fc.constantFrom(64, 80, 128)),
    valueSize: fc.oneof(fc.integer({ min: 1, max: 20 }), fc.constantFrom(64, 80, 128)),
    scale: fc.constantFrom(1, 0.125, -0.5),
    noNan: fc.boolean(),
    seed: seeds,
    masked: fc.boolean(),
  })
  .filter(({ batch, heads, queries, keys, size }) => batch * heads * queries * keys * size <= 400_000)
  .chain(({ masked, ...options }) => {
    const { batch, heads, queries, keys, size: each, valueSize, seed } = options;
    return fc
      .record({
        lies: fc.tuple(
          lie(heads * each),
          lie(heads * each),
          lie(heads * valueSize),
          fc.constantFrom('apart' as const, 'together' as const),
        ),
        mask: narrowed([batch, heads, queries, keys]).map((shape) => (masked ? x(shape, 'FP32', seed + 9) : undefined)),
      })
      .map((drawn) => wholeAttention('random', { ...options, ...drawn }));
  });

/** `ofEach` cases of each kind. */
export const randomCases = (seed: number, ofEach: number): Case[] =>
  [
    broadcast,
    where,
    transpose,
    slice,
    concat,
    split,
    gather,
    pad,
    expand,
    reduce,
    alongAxis,
    normalize,
    pool,
    matmul,
    convolution,
    whole,
  ].flatMap((kind, index) => fc.sample<Case>(kind, { seed: seed + index, numRuns: ofEach }));
