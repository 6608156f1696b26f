/**
 * Small models in the form of PyTorch's exporter at opset 17: weights shared under several names through Identity
 * nodes, Linear layers as MatMul and Add with transposed weights, shapes computed from Shape, Gather, Unsqueeze and
 * Concat for dynamic axes, masks by Where, Split of one projection, limits of Clip as inputs, initial states by Expand.
 */
import { ElementType, GraphBuilder, type ModelProto } from '../../src/onnx/index.ts';

const { FLOAT, FLOAT16, INT64 } = ElementType;

/** Sums of uniform numbers from a seed, so that every build of a model is the same. */
class Weights {
  readonly graph: GraphBuilder;
  #state: number;

  constructor(graph: GraphBuilder, seed: number) {
    this.graph = graph;
    this.#state = seed * 2 + 1;
  }

  #next(): number {
    this.#state = (Math.imul(this.#state, 1664525) + 1013904223) >>> 0;
    return this.#state / 2 ** 32 - 0.5;
  }

  make(name: string, shape: readonly number[], scale: number, around = 0): string {
    const count = shape.reduce((product, size) => product * size, 1);
    const values = Float32Array.from({ length: count }, () => around + scale * 2 * this.#next());
    return this.graph.weight(name, shape, values);
  }

  linear(name: string, x: string, inputs: number, outputs: number): string {
    const { graph } = this;
    return graph.scope(name, () => {
      const weight = this.make('weight', [inputs, outputs], Math.sqrt(3 / inputs));
      return graph.node('Add', [this.make('bias', [outputs], 0.1), graph.node('MatMul', [x, weight])]);
    });
  }

  norm(name: string, x: string, size: number, alias?: { scale: string; bias: string }): string {
    const { graph } = this;
    return graph.scope(name, () => {
      const scale = alias === undefined ? this.make('weight', [size], 0.2, 1) : graph.node('Identity', [alias.scale]);
      const bias = alias === undefined ? this.make('bias', [size], 0.1) : graph.node('Identity', [alias.bias]);
      return graph.node('LayerNormalization', [x, scale, bias], { axis: -1, epsilon: { float: 1e-12 } });
    });
  }
}

/** One size of a value, as a vector of one number. */
function sizeOf(graph: GraphBuilder, value: string, axis: number): string {
  const size = graph.node('Gather', [graph.node('Shape', [value]), graph.constant({ ints: axis })], { axis: 0 });
  return graph.node('Unsqueeze', [size, graph.constant({ ints: [0] })]);
}

/** Reshape to sizes of `like` and fixed ones, all computed. */
function reshapeLike(
  graph: GraphBuilder,
  x: string,
  like: string,
  sizes: readonly (number | { axis: number })[],
): string {
  const parts = sizes.map((size) =>
    typeof size === 'number' ? graph.constant({ ints: [size] }) : sizeOf(graph, like, size.axis),
  );
  return graph.node('Reshape', [x, graph.node('Concat', parts, { axis: 0 })]);
}

const geluErf = (graph: GraphBuilder, x: string): string => {
  const erf = graph.node('Erf', [graph.node('Div', [x, graph.constant({ floats: Math.SQRT2 })])]);
  const product = graph.node('Mul', [x, graph.node('Add', [erf, graph.constant({ floats: 1 })])]);
  return graph.node('Mul', [product, graph.constant({ floats: 0.5 })]);
};

const heads = 4;
const hidden = 32;
const size = hidden / heads;

function splitHeads(graph: GraphBuilder, x: string, perm: readonly number[]): string {
  const split = reshapeLike(graph, x, x, [{ axis: 0 }, { axis: 1 }, heads, size]);
  return graph.node('Transpose', [split], { perm });
}

function joinHeads(graph: GraphBuilder, x: string): string {
  const joined = graph.node('Transpose', [x], { perm: [0, 2, 1, 3] });
  return reshapeLike(graph, joined, joined, [{ axis: 0 }, { axis: 1 }, hidden]);
}

/** An encoder like BERT with dynamic batch and sequence; `sdpa` exports the newer attention. */
export function bertExport(options: { readonly sdpa?: boolean } = {}): ModelProto {
  const graph = new GraphBuilder('main_graph');
  const weights = new Weights(graph, 1);
  const ids = graph.input('input_ids', INT64, ['batch', 'sequence']);
  const mask = graph.input('attention_mask', INT64, ['batch', 'sequence']);
  const words = graph.node('Gather', [weights.make('embeddings.word.weight', [50, hidden], 1), ids]);
  const length = sizeOf(graph, ids, 1);
  const allPositions = graph.initializer({
    name: 'embeddings.position_ids',
    datatype: 'INT64',
    shape: [1, 64],
    data: new Uint8Array(BigInt64Array.from({ length: 64 }, (_, index) => BigInt(index)).buffer),
  });
  const zero = graph.constant({ ints: [0] });
  const positions = graph.node('Slice', [
    allPositions,
    zero,
    length,
    graph.constant({ ints: [1] }),
    graph.constant({ ints: [1] }),
  ]);
  const places = graph.node('Gather', [weights.make('embeddings.position.weight', [64, hidden], 1), positions]);
  let x = weights.norm('embeddings.LayerNorm', graph.node('Add', [words, places]), hidden);
  const shared = { scale: 'embeddings.LayerNorm.weight', bias: 'embeddings.LayerNorm.bias' };
  const wide = graph.node('Unsqueeze', [mask, graph.constant({ ints: [1, 2] })]);
  const open = graph.node('Cast', [wide], { to: FLOAT });
  const closed = graph.node('Sub', [graph.constant({ floats: 1 }), open]);
  const bias = graph.node('Mul', [closed, graph.constant({ floats: -3.4028234663852886e38 })]);
  for (let layer = 0; layer < 2; layer++) {
    x = graph.scope(`encoder.layer.${layer}`, () => {
      const q = splitHeads(graph, weights.linear('query', x, hidden, hidden), [0, 2, 1, 3]);
      const k = splitHeads(graph, weights.linear('key', x, hidden, hidden), [0, 2, 3, 1]);
      const v = splitHeads(graph, weights.linear('value', x, hidden, hidden), [0, 2, 1, 3]);
      const root = graph.constant({ floats: size ** -0.25 });
      const scores =
        options.sdpa === true
          ? graph.node('MatMul', [graph.node('Mul', [q, root]), graph.node('Mul', [k, root])])
          : graph.node('Div', [graph.node('MatMul', [q, k]), graph.constant({ floats: Math.sqrt(size) })]);
      let shares = graph.node('Softmax', [graph.node('Add', [scores, bias])], { axis: -1 });
      if (options.sdpa === true) {
        shares = graph.node('Where', [graph.node('IsNaN', [shares]), graph.constant({ floats: 0 }), shares]);
      }
      const context = joinHeads(graph, graph.node('MatMul', [shares, v]));
      const attended = graph.node('Add', [weights.linear('attention.output', context, hidden, hidden), x]);
      const between = weights.norm('attention.LayerNorm', attended, hidden, shared);
      const inner = geluErf(graph, weights.linear('intermediate', between, hidden, 64));
      const output = graph.node('Add', [weights.linear('output', inner, 64, hidden), between]);
      return weights.norm('output.LayerNorm', output, hidden);
    });
  }
  graph.output(x, FLOAT, ['batch', 'sequence', hidden], 'last_hidden_state');
  const first = graph.node('Gather', [x, graph.constant({ ints: 0 })], { axis: 1 });
  const pooled = graph.node(
    'Gemm',
    [first, weights.make('pooler.weight', [hidden, hidden], 0.3), weights.make('pooler.bias', [hidden], 0.1)],
    { transB: 1 },
  );
  graph.output(graph.node('Tanh', [pooled]), FLOAT, ['batch', hidden], 'pooler_output');
  return graph.build();
}

/**
 * A decoder like GPT-2: Conv1D as Gemm between Reshapes, one Split for queries, keys and values, a triangle by Where.
 */
export function gpt2Export(): ModelProto {
  const graph = new GraphBuilder('main_graph');
  const weights = new Weights(graph, 2);
  const ids = graph.input('input_ids', INT64, ['batch', 'sequence']);
  const table = weights.make('transformer.wte.weight', [50, hidden], 0.5);
  const end = graph.node('Gather', [graph.node('Shape', [ids]), graph.constant({ ints: 1 })], { axis: 0 });
  const positions = graph.node('Range', [graph.constant({ ints: 0 }), end, graph.constant({ ints: 1 })]);
  const row = graph.node('Unsqueeze', [positions, graph.constant({ ints: [0] })]);
  const places = graph.node('Gather', [weights.make('transformer.wpe.weight', [32, hidden], 0.5), row]);
  let x = graph.node('Add', [graph.node('Gather', [table, ids]), places]);
  const triangle = graph.initializer({
    name: 'transformer.h.attn.bias',
    datatype: 'BOOL',
    shape: [1, 1, 32, 32],
    data: Uint8Array.from({ length: 1024 }, (_, index) => Number(index % 32 <= Math.floor(index / 32))),
  });
  const conv1d = (name: string, value: string, inputs: number, outputs: number): string =>
    graph.scope(name, () => {
      const flat = graph.node('Reshape', [value, graph.constant({ ints: [-1, inputs] })]);
      const weight = weights.make('weight', [inputs, outputs], Math.sqrt(3 / inputs));
      const product = graph.node('Gemm', [flat, weight, weights.make('bias', [outputs], 0.1)], {
        alpha: { float: 1 },
        beta: { float: 1 },
      });
      return reshapeLike(graph, product, value, [{ axis: 0 }, { axis: 1 }, outputs]);
    });
  const zero = graph.constant({ ints: [0] });
  const length = graph.node('Unsqueeze', [end, zero]);
  for (let layer = 0; layer < 2; layer++) {
    x = graph.scope(`transformer.h.${layer}`, () => {
      const qkv = conv1d('attn.c_attn', weights.norm('ln_1', x, hidden), hidden, 3 * hidden);
      const parts = graph.node(
        'Split',
        [qkv, graph.constant({ ints: [hidden, hidden, hidden] })],
        { axis: 2 },
        { outputs: 3 },
      );
      const [q, k, v] = parts.map((part, index) => splitHeads(graph, part, index === 1 ? [0, 2, 3, 1] : [0, 2, 1, 3]));
      const scores = graph.node('Div', [graph.node('MatMul', [q!, k!]), graph.constant({ floats: Math.sqrt(size) })]);
      const cut = (value: string, axis: number): string =>
        graph.node('Slice', [value, zero, length, graph.constant({ ints: [axis] }), graph.constant({ ints: [1] })]);
      const seen = cut(cut(triangle, 2), 3);
      const masked = graph.node('Where', [seen, scores, graph.constant({ floats: -3.4028234663852886e38 })]);
      const context = joinHeads(graph, graph.node('MatMul', [graph.node('Softmax', [masked], { axis: -1 }), v!]));
      const attended = graph.node('Add', [conv1d('attn.c_proj', context, hidden, hidden), x]);
      const inner = conv1d('mlp.c_fc', weights.norm('ln_2', attended, hidden), hidden, 64);
      const cubed = graph.node('Mul', [
        graph.constant({ floats: 0.044715 }),
        graph.node('Pow', [inner, graph.constant({ floats: 3 })]),
      ]);
      const tanh = graph.node('Tanh', [
        graph.node('Mul', [graph.constant({ floats: Math.sqrt(2 / Math.PI) }), graph.node('Add', [inner, cubed])]),
      ]);
      const gated = graph.node('Mul', [
        graph.node('Mul', [graph.constant({ floats: 0.5 }), inner]),
        graph.node('Add', [graph.constant({ floats: 1 }), tanh]),
      ]);
      return graph.node('Add', [attended, conv1d('mlp.c_proj', gated, 64, hidden)]);
    });
  }
  x = weights.norm('transformer.ln_f', x, hidden);
  const logits = graph.node('MatMul', [x, graph.node('Transpose', [table], { perm: [1, 0] })]);
  graph.output(logits, FLOAT, ['batch', 'sequence', 50], 'logits');
  return graph.build();
}

/** A vision transformer: patches by a strided convolution, a class token that is expanded to the batch. */
export function vitExport(): ModelProto {
  const graph = new GraphBuilder('main_graph');
  const weights = new Weights(graph, 3);
  const image = graph.input('pixel_values', FLOAT, ['batch', 3, 16, 16]);
  const patches = graph.node(
    'Conv',
    [image, weights.make('patch.weight', [hidden, 3, 4, 4], 0.25), weights.make('patch.bias', [hidden], 0.1)],
    { kernel_shape: [4, 4], strides: [4, 4], pads: [0, 0, 0, 0], group: 1, dilations: [1, 1] },
  );
  const flat = reshapeLike(graph, patches, patches, [{ axis: 0 }, hidden, -1]);
  const tokens = graph.node('Transpose', [flat], { perm: [0, 2, 1] });
  const one = graph.constant({ ints: [1] });
  const classToken = weights.make('cls_token', [1, 1, hidden], 1);
  const whole = graph.node('Concat', [sizeOf(graph, image, 0), one, one], { axis: 0 });
  const expanded = graph.node('Expand', [classToken, whole]);
  const joined = graph.node('Concat', [expanded, tokens], { axis: 1 });
  let x = graph.node('Add', [joined, weights.make('position_embeddings', [1, 17, hidden], 0.5)]);
  x = graph.scope('encoder.layer.0', () => {
    const normed = weights.norm('layernorm_before', x, hidden);
    const q = splitHeads(graph, weights.linear('query', normed, hidden, hidden), [0, 2, 1, 3]);
    const k = graph.node(
      'Transpose',
      [splitHeads(graph, weights.linear('key', normed, hidden, hidden), [0, 2, 1, 3])],
      { perm: [0, 1, 3, 2] },
    );
    const v = splitHeads(graph, weights.linear('value', normed, hidden, hidden), [0, 2, 1, 3]);
    const scores = graph.node('Mul', [graph.node('MatMul', [q, k]), graph.constant({ floats: size ** -0.5 })]);
    const context = joinHeads(graph, graph.node('MatMul', [graph.node('Softmax', [scores], { axis: -1 }), v]));
    const attended = graph.node('Add', [weights.linear('attention.output', context, hidden, hidden), x]);
    const inner = geluErf(
      graph,
      weights.linear('intermediate', weights.norm('layernorm_after', attended, hidden), hidden, 64),
    );
    return graph.node('Add', [weights.linear('output', inner, 64, hidden), attended]);
  });
  const first = graph.node('Gather', [weights.norm('layernorm', x, hidden), graph.constant({ ints: 0 })], { axis: 1 });
  const logits = graph.node(
    'Gemm',
    [first, weights.make('classifier.weight', [10, hidden], 0.3), weights.make('classifier.bias', [10], 0.1)],
    { transB: 1 },
  );
  graph.output(logits, FLOAT, ['batch', 10], 'logits');
  return graph.build();
}

/** Inverted residuals like MobileNet-v2, batch normalisations folded: Clip with its limits as inputs. */
export function mobilenetExport(): ModelProto {
  const graph = new GraphBuilder('main_graph');
  const weights = new Weights(graph, 4);
  let x = graph.input('input', FLOAT, ['batch', 3, 16, 16]);
  const conv = (
    name: string,
    value: string,
    inputs: number,
    outputs: number,
    kernel: number,
    stride: number,
    groups = 1,
  ) =>
    graph.scope(name, () => {
      const each = inputs / groups;
      const weight = weights.make('weight', [outputs, each, kernel, kernel], Math.sqrt(3 / (each * kernel * kernel)));
      const pad = (kernel - 1) / 2;
      return graph.node('Conv', [value, weight, weights.make('bias', [outputs], 0.1)], {
        dilations: [1, 1],
        group: groups,
        kernel_shape: [kernel, kernel],
        pads: [pad, pad, pad, pad],
        strides: [stride, stride],
      });
    });
  const relu6 = (value: string): string =>
    graph.node('Clip', [value, graph.constant({ floats: 0 }), graph.constant({ floats: 6 })]);
  x = relu6(conv('features.0', x, 3, 8, 3, 2));
  for (const block of [1, 2]) {
    const wide = relu6(conv(`features.${block}.expand`, x, 8, 24, 1, 1));
    const deep = relu6(conv(`features.${block}.depthwise`, wide, 24, 24, 3, 1, 24));
    x = graph.node('Add', [x, conv(`features.${block}.project`, deep, 24, 8, 1, 1)]);
  }
  const pooled = graph.node('Flatten', [graph.node('GlobalAveragePool', [x])], { axis: 1 });
  const logits = graph.node(
    'Gemm',
    [pooled, weights.make('classifier.weight', [10, 8], 0.5), weights.make('classifier.bias', [10], 0.1)],
    { transB: 1 },
  );
  graph.output(logits, FLOAT, ['batch', 10], 'output');
  return graph.build();
}

/** An LSTM of two directions whose initial state is expanded to the batch, batch first. */
export function lstmExport(): ModelProto {
  const graph = new GraphBuilder('main_graph');
  const weights = new Weights(graph, 5);
  const x = graph.input('input', FLOAT, ['batch', 'time', 8]);
  const series = graph.node('Transpose', [x], { perm: [1, 0, 2] });
  const batch = sizeOf(graph, x, 0);
  const shape = graph.node('Concat', [graph.constant({ ints: [2] }), batch, graph.constant({ ints: [12] })], {
    axis: 0,
  });
  const zeros = graph.node('Expand', [graph.constant({ floats: [0], shape: [1, 1, 1] }), shape]);
  const [y, last] = graph.node(
    'LSTM',
    [
      series,
      weights.make('lstm.weight_ih', [2, 48, 8], 0.5),
      weights.make('lstm.weight_hh', [2, 48, 12], 0.4),
      weights.make('lstm.bias', [2, 96], 0.2),
      '',
      zeros,
      zeros,
    ],
    { hidden_size: 12, direction: 'bidirectional' },
    { outputs: 3 },
  );
  const both = graph.node('Transpose', [y], { perm: [2, 0, 1, 3] });
  graph.output(reshapeLike(graph, both, both, [{ axis: 0 }, { axis: 1 }, 24]), FLOAT, ['batch', 'time', 24], 'output');
  graph.output(last, FLOAT, [2, 'batch', 12], 'h_n');
  return graph.build();
}

/** Attention with rotary positions as one node each, as in opset 23. */
export function rotaryExport(): ModelProto {
  const graph = new GraphBuilder('rotary_export', { opset: 23 });
  const weights = new Weights(graph, 29);
  const x = graph.input('input', FLOAT, ['batch', 6, 16]);
  const positions = graph.input('positions', INT64, ['batch', 6]);
  const cache = ['cos', 'sin'].map((name) => weights.make(name, [32, 4], 1));
  const turned = (value: string): string =>
    graph.node('RotaryEmbedding', [value, ...cache, positions], { num_heads: 2 });
  const [q, k, v] = ['q', 'k', 'v'].map((name) => weights.linear(name, x, 16, 16)) as [string, string, string];
  const attended = graph.node('Attention', [turned(q), turned(k), v], {
    q_num_heads: 2,
    kv_num_heads: 2,
    is_causal: 1,
  });
  graph.output(weights.linear('out', attended, 16, 16), FLOAT, ['batch', 6, 16], 'output');
  return graph.build();
}

/**
 * Attention scores in FP16, scaled by the root of a size that the graph computes and casts to its own type. Without its
 * optimizer ONNX Runtime does not open it: Sqrt has no kernel for FP16, and the Cast after it is left with FP32.
 */
export function halfAttentionExport(): ModelProto {
  const graph = new GraphBuilder('half_attention_export', { opset: 20 });
  const [q, k] = ['q', 'k'].map((name) => graph.input(name, FLOAT16, ['batch', 4, 8])) as [string, string];
  const size = graph.node('Gather', [graph.node('Shape', [q]), graph.constant({ ints: 2 })], { axis: 0 });
  const half = (value: string): string => graph.node('Cast', [value], { to: FLOAT16 });
  const scale = graph.node('Sqrt', [half(graph.node('Sqrt', [half(size)]))]);
  const keys = graph.node('Transpose', [graph.node('Div', [k, scale])], { perm: [0, 2, 1] });
  const scores = graph.node('MatMul', [graph.node('Div', [q, scale]), keys]);
  graph.output(graph.node('Softmax', [scores], { axis: -1 }), FLOAT16, ['batch', 4, 4], 'scores');
  return graph.build();
}
