/** Cases of operators whose result is their first input with another shape or type. */
import { elementCount } from '../../../src/tensor/index.ts';
import { filled, given, ints, operatorCase, type CaseInput } from './case.ts';
import { anyTypes, shuffled, type Drawn, type FamilyCases } from './draw.ts';

const x = (shape: readonly number[]): CaseInput => given(filled('FP32', shape));

const reshape: Drawn = (draw) => {
  const shape = draw.shape(0, 4, 4);
  const all = elementCount(shape);
  const wanted: number[] = [];
  let rest = all;
  for (const size of shape.toReversed()) {
    if (draw.chance(0.5) && rest !== 0 && size !== 0) {
      wanted.unshift(size);
      rest /= size;
    }
  }
  if (rest !== 1) wanted.unshift(rest);
  const open = wanted.length > 0 && all > 0 && draw.chance(0.4) ? draw.int(0, wanted.length - 1) : -1;
  const target = wanted.map((size, axis) => {
    if (axis === open) return -1;
    return size === shape[axis] && size !== 0 && draw.chance(0.3) ? 0 : size;
  });
  return draw.case('Reshape', [draw.x(draw.pick(anyTypes), shape), draw.ints(target)], {
    attributes: draw.some({ allowzero: all === 0 ? 1 : 0 }, all === 0 ? 1 : 0.2),
    opset: draw.pick([14, 19, 21]),
  });
};

const squeezing =
  (operator: 'Squeeze' | 'Unsqueeze'): Drawn =>
  (draw) => {
    const shape = draw.shape(1, 4).map((size) => (draw.chance(0.4) ? 1 : size));
    const isOld = draw.chance(0.3);
    const ones = shape.flatMap((size, axis) => (size === 1 ? [axis] : []));
    const chosen = ones.filter(() => draw.chance(0.6)).map((axis) => (draw.chance(0.5) ? axis : axis - shape.length));
    const rank = shape.length + 2;
    const places = shuffled(draw, rank)
      .slice(0, 2)
      .map((axis) => (draw.chance(0.5) ? axis : axis - rank));
    const axes = operator === 'Squeeze' ? chosen : places;
    const none = operator === 'Squeeze' && (axes.length === 0 || draw.chance(0.2));
    const x = draw.x(draw.pick(anyTypes), shape);
    if (isOld) return draw.case(operator, [x], { attributes: none ? {} : { axes }, opset: 11 });
    return draw.case(operator, none ? [x] : [x, draw.ints(axes)], { opset: draw.pick([13, 17, 21]) });
  };

/** Our own form of all of these. */
const view: Drawn = (draw) => {
  const shape = draw.filledShape(0, 4);
  const wanted = draw.pick([[elementCount(shape)], shape.toReversed(), [1, ...shape]]);
  return operatorCase('turntable.View', `seed ${draw.seed}`, [draw.x(draw.pick(anyTypes), shape)], {
    reference: (graph, [input]) => [graph.node('Reshape', [input!, graph.constant({ ints: wanted })])],
  });
};

const bitCast: Drawn = (draw) =>
  draw.case('BitCast', [draw.x('FP32', draw.shape(0, 3))], { attributes: { to: draw.pick([6, 12]) }, opset: 26 });

export const views: FamilyCases = {
  named: [
    operatorCase('Identity', 'a matrix', [x([2, 3])]),
    operatorCase('Reshape', 'with -1 and 0', [x([2, 3, 4]), ints(0, -1)]),
    operatorCase('Flatten', 'negative axis', [x([2, 3, 4])], { attributes: { axis: -1 } }),
    operatorCase('Squeeze', 'negative axis', [x([2, 1, 3]), ints(-2)]),
    operatorCase('Unsqueeze', 'two axes', [x([2, 3]), ints(0, -1)]),
    operatorCase('Dropout', 'at inference', [x([2, 3])]),
    operatorCase('BitCast', 'to whole numbers', [x([3, 4])], { attributes: { to: 6 }, outputs: ['INT32'], opset: 26 }),
    operatorCase('turntable.View', 'another shape', [x([2, 6])], {
      reference: (graph, [input]) => [graph.node('Reshape', [input!, graph.constant({ ints: [3, 4] })])],
    }),
  ],
  drawn: {
    Identity: (draw) =>
      draw.case('Identity', [draw.x(draw.pick(anyTypes), draw.shape(0, 4))], { opset: draw.pick([13, 16, 21]) }),
    Reshape: reshape,
    Flatten: (draw) => {
      const shape = draw.shape(1, 4);
      return draw.case('Flatten', [draw.x(draw.pick(anyTypes), shape)], {
        attributes: draw.some({ axis: draw.int(-shape.length, shape.length) }),
        opset: draw.pick([11, 13, 21]),
      });
    },
    Squeeze: squeezing('Squeeze'),
    Unsqueeze: squeezing('Unsqueeze'),
    Dropout: (draw) =>
      draw.case(
        'Dropout',
        [draw.x('FP32', draw.shape(1, 3)), ...(draw.chance(0.3) ? [draw.values('FP32', [], [0.3])] : [])],
        {
          opset: draw.pick([12, 13, 22]),
          outputs: draw.pick([1, 1, 2]),
        },
      ),
    BitCast: bitCast,
    'turntable.View': view,
  },
};
