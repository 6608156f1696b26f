/** Operators that ONNX defines by others: ONNX Runtime expands them before it folds a graph. */
import type { Drawn } from './draw.ts';

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

export const functions: Readonly<Record<string, Drawn>> = {
  NegativeLogLikelihoodLoss: loss('NegativeLogLikelihoodLoss', false),
  SoftmaxCrossEntropyLoss: loss('SoftmaxCrossEntropyLoss', true),
  CenterCropPad: centerCropPad,
  BlackmanWindow: window('BlackmanWindow'),
  HammingWindow: window('HammingWindow'),
  HannWindow: window('HannWindow'),
  MelWeightMatrix: melWeightMatrix,
};
