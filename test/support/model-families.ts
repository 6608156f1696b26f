/**
 * Small transformers and CNNs in the forms of PyTorch's two exporters at opsets 17 to 23, with fixed and with open
 * sizes, in 32 and 16 bits and quantised in the three ways of ONNX Runtime's tools. Weights are seeded.
 */
import { ElementType, GraphBuilder, type ModelProto } from '../../src/onnx/index.ts';
import { elements, tensorOf, type Tensor } from '../../src/tensor/index.ts';
import { filled } from './operator-cases/case.ts';

const { FLOAT, FLOAT16, INT64 } = ElementType;

export interface Family {
  readonly kind: 'transformer' | 'cnn';
  /** `dynamo`: decomposed less, with axes as inputs and the operators of its opset. */
  readonly exporter: 'torchscript' | 'dynamo';
  readonly opset: number;
  readonly isDynamic: boolean;
  readonly precision: 'fp32' | 'fp16' | 'qdq' | 'dynamic' | 'qoperator';
}

const [heads, hidden, vocabulary] = [2, 16, 50];
/** For activations, which are near 1: 8 bits reach from -6.4 to 6.35. */
const [activationScale, activationZero] = [0.05, 128];
const weightMax = 63;

class Layers {
  readonly graph: GraphBuilder;
  readonly #family: Family;
  #seed = 1;

  constructor(family: Family) {
    this.#family = family;
    this.graph = new GraphBuilder('main_graph', { opset: family.opset });
  }

  get floatType(): ElementType {
    return this.#family.precision === 'fp16' ? FLOAT16 : FLOAT;
  }

  keep(tensor: Omit<Tensor, 'name'>): string {
    return this.graph.initializer({ ...tensor, name: `w${this.#seed++}` });
  }

  floats(shape: readonly number[], scale: number, around = 0): string {
    const { data } = this.#drawn(shape, scale, around);
    const weight = this.keep({ datatype: 'FP32', shape, data });
    // Converters write the numbers in 16 bits; ONNX Runtime folds such a Cast when it opens the model.
    return this.floatType === FLOAT ? weight : this.graph.node('Cast', [weight], { to: FLOAT16 });
  }

  ints(...values: number[]): string {
    return this.graph.constant({ ints: values });
  }

  #drawn(shape: readonly number[], scale: number, around = 0): Tensor {
    const drawn = { ...filled('FP32', shape, this.#seed++, scale), name: '' };
    return tensorOf(
      '',
      'FP32',
      shape,
      Float32Array.from(elements(drawn) as Float32Array, (value) => around + value),
    );
  }

  #scalar(datatype: 'FP32' | 'UINT8' | 'INT8', value: number): string {
    const made = { FP32: Float32Array, UINT8: Uint8Array, INT8: Int8Array }[datatype].of(value);
    return this.keep(tensorOf('', datatype, [], made));
  }

  /** In 8 bits, with a scale for each place of an axis. */
  /**
   * In 7 bits, as `reduce_range` of ONNX Runtime's tools has it: on processors with AVX2 and without VNNI ONNX Runtime adds
   * pairs of products of an unsigned and a signed byte in 16 bits, and a sum beyond them stops there.
   */
  #quantized(shape: readonly number[], scale: number, axis: number): { weight: string; scales: string; zeros: string } {
    const size = shape[axis]!;
    const whole = elements(this.#drawn(shape, weightMax)) as Float32Array;
    const weight = this.keep(
      tensorOf(
        '',
        'INT8',
        shape,
        Int8Array.from(whole, (value) => Math.max(-weightMax, Math.min(weightMax, value))),
      ),
    );
    const steps = Float32Array.from({ length: size }, (_, place) => (scale / weightMax) * (1 + place / size));
    const zeros = this.keep(tensorOf('', 'INT8', [size], new Int8Array(size)));
    return { weight, scales: this.keep(tensorOf('', 'FP32', [size], steps)), zeros };
  }

  #quantize(x: string): readonly [string, string, string] {
    const [scale, zero] = [this.#scalar('FP32', activationScale), this.#scalar('UINT8', activationZero)];
    return [this.graph.node('QuantizeLinear', [x, scale, zero]), scale, zero];
  }

  linear(x: string, inputs: number, outputs: number): string {
    const { graph } = this;
    const scale = Math.sqrt(3 / inputs);
    const bias = this.floats([outputs], 0.1);
    switch (this.#family.precision) {
      case 'fp32':
      case 'fp16':
        return graph.node('Add', [graph.node('MatMul', [x, this.floats([inputs, outputs], scale)]), bias]);
      case 'qdq': {
        const { weight, scales, zeros } = this.#quantized([inputs, outputs], scale, 1);
        const wide = graph.node('DequantizeLinear', [weight, scales, zeros], { axis: 1 });
        return graph.node('Add', [
          graph.node('MatMul', [graph.node('DequantizeLinear', [...this.#quantize(x)]), wide]),
          bias,
        ]);
      }
      case 'dynamic': {
        const { weight, scales, zeros } = this.#quantized([inputs, outputs], scale, 1);
        const [whole, step, zero] = graph.node('DynamicQuantizeLinear', [x], {}, { outputs: 3 });
        const product = graph.node('MatMulInteger', [whole, weight, zero, zeros]);
        const factor = graph.node('Mul', [step, scales]);
        return graph.node('Add', [graph.node('Mul', [graph.node('Cast', [product], { to: FLOAT }), factor]), bias]);
      }
      case 'qoperator': {
        const { weight, scales, zeros } = this.#quantized([inputs, outputs], scale, 1);
        const [, step, zero] = this.#quantize(x);
        const product = graph.node('QLinearMatMul', [...this.#quantize(x), weight, scales, zeros, step, zero]);
        return graph.node('Add', [graph.node('DequantizeLinear', [product, step, zero]), bias]);
      }
    }
  }

  conv(x: string, inputs: number, outputs: number, kernel: number, stride: number, groups = 1): string {
    const { graph } = this;
    const shape = [outputs, inputs / groups, kernel, kernel];
    const scale = Math.sqrt(3 / ((inputs / groups) * kernel * kernel));
    const pad = (kernel - 1) / 2;
    const attributes = {
      group: groups,
      kernel_shape: [kernel, kernel],
      pads: [pad, pad, pad, pad],
      strides: [stride, stride],
    };
    switch (this.#family.precision) {
      case 'dynamic':
      case 'fp32':
      case 'fp16':
        return graph.node('Conv', [x, this.floats(shape, scale), this.floats([outputs], 0.1)], attributes);
      case 'qdq': {
        const { weight, scales, zeros } = this.#quantized(shape, scale, 0);
        const wide = graph.node('DequantizeLinear', [weight, scales, zeros], { axis: 0 });
        const bias = this.floats([outputs], 0.1);
        return graph.node('Conv', [graph.node('DequantizeLinear', [...this.#quantize(x)]), wide, bias], attributes);
      }
      case 'qoperator': {
        const { weight, scales, zeros } = this.#quantized(shape, scale, 0);
        const [whole, step, zero] = this.#quantize(x);
        const bias = this.keep(
          tensorOf(
            '',
            'INT32',
            [outputs],
            Int32Array.from({ length: outputs }, (_, place) => place - 2),
          ),
        );
        const made = graph.node(
          'QLinearConv',
          [whole, step, zero, weight, scales, zeros, step, zero, bias],
          attributes,
        );
        return graph.node('DequantizeLinear', [made, step, zero]);
      }
    }
  }

  norm(x: string): string {
    const [scale, bias] = [this.floats([hidden], 0.2, 1), this.floats([hidden], 0.1)];
    return this.graph.node('LayerNormalization', [x, scale, bias], { axis: -1, epsilon: { float: 1e-5 } });
  }

  number(value: number): string {
    const made = this.graph.constant({ floats: value });
    return this.floatType === FLOAT ? made : this.graph.node('Cast', [made], { to: FLOAT16 });
  }

  gelu(x: string): string {
    const { graph } = this;
    if (this.#family.exporter === 'dynamo' && this.#family.opset >= 20) return graph.node('Gelu', [x]);
    const erf = graph.node('Erf', [graph.node('Div', [x, this.number(Math.SQRT2)])]);
    const product = graph.node('Mul', [x, graph.node('Add', [erf, this.number(1)])]);
    return graph.node('Mul', [product, this.number(0.5)]);
  }

  asFloat(x: string): string {
    return this.floatType === FLOAT ? x : this.graph.node('Cast', [x], { to: FLOAT });
  }
}

function transformer(family: Family): ModelProto {
  const layers = new Layers(family);
  const { graph } = layers;
  const sizes = family.isDynamic ? ['batch', 'sequence'] : [2, 6];
  const ids = graph.input('input_ids', INT64, sizes);
  const mask = graph.input('attention_mask', INT64, sizes);
  const size = hidden / heads;
  const sized = (axis: number): string =>
    family.isDynamic
      ? graph.node('Unsqueeze', [
          graph.node('Gather', [graph.node('Shape', [ids]), graph.constant({ ints: axis })], { axis: 0 }),
          layers.ints(0),
        ])
      : layers.ints(sizes[axis] as number);
  const shaped = (x: string, ...rest: number[]): string =>
    graph.node('Reshape', [x, graph.node('Concat', [sized(0), sized(1), layers.ints(...rest)], { axis: 0 })]);
  let x = layers.norm(graph.node('Gather', [layers.floats([vocabulary, hidden], 1), ids], { axis: 0 }));
  const given = graph.node('Unsqueeze', [mask, layers.ints(1, 2)]);
  const isSeen = graph.node('Cast', [given], { to: ElementType.BOOL });
  const seen = graph.node('Where', [isSeen, layers.number(0), layers.number(-10_000)]);
  const [q, k, v] = [0, 1, 2].map(() =>
    graph.node('Transpose', [shaped(layers.linear(x, hidden, hidden), heads, size)], { perm: [0, 2, 1, 3] }),
  ) as [string, string, string];
  let context: string;
  if (family.exporter === 'dynamo' && family.opset >= 23) {
    context = graph.node('Attention', [
      q,
      k,
      v,
      graph.node('Expand', [seen, graph.node('Concat', [sized(0), layers.ints(1), sized(1), sized(1)], { axis: 0 })]),
    ]);
  } else {
    const turned = graph.node('Transpose', [k], { perm: [0, 1, 3, 2] });
    const root = layers.number(size ** -0.25);
    const scores =
      family.exporter === 'dynamo'
        ? graph.node('MatMul', [graph.node('Mul', [q, root]), graph.node('Mul', [turned, root])])
        : graph.node('Div', [graph.node('MatMul', [q, turned]), layers.number(Math.sqrt(size))]);
    context = graph.node('MatMul', [graph.node('Softmax', [graph.node('Add', [scores, seen])], { axis: -1 }), v]);
  }
  const together = shaped(graph.node('Transpose', [context], { perm: [0, 2, 1, 3] }), hidden);
  x = layers.norm(graph.node('Add', [layers.linear(together, hidden, hidden), x]));
  const wide = layers.gelu(layers.linear(x, hidden, 2 * hidden));
  x = layers.norm(graph.node('Add', [layers.linear(wide, 2 * hidden, hidden), x]));
  graph.output(layers.asFloat(x), FLOAT, [...sizes, hidden], 'last_hidden_state');
  return graph.build();
}

function cnn(family: Family): ModelProto {
  const layers = new Layers(family);
  const { graph } = layers;
  const batch = family.isDynamic ? 'batch' : 2;
  const image = graph.input('pixels', FLOAT, [batch, 3, 16, 16]);
  let x = layers.floatType === FLOAT ? image : graph.node('Cast', [image], { to: FLOAT16 });
  const relu6 = (value: string): string => graph.node('Clip', [value, layers.number(0), layers.number(6)]);
  x = graph.node('MaxPool', [relu6(layers.conv(x, 3, 8, 3, 2))], {
    kernel_shape: [3, 3],
    strides: [2, 2],
    pads: [1, 1, 1, 1],
  });
  x = graph.node('Add', [x, layers.conv(relu6(layers.conv(x, 8, 8, 3, 1, 8)), 8, 8, 1, 1)]);
  const isDecomposed = family.exporter === 'dynamo' && family.opset >= 18;
  const pooled = isDecomposed
    ? graph.node('Reshape', [graph.node('ReduceMean', [x, layers.ints(-1, -2)], { keepdims: 1 }), layers.ints(-1, 8)])
    : graph.node('Flatten', [graph.node('GlobalAveragePool', [x])], { axis: 1 });
  graph.output(layers.asFloat(layers.linear(pooled, 8, 5)), FLOAT, [batch, 5], 'logits');
  return graph.build();
}

export const buildFamily = (family: Family): ModelProto =>
  family.kind === 'transformer' ? transformer(family) : cnn(family);

export function familyInputs({ kind, isDynamic }: Family): Tensor[] {
  // An open batch gets a size that shares the program of 4.
  const batch = isDynamic ? 3 : 2;
  if (kind === 'cnn') return [{ ...filled('FP32', [batch, 3, 16, 16]), name: 'pixels' }];
  const length = 6 * batch;
  const ids = BigInt64Array.from({ length }, (_, index) => BigInt((index * 7 + 1) % vocabulary));
  const mask = BigInt64Array.from({ length }, (_, index) => (index < length - 2 ? 1n : 0n));
  return [tensorOf('input_ids', 'INT64', [batch, 6], ids), tensorOf('attention_mask', 'INT64', [batch, 6], mask)];
}

const opsets = [17, 18, 19, 20, 21, 22, 23];

/** Each kind in each precision, fixed and open, from alternating exporters at varying opsets. */
export const families: readonly Family[] = (['transformer', 'cnn'] as const).flatMap((kind) =>
  (['fp32', 'fp16', 'qdq', 'dynamic', 'qoperator'] as const).flatMap((precision, row) =>
    [true, false].flatMap((isDynamic, column) =>
      (['torchscript', 'dynamo'] as const).map((exporter, place): Family => {
        const opset = exporter === 'torchscript' ? 17 + ((row + column) % 4) : opsets[(3 * row + 2 * column + 6) % 7]!;
        return { kind, precision, isDynamic, exporter, opset: place === 0 ? opset : Math.max(18, opset) };
      }),
    ),
  ),
);
