import type { DataType } from '../../../src/tensor/index.ts';
import type { Drawn } from './draw.ts';

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

export const normalization: Readonly<Record<string, Drawn>> = {
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
};
