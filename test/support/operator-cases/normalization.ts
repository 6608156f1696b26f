/** Cases of softmax and the normalisations. */
/* oxlint-disable oxc/no-map-spread -- a table is made once, and is read best as nested lists */
import type { DataType } from '../../../src/tensor/index.ts';
import { filled, given, operatorCase, tensor, type Case, type CaseInput, type CaseOptions } from './case.ts';
import type { Drawn, FamilyCases } from './draw.ts';

const x = (shape: readonly number[], datatype: DataType = 'FP32', seed = 1): CaseInput =>
  given(filled(datatype, shape, seed));
const values = (shape: readonly number[], ...of: number[]): CaseInput => given(tensor('FP32', shape, of));

const softmaxes: readonly Case[] = ['Softmax', 'LogSoftmax'].flatMap((operator) => [
  operatorCase(operator, 'rows for a warp', [x([5, 40])]),
  operatorCase(operator, 'rows for a block', [x([3, 700])]),
  operatorCase(operator, 'rows that are read again', [x([1, 33_000])], { tolerance: 1e-4 }),
  operatorCase(operator, 'a long axis in the middle', [x([2, 40, 3])], { attributes: { axis: -2 } }),
  operatorCase(operator, 'masked by infinity', [values([2, 3], 1, -Infinity, 2, 0, 1, -Infinity)]),
  operatorCase(operator, 'large values', [values([1, 3], 1000, 1001, 999)]),
  operatorCase(operator, 'BF16', [x([3, 20], 'BF16')]),
]);

interface Masked {
  readonly shape: readonly number[];
  readonly mask?: readonly number[];
  readonly scale?: number;
  readonly axis?: number;
  readonly datatype?: DataType;
}

function masked({ shape, mask, scale = 1, axis = -1, datatype = 'FP32' }: Masked): Case {
  return operatorCase(
    'turntable.MaskedSoftmax',
    `mask [${mask?.join() ?? ''}], scale ${scale}`,
    [x(shape, datatype), ...(mask === undefined ? [] : [x(mask, datatype, 3)])],
    {
      attributes: { scale: { float: scale }, axis },
      reference: (graph, [input, addend]) => {
        const type = datatype === 'FP64' ? ('FP64' as const) : ('FP32' as const);
        const factor = graph.constant({ tensor: tensor(type, [], [Math.fround(scale)]) });
        const scaled = graph.node('Mul', [input!, factor]);
        const sum = addend === undefined ? scaled : graph.node('Add', [scaled, addend]);
        return [graph.node('Softmax', [sum], { axis })];
      },
    },
  );
}

const maskedSoftmaxes: readonly Case[] = [
  masked({ shape: [1, 2, 5, 5], mask: [1, 1, 1, 5], scale: 0.125 }),
  masked({ shape: [2, 3, 4, 40], mask: [2, 1, 4, 40], scale: 0.5 }),
  masked({ shape: [3, 300], mask: [300] }),
  masked({ shape: [2, 5, 3], mask: [1, 5, 1], axis: 1, scale: 2 }),
  masked({ shape: [2, 20], mask: [], datatype: 'FP16', scale: 0.25 }),
];

const drawnMasked: Drawn = (draw) => {
  const shape = draw.filledShape(1, 4);
  return masked({
    shape,
    ...(draw.chance(0.8) ? { mask: draw.narrowed(shape) } : {}),
    scale: draw.pick([1, 0.125, -0.5]),
    axis: draw.axis(shape.length),
    datatype: draw.pick(['FP32', 'FP32', 'FP16', 'FP64']),
  });
};

const layer = (shape: readonly number[], axis: number, datatype: DataType = 'FP32', bias = true): Case => {
  const weights = shape.slice(axis < 0 ? shape.length + axis : axis);
  return operatorCase(
    'LayerNormalization',
    `[${shape.join(',')}] from ${axis}`,
    [x(shape, datatype), x(weights, datatype, 2), ...(bias ? [x(weights, datatype, 3)] : [])],
    { attributes: { axis, epsilon: { float: 1e-6 } } },
  );
};

function addNormalization(shape: readonly number[], other: readonly number[], addend: boolean, sum: boolean): Case {
  const width = shape.slice(-1);
  return operatorCase(
    'turntable.AddLayerNormalization',
    `[${shape.join(',')}] and [${other.join(',')}]`,
    [x(shape), x(other, 'FP32', 4), x(width, 'FP32', 2), x(width, 'FP32', 3), ...(addend ? [x(width, 'FP32', 5)] : [])],
    {
      attributes: { axis: -1, epsilon: { float: 1e-5 } },
      outputs: ['FP32', sum ? 'FP32' : undefined],
      reference: (graph, [a, b, scale, bias, extra]) => {
        const addends = [a!, b!, ...(extra === undefined ? [] : [extra])];
        const added = addends.reduce((one, other) => graph.node('Add', [one, other]));
        const attributes = { axis: -1, epsilon: { float: 1e-5 } };
        return [graph.node('LayerNormalization', [added, scale!, bias!], attributes), added];
      },
    },
  );
}

const drawnAddNormalization: Drawn = (draw) => {
  const shape = draw.filledShape(2, 4);
  const other = shape.slice(draw.pick([0, 0, 1]));
  return addNormalization(shape, other, draw.chance(0.5), draw.chance(0.5));
};

const rows: readonly Case[] = [
  layer([2, 3, 40], 2),
  layer([3, 700], -1),
  layer([2, 5000], 1),
  layer([2, 40], -1, 'BF16'),
  layer([0, 8], -1),
  operatorCase(
    'LayerNormalization',
    'a large mean',
    [values([1, 6], 1000, 1001, 1002, 1003, 1004, 1005), x([6], 'FP32', 2), x([6], 'FP32', 3)],
    { tolerance: 1e-4 },
  ),
  operatorCase('RMSNormalization', 'rows for a warp', [x([3, 40]), x([40], 'FP32', 2)], { opset: 23 }),
  operatorCase('SimplifiedLayerNormalization', 'rows for a warp', [x([3, 40]), x([40], 'FP32', 2)]),
  addNormalization([2, 4, 20], [2, 4, 20], false, true),
  addNormalization([2, 4, 20], [4, 20], true, false),
  addNormalization([3, 300], [3, 300], true, true),
  operatorCase(
    'com.microsoft.SkipLayerNormalization',
    'with a bias and the sum',
    [x([2, 3, 20]), x([2, 3, 20], 'FP32', 4), x([20], 'FP32', 2), x([20], 'FP32', 3), x([20], 'FP32', 5)],
    { outputs: ['FP32', undefined, undefined, 'FP32'] },
  ),
  operatorCase('com.microsoft.SkipSimplifiedLayerNormalization', 'rows of 20', [
    x([2, 3, 20]),
    x([2, 3, 20], 'FP32', 4),
    x([20], 'FP32', 2),
  ]),
  operatorCase(
    'com.microsoft.EmbedLayerNormalization',
    'the sum, of rows of 40',
    [
      given(tensor('INT32', [2, 3], [0, 5, 2, 1, 4, 3])),
      undefined,
      x([6, 40]),
      x([4, 40], 'FP32', 2),
      undefined,
      x([40], 'FP32', 3),
      x([40], 'FP32', 4),
    ],
    { outputs: ['FP32', 'INT32', 'FP32'] },
  ),
];

const channels = (
  operator: string,
  name: string,
  shape: readonly number[],
  weights: number,
  more: CaseOptions = {},
): Case => operatorCase(operator, name, [x(shape), x([weights], 'FP32', 2), x([weights], 'FP32', 3)], more);

const ofChannels: readonly Case[] = [
  channels('InstanceNormalization', 'large images', [1, 2, 18, 18], 2),
  channels('GroupNormalization', 'one group', [1, 4, 5], 4, { attributes: { num_groups: 1 }, opset: 21 }),
  operatorCase('BatchNormalization', 'nothing', [
    x([0, 3, 2]),
    ...[2, 3, 4].map((seed) => x([3], 'FP32', seed)),
    values([3], 0.2, 1, 2),
  ]),
  operatorCase('LRN', 'wider than the channels', [x([1, 3, 2, 2])], { attributes: { size: 5 } }),
  operatorCase('LpNormalization', 'zeros', [values([2, 2], 0, 0, 3, 4)]),
  ...[[2, 3], [0]].map((axes) =>
    operatorCase('MeanVarianceNormalization', `axes ${axes.join()}`, [x([5, 3, 4, 5])], {
      attributes: { axes },
      tolerance: 1e-4,
    }),
  ),
  operatorCase('MeanVarianceNormalization', 'one element', [values([1, 1, 1, 1], -0.69)]),
  operatorCase('MeanVarianceNormalization', 'equal ones in a channel', [values([1, 2, 1, 2], 2, 2, 3, 4)]),
  operatorCase('Hardmax', 'equal ones', [values([2, 3], 1, 3, 3, 2, 2, 2)]),
];

const floats: readonly DataType[] = ['FP32', 'FP32', 'FP32', 'FP16', 'FP64'];

const softmax =
  (operator: string): Drawn =>
  (draw) => {
    const shape = draw.shape(1, 4);
    return draw.case(operator, [draw.x(draw.pick(floats), shape)], {
      attributes: draw.some({ axis: draw.axis(shape.length) }, 0.7),
      opset: draw.pick([9, 11, 13, 17, 21]),
    });
  };

const layerNormalization: Drawn = (draw) => {
  const shape = draw.filledShape(1, 4);
  const axis = draw.axis(shape.length);
  const isDefault = draw.chance(0.3);
  const rows = shape.slice(isDefault ? -1 : axis);
  const datatype = draw.pick(['FP32', 'FP32', 'FP32', 'FP16', 'FP64'] as const);
  const bias = draw.chance(0.5) ? [draw.w(datatype, rows)] : [];
  return draw.case('LayerNormalization', [draw.x(datatype, shape), draw.w(datatype, rows), ...bias], {
    attributes: { ...(isDefault ? {} : { axis }), ...draw.some({ epsilon: { float: 1e-2 }, stash_type: 1 }, 0.3) },
    outputs: draw.pick([1, 1, 2, 3, [true, false, true]]),
    opset: 17,
  });
};

const rms =
  (operator: string, opset: number): Drawn =>
  (draw) => {
    const shape = draw.filledShape(1, 4);
    const axis = operator === 'RMSNormalization' ? draw.axis(shape.length) : -1;
    const isDefault = draw.chance(0.3);
    const rows = shape.slice(isDefault ? -1 : axis);
    return draw.case(operator, [draw.x('FP32', shape), draw.w('FP32', rows)], {
      attributes: { ...(isDefault ? {} : { axis }), ...draw.some({ epsilon: { float: 1e-2 } }, 0.3) },
      outputs: operator === 'SimplifiedLayerNormalization' ? draw.pick([1, 2]) : 1,
      opset,
    });
  };

const skip =
  (operator: string): Drawn =>
  (draw) => {
    const shape = [draw.int(1, 3), draw.int(1, 4), draw.int(1, 6)];
    const width = shape[2]!;
    const isSimple = operator.includes('Simplified');
    const bias = draw.chance(0.4) ? draw.w('FP32', [width]) : undefined;
    const beta = draw.chance(0.5) ? draw.w('FP32', [width]) : undefined;
    const rest = isSimple ? [bias] : [beta, bias];
    while (rest.length > 0 && rest.at(-1) === undefined) rest.pop();
    return draw.case(operator, [draw.x('FP32', shape), draw.x('FP32', shape), draw.w('FP32', [width]), ...rest], {
      attributes: draw.some({ epsilon: { float: 1e-3 } }),
      outputs: draw.pick([1, [true, false, false, true], [true, true, true], [true, true]]),
    });
  };

const instance: Drawn = (draw) => {
  const shape = draw.filledShape(3, 5);
  const datatype = draw.pick(['FP32', 'FP32', 'FP16'] as const);
  return draw.case(
    'InstanceNormalization',
    [draw.x(datatype, shape), draw.w(datatype, [shape[1]!]), draw.w(datatype, [shape[1]!])],
    {
      attributes: draw.some({ epsilon: { float: 1e-2 } }),
      opset: draw.pick([9, 17, 22]),
    },
  );
};

const group: Drawn = (draw) => {
  const groups = draw.int(1, 3);
  const channels = groups * draw.int(1, 3);
  const opset = draw.pick([18, 21]);
  const size = opset === 18 ? groups : channels;
  return draw.case(
    'GroupNormalization',
    [
      draw.x('FP32', [draw.int(1, 2), channels, ...draw.filledShape(1, 2)]),
      draw.w('FP32', [size]),
      draw.w('FP32', [size]),
    ],
    { attributes: { num_groups: groups, ...draw.some({ epsilon: { float: 1e-2 } }) }, opset },
  );
};

const batch: Drawn = (draw) => {
  const shape = draw.shape(2, 4);
  const channels = shape[1]!;
  const datatype = draw.pick(['FP32', 'FP32', 'FP16', 'FP64'] as const);
  const variance = draw.values(
    datatype,
    [channels],
    Array.from({ length: channels }, () => draw.int(1, 20) / 10),
  );
  return draw.case(
    'BatchNormalization',
    [
      draw.x(datatype, shape),
      draw.w(datatype, [channels]),
      draw.w(datatype, [channels]),
      draw.w(datatype, [channels]),
      variance,
    ],
    { attributes: draw.some({ epsilon: { float: 1e-2 } }), opset: draw.pick([9, 14, 15]) },
  );
};

const embedding: Drawn = (draw) => {
  const [items, words, width] = [draw.int(1, 3), draw.int(1, 5), draw.int(2, 6)];
  const ids = (below: number) => draw.values('INT32', [items, words], draw.list(items * words, 0, below - 1), false);
  const hasSegments = draw.chance(0.6);
  return draw.case(
    'com.microsoft.EmbedLayerNormalization',
    [
      ids(9),
      hasSegments ? ids(2) : undefined,
      draw.w('FP32', [9, width]),
      draw.w('FP32', [7, width]),
      hasSegments ? draw.w('FP32', [2, width]) : undefined,
      draw.w('FP32', [width]),
      draw.w('FP32', [width]),
      ...draw.pick([[], [ids(2)], [undefined, ids(7)]]),
    ],
    { attributes: draw.some({ epsilon: { float: 1e-3 } }), outputs: draw.pick([2, 3]) },
  );
};

const hardmax: Drawn = (draw) => {
  const shape = draw.filledShape(1, 4);
  return draw.case('Hardmax', [draw.x('FP32', shape)], {
    attributes: shape.length > 1 ? draw.some({ axis: draw.axis(shape.length) }) : { axis: 0 },
    opset: draw.pick([11, 13]),
  });
};

export const normalization: FamilyCases = {
  named: [...softmaxes, ...maskedSoftmaxes, ...rows, ...ofChannels],
  drawn: {
    Softmax: softmax('Softmax'),
    LogSoftmax: softmax('LogSoftmax'),
    LayerNormalization: layerNormalization,
    RMSNormalization: rms('RMSNormalization', 23),
    SimplifiedLayerNormalization: rms('SimplifiedLayerNormalization', 17),
    'com.microsoft.SkipLayerNormalization': skip('com.microsoft.SkipLayerNormalization'),
    'com.microsoft.SkipSimplifiedLayerNormalization': skip('com.microsoft.SkipSimplifiedLayerNormalization'),
    InstanceNormalization: instance,
    GroupNormalization: group,
    BatchNormalization: batch,
    'com.microsoft.EmbedLayerNormalization': embedding,
    LRN: (draw) =>
      draw.case('LRN', [draw.x('FP32', [draw.int(1, 2), draw.int(1, 5), ...draw.filledShape(2, 2)])], {
        attributes: {
          size: draw.pick([1, 3, 5]),
          ...draw.some({ alpha: { float: 0.1 }, beta: { float: 0.5 }, bias: { float: 2 } }),
        },
      }),
    MeanVarianceNormalization: (draw) =>
      draw.case('MeanVarianceNormalization', [draw.x('FP32', draw.filledShape(4, 4))], { opset: draw.pick([9, 13]) }),
    LpNormalization: (draw) => {
      const shape = draw.filledShape(1, 3);
      return draw.case('LpNormalization', [draw.x('FP32', shape)], {
        attributes: draw.some({ axis: draw.axis(shape.length), p: draw.int(1, 2) }),
      });
    },
    Hardmax: hardmax,
    'turntable.MaskedSoftmax': drawnMasked,
    'turntable.AddLayerNormalization': drawnAddNormalization,
  },
};
