import type { CaseInput } from '../../gpu/conformance/case.ts';
import type { Attributes, Draw, Drawn } from './draw.ts';

/** For empty matrices ONNX Runtime neither broadcasts nor writes its answer. */
const matMul: Drawn = (draw) => {
  const [m, k, n] = [draw.size(), draw.size(), draw.size()];
  const batch = draw.shape(0, 2, 3);
  const datatype = draw.pick(['FP32', 'FP32', 'FP16', 'FP64', 'INT32', 'INT64'] as const);
  const left = draw.chance(0.15) && k > 0 ? [k] : [...(k === 0 ? batch : draw.narrowed(batch)), m, k];
  const right = draw.chance(0.15) && k > 0 ? [k] : [...(k === 0 ? batch : draw.narrowed(batch)), k, n];
  const weight = draw.chance(0.4) ? draw.w(datatype, right) : draw.x(datatype, right);
  return draw.case('MatMul', [draw.x(datatype, left), weight], { opset: draw.pick([9, 13, 17, 21]) });
};

const gemm: Drawn = (draw) => {
  const [m, k, n] = [draw.size(), draw.size(), draw.size()];
  const [transA, transB] = [draw.int(0, 1), draw.int(0, 1)];
  const datatype = draw.pick(['FP32', 'FP32', 'FP16', 'FP64'] as const);
  const c = draw.pick([undefined, [m, n], [n], [1, n], [m, 1], [1], [], [1, 1]]);
  return draw.case(
    'Gemm',
    [
      draw.x(datatype, transA === 1 ? [k, m] : [m, k]),
      draw.chance(0.5)
        ? draw.w(datatype, transB === 1 ? [n, k] : [k, n])
        : draw.x(datatype, transB === 1 ? [n, k] : [k, n]),
      ...(c === undefined ? [] : [draw.chance(0.5) ? draw.w(datatype, c) : draw.x(datatype, c)]),
    ],
    {
      attributes: {
        ...(transA === 1 || draw.chance(0.3) ? { transA } : {}),
        ...(transB === 1 || draw.chance(0.3) ? { transB } : {}),
        ...draw.some({ alpha: { float: 0.5 }, beta: { float: draw.pick([0, 0.25, 2]) } }),
      },
      opset: draw.pick([11, 13, 17]),
    },
  );
};

function padding(draw: Draw, axes: number, mostPad = 2): Attributes {
  const kind = draw.pick(['none', 'pads', 'pads', 'SAME_UPPER', 'SAME_LOWER', 'VALID', 'NOTSET'] as const);
  if (kind === 'none') return {};
  if (kind === 'pads') return { pads: draw.list(2 * axes, 0, mostPad) };
  if (kind === 'NOTSET') return { auto_pad: kind, pads: draw.list(2 * axes, 0, mostPad) };
  return { auto_pad: kind };
}

const conv: Drawn = (draw) => {
  const axes = draw.pick([1, 2, 2, 3]);
  const group = draw.pick([1, 1, 2, 3]);
  const depthwise = draw.chance(0.2);
  const perGroup = depthwise ? 1 : draw.int(1, 3);
  const filters = group * draw.int(1, 3);
  const kernel = draw.list(axes, 1, 3);
  const datatype = draw.pick(['FP32', 'FP32', 'FP32', 'FP16', 'FP64'] as const);
  const x = draw.x(datatype, [draw.pick([1, 2, 0, 1]), group * perGroup, ...draw.list(axes, 5, 9)]);
  const weight = [filters, perGroup, ...kernel];
  const bias = draw.chance(0.5) ? [draw.w(datatype, [filters])] : [];
  return draw.case('Conv', [x, draw.chance(0.8) ? draw.w(datatype, weight) : draw.x(datatype, weight), ...bias], {
    attributes: {
      ...padding(draw, axes),
      ...draw.some({ kernel_shape: kernel }),
      ...(group > 1 || draw.chance(0.2) ? { group } : {}),
      ...draw.some({ strides: draw.list(axes, 1, 3), dilations: draw.list(axes, 1, 2) }, 0.4),
    },
    opset: draw.pick([9, 11, 17, 22]),
  });
};

const convTranspose: Drawn = (draw) => {
  const axes = draw.pick([1, 2, 2, 3]);
  const group = draw.pick([1, 1, 2]);
  const channels = group * draw.int(1, 2);
  const filters = draw.int(1, 3);
  const kernel = draw.list(axes, 1, 4);
  const strides = draw.list(axes, 1, 3);
  const sizes = draw.list(axes, 2, 5);
  const datatype = draw.pick(['FP32', 'FP32', 'FP32', 'FP16'] as const);
  const weight = draw.w(datatype, [channels, filters, ...kernel]);
  const bias = draw.chance(0.4) ? [draw.w(datatype, [filters * group])] : [];
  const extra = strides.map((stride) => draw.int(0, stride - 1));
  const shape = sizes.map((size, axis) => size * strides[axis]! + draw.int(0, 2));
  const way = draw.pick(['pads', 'auto', 'shape', 'none'] as const);
  const attributes: Attributes = {
    ...(way === 'pads' ? { pads: draw.list(2 * axes, 0, 1) } : {}),
    ...(way === 'auto' ? { auto_pad: draw.pick(['SAME_UPPER', 'SAME_LOWER', 'VALID']) } : {}),
    ...(way === 'shape' ? { output_shape: shape } : {}),
    ...(way === 'shape' && draw.chance(0.5) ? { auto_pad: draw.pick(['SAME_UPPER', 'SAME_LOWER']) } : {}),
    ...draw.some({ strides, output_padding: extra, kernel_shape: kernel, dilations: draw.list(axes, 1, 2) }, 0.6),
    ...(group > 1 ? { group } : {}),
  };
  return draw.case('ConvTranspose', [draw.x(datatype, [draw.pick([1, 2]), channels, ...sizes]), weight, ...bias], {
    attributes: 'output_padding' in attributes && !('strides' in attributes) ? { ...attributes, strides } : attributes,
    opset: draw.pick([9, 11, 17]),
  });
};

const takesBeta = ['Affine', 'HardSigmoid', 'ScaledTanh'];
const takesAlpha = [...takesBeta, 'Elu', 'LeakyRelu', 'ThresholdedRelu'];
const activationNames = [...takesAlpha, 'Relu', 'Sigmoid', 'Softplus', 'Softsign', 'Tanh'];

const recurrent =
  (operator: 'LSTM' | 'GRU' | 'RNN', gates: number): Drawn =>
  (draw) => {
    const [steps, batch, size, hidden] = [draw.int(1, 4), draw.int(1, 3), draw.int(1, 4), draw.int(1, 4)];
    const direction = draw.pick(['forward', 'reverse', 'bidirectional']);
    const directions = direction === 'bidirectional' ? 2 : 1;
    const maybe = (input: CaseInput): CaseInput | undefined => (draw.chance(0.5) ? input : undefined);
    const isLstm = operator === 'LSTM';
    const inputs = [
      draw.x('FP32', [steps, batch, size]),
      draw.w('FP32', [directions, gates * hidden, size]),
      draw.w('FP32', [directions, gates * hidden, hidden]),
      maybe(draw.w('FP32', [directions, 2 * gates * hidden])),
      maybe(draw.values('INT32', [batch], draw.list(batch, 1, steps), draw.chance(0.5))),
      maybe(draw.x('FP32', [directions, batch, hidden], 1)),
      ...(isLstm ? [maybe(draw.x('FP32', [directions, batch, hidden], 1))] : []),
      ...(isLstm ? [maybe(draw.w('FP32', [directions, 3 * hidden]))] : []),
    ];
    while (inputs.at(-1) === undefined) inputs.pop();
    const perDirection = isLstm ? 3 : operator === 'GRU' ? 2 : 1;
    const activations = Array.from({ length: directions * perDirection }, () => draw.pick(activationNames));
    const parametersOf = (takers: readonly string[]) => ({
      floats: activations.filter((name) => takers.includes(name)).map(() => draw.pick([0.1, 0.5, 1.5])),
    });
    const outputs = draw.pick(
      isLstm ? [[true], [true, true, true], [false, true], [true, false, true]] : [[true], [true, true], [false, true]],
    );
    return draw.case(operator, inputs, {
      attributes: {
        hidden_size: hidden,
        ...(direction === 'forward' && draw.chance(0.5) ? {} : { direction }),
        ...draw.some(
          {
            clip: { float: 0.5 },
            activations,
            ...(operator === 'GRU' ? { linear_before_reset: 1 } : {}),
            ...(isLstm ? { input_forget: draw.int(0, 1) } : {}),
          },
          0.25,
        ),
        ...(draw.chance(0.3)
          ? { activations, activation_alpha: parametersOf(takesAlpha), activation_beta: parametersOf(takesBeta) }
          : {}),
        ...(operator === 'GRU' && draw.chance(0.4) ? { linear_before_reset: 1 } : {}),
      },
      outputs,
      opset: draw.pick([7, 14, 17]),
    });
  };

export const dense: Readonly<Record<string, Drawn>> = {
  MatMul: matMul,
  Gemm: gemm,
  Conv: conv,
  ConvTranspose: convTranspose,
  LSTM: recurrent('LSTM', 4),
  GRU: recurrent('GRU', 3),
  RNN: recurrent('RNN', 1),
};
