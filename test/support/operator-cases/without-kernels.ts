/**
 * Cases of operators without kernels. ONNX Runtime expands those that ONNX defines by others before it folds a graph;
 * the results of Shape and Size are known without a run.
 */
import { filled, given, ints, operatorCase, scalar, tensor, type CaseInput } from './case.ts';
import type { Drawn, FamilyCases } from './draw.ts';

const x = (shape: readonly number[]): CaseInput => given(filled('FP32', shape));

/** Classes of rows: [items, ...further], some of them of the ignored class. */
const loss =
  (operator: string, logProbabilities: boolean): Drawn =>
  (draw) => {
    const [items, classes] = [draw.int(1, 4), draw.int(1, 5)];
    const further = draw.list(draw.int(0, 3), 1, 4);
    const count = further.reduce((product, size) => product * size, items);
    const ignored = draw.pick([undefined, draw.int(0, classes - 1), -1]);
    const labels = draw.list(count, 0, classes - 1).map((label) => (ignored === -1 && draw.chance(0.2) ? -1 : label));
    const isWeighted = draw.chance(0.4);
    return draw.case(
      operator,
      [
        draw.x('FP32', [items, classes, ...further]),
        draw.values('INT64', [items, ...further], labels, false),
        ...(isWeighted ? [draw.x('FP32', [classes])] : []),
      ],
      {
        attributes: {
          ...draw.some({ reduction: draw.pick(['none', 'mean', 'sum']) }),
          ...(ignored === undefined ? {} : { ignore_index: ignored }),
        },
        opset: draw.pick([13, 17, 22]),
        outputs: logProbabilities ? draw.pick([1, 2]) : 1,
      },
    );
  };

const centerCropPad: Drawn = (draw) => {
  const shape = draw.filledShape(1, 4, 8);
  const axes = draw.chance(0.5) ? undefined : draw.axes(shape.length, 1);
  const wanted = draw.list(axes?.length ?? shape.length, 1, 9);
  return draw.case('CenterCropPad', [draw.x(draw.pick(['FP32', 'INT32']), shape), draw.ints(wanted)], {
    attributes: axes === undefined ? {} : { axes },
    opset: 18,
  });
};

const window =
  (operator: string): Drawn =>
  (draw) =>
    draw.case(operator, [draw.values('INT64', [], [draw.int(1, 20)])], {
      attributes: draw.some({ periodic: draw.int(0, 1) }),
      opset: 17,
    });

const melWeightMatrix: Drawn = (draw) => {
  const rate = draw.pick([8000, 16000]);
  const one = (value: number) => draw.values('INT64', [], [value]);
  const edge = (value: number) => draw.values('FP32', [], [value]);
  const [low, high] = [draw.int(0, 100), draw.int(2000, rate / 2)];
  return draw.case(
    'MelWeightMatrix',
    [one(draw.int(2, 12)), one(draw.pick([16, 32])), one(rate), edge(low), edge(high)],
    { opset: 17 },
  );
};

const castTypes = ['FP32', 'FP32', 'FP32', 'FP16', 'FP64', 'INT32', 'INT64'] as const;
const castLike: Drawn = (draw) => {
  const [from, to] = [draw.pick(castTypes), draw.pick(castTypes)];
  return draw.case('CastLike', [draw.x(from, draw.shape(0, 3)), draw.x(to, [1])], { opset: draw.pick([15, 19, 21]) });
};

const labels = given(tensor('INT64', [2], [1, -1]));
const windows = ['BlackmanWindow', 'HammingWindow', 'HannWindow'];

export const withoutKernels: FamilyCases = {
  named: [
    operatorCase('Shape', 'ends before it starts', [x([2, 3])], {
      attributes: { start: 1, end: -2 },
      outputs: ['INT64'],
    }),
    operatorCase('Size', 'nothing', [x([2, 0])], { outputs: ['INT64'] }),
    operatorCase('CastLike', 'toward zero', [x([5]), given(tensor('INT32', [0], []))], {
      outputs: ['INT32'],
      opset: 19,
    }),
    operatorCase('NegativeLogLikelihoodLoss', 'an ignored label', [x([2, 3]), labels], {
      attributes: { ignore_index: -1 },
    }),
    operatorCase('SoftmaxCrossEntropyLoss', 'an ignored label', [x([2, 3]), labels], {
      attributes: { ignore_index: -1 },
      outputs: ['FP32', 'FP32'],
    }),
    operatorCase('CenterCropPad', 'one axis cut, the other padded', [x([5, 2]), ints(2, 5)], { opset: 18 }),
    ...windows.map((operator) => operatorCase(operator, 'one sample', [scalar('INT64', 1)], { outputs: ['FP32'] })),
    operatorCase(
      'MelWeightMatrix',
      'one bin',
      [scalar('INT64', 1), scalar('INT64', 16), scalar('INT64', 8000), scalar('FP32', 0), scalar('FP32', 4000)],
      { outputs: ['FP32'] },
    ),
  ],
  drawn: {
    NegativeLogLikelihoodLoss: loss('NegativeLogLikelihoodLoss', false),
    SoftmaxCrossEntropyLoss: loss('SoftmaxCrossEntropyLoss', true),
    CenterCropPad: centerCropPad,
    BlackmanWindow: window('BlackmanWindow'),
    HammingWindow: window('HammingWindow'),
    HannWindow: window('HannWindow'),
    MelWeightMatrix: melWeightMatrix,
    CastLike: castLike,
    Shape: (draw) =>
      draw.case('Shape', [draw.x('FP32', draw.shape(0, 4))], {
        attributes: draw.some({ start: draw.int(-3, 2), end: draw.int(-2, 4) }),
        opset: 15,
      }),
    Size: (draw) => draw.case('Size', [draw.x('FP32', draw.shape(0, 4))]),
  },
};
