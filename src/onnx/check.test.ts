import { describe, expect, test } from 'vitest';
import { refusal } from '../../test/support/onnx.ts';
import { GraphBuilder } from './builder.ts';
import { checkModel } from './check.ts';
import { describeModel } from './describe.ts';
import { resnet50 } from './architectures/resnet.ts';
import { bertBase } from './architectures/bert.ts';
import { gpt2 } from './architectures/gpt2.ts';
import { AttributeType, ElementType, type ModelProto } from './types.ts';

function valid(): ModelProto {
  const graph = new GraphBuilder('valid');
  const x = graph.input('x', ElementType.FLOAT, ['batch', 4]);
  const w = graph.weight('w', [4, 4], new Float32Array(16));
  const branch = (name: string, op: string) => {
    const body = new GraphBuilder(name, { captures: [x] });
    body.output(body.node(op, [x]), ElementType.FLOAT, ['batch', 4], `${name}_y`);
    return { graph: body.buildGraph() };
  };
  const [sum] = graph.node('ReduceSum', [x], { keepdims: 0 }, { outputs: ['sum'] });
  const condition = graph.node('Cast', [sum], { to: ElementType.BOOL });
  const [chosen] = graph.node(
    'If',
    [condition],
    { then_branch: branch('then', 'Relu'), else_branch: branch('else', 'Neg') },
    { outputs: ['chosen'] },
  );
  graph.output(graph.node('MatMul', [chosen, w]), ElementType.FLOAT, ['batch', 4], 'y');
  return graph.build();
}

const node = (model: ModelProto, opType: string) => model.graph.node.find((item) => item.opType === opType)!;

describe('a model', () => {
  test('that is well formed is accepted, real ones too', () => {
    expect(() => checkModel(valid())).not.toThrow();
    for (const architecture of [resnet50, bertBase, gpt2]) {
      expect(() => checkModel(architecture.build({}, 0).model)).not.toThrow();
    }
  });

  test('with unsorted nodes is accepted, as in ONNX Runtime', () => {
    const model = valid();
    model.graph.node.reverse();
    expect(() => checkModel(model)).not.toThrow();
  });

  test.each<[string, (model: ModelProto) => void, RegExp]>([
    [
      'a value that nothing makes',
      (m) => (node(m, 'MatMul').input[0] = 'nowhere'),
      /'\/MatMul' \(MatMul\) takes 'nowhere', which nothing/,
    ],
    [
      'a circle of nodes',
      (m) => (node(m, 'Cast').input[0] = 'y'),
      /node '\/(\w+)' takes a value that is made from its own output/,
    ],
    [
      'a value made twice',
      (m) => (node(m, 'Cast').output[0] = 'sum'),
      /'\/Cast' \(Cast\) makes 'sum', which exists already/,
    ],
    ['a value made over an input', (m) => (node(m, 'Cast').output[0] = 'x'), /makes 'x', which exists already/],
    [
      'an output that nothing makes',
      (m) => (m.graph.output[0]!.name = 'nowhere'),
      /the output 'nowhere' is made by nothing/,
    ],
    ['an output given twice', (m) => m.graph.output.push(m.graph.output[0]!), /the output 'y' is given twice/],
    ['no output', (m) => (m.graph.output = []), /no output/],
    ['an input given twice', (m) => m.graph.input.push(m.graph.input[0]!), /the input 'x' is given twice/],
    ['an input without a type', (m) => delete m.graph.input[0]!.type, /the input 'x' has no type/],
    [
      'an initializer given twice',
      (m) => m.graph.initializer.push(m.graph.initializer[0]!),
      /initializer 'w' is given twice/,
    ],
    ['an initializer without a name', (m) => (m.graph.initializer[0]!.name = ''), /an initializer has no name/],
    ['a node without an operator', (m) => (node(m, 'Cast').opType = ''), /node '\/Cast' \(\) names no operator/],
    [
      'a domain that is not imported',
      (m) => (node(m, 'Cast').domain = 'com.example'),
      /of the domain 'com\.example', which the model does not import/,
    ],
    ['no operator set', (m) => (m.opsetImport = []), /imports no operator set/],
    [
      'version 0 of an operator set',
      (m) => (m.opsetImport[0]!.version = 0n),
      /version 0 of the operator set 'ai\.onnx'/,
    ],
    ['no IR version', (m) => (m.irVersion = 0n), /no IR version/],
    [
      'an attribute given twice',
      (m) => node(m, 'Cast').attribute.push(node(m, 'Cast').attribute[0]!),
      /attribute 'to' twice/,
    ],
    [
      'an attribute of a function outside one',
      (m) => (node(m, 'Cast').attribute[0]!.refAttrName = 'to'),
      /takes the attribute 'to' from a function/,
    ],
    [
      'an attribute that is a graph and has none',
      (m) => delete node(m, 'If').attribute[0]!.g,
      /'then_branch' of node '\/If' \(If\) has no value/,
    ],
    [
      'a branch that takes what nothing makes',
      (m) => (node(m, 'If').attribute[0]!.g!.node[0]!.input[0] = 'nowhere'),
      /\(Relu\) in a graph of node '\/If' \(If\) takes 'nowhere'/,
    ],
    [
      'a branch that makes what exists',
      (m) => (node(m, 'If').attribute[0]!.g!.node[0]!.output[0] = 'sum'),
      /in a graph of node '\/If' \(If\) makes 'sum', which exists/,
    ],
    [
      'a function that takes what nothing makes',
      (m) =>
        (m.functions = [
          {
            name: 'F',
            domain: 'own',
            input: [],
            output: ['b'],
            attribute: [],
            opsetImport: [{ domain: '', version: 17n }],
            node: [{ name: '', opType: 'Neg', domain: '', input: ['a'], output: ['b'], attribute: [] }],
          },
        ]),
      /node 0 \(Neg\) in the function 'own\.F' takes 'a'/,
    ],
  ])('with %s is refused by name', async (_, damage, reason) => {
    const model = valid();
    damage(model);
    expect(await refusal(() => checkModel(model))).toEqual(['bad-model', expect.stringMatching(reason)]);
  });

  test('with a tensor of the wrong size is refused by name, also in a constant', async () => {
    const model = valid();
    model.graph.initializer[0]!.dims = [4n, 5n];
    expect(await refusal(() => checkModel(model))).toEqual(['bad-tensor', expect.stringMatching(/'w' has 64 bytes/)]);
    const other = valid();
    node(other, 'Cast').attribute.push({
      name: 'unused',
      type: AttributeType.TENSOR,
      t: { name: 'inner', dims: [3n], dataType: ElementType.STRING, stringData: [new Uint8Array(1)] },
    });
    expect(await refusal(() => checkModel(other))).toEqual([
      'bad-tensor',
      expect.stringMatching(/'inner' has 1 strings/),
    ]);
  });
});

describe('a description', () => {
  test('has the inputs that a caller gives, with the names of varying dimensions', () => {
    const model = valid();
    model.graph.input.push({ name: 'w', type: { tensorType: { elemType: ElementType.FLOAT, shape: { dim: [] } } } });
    model.graph.input.push({
      name: 'mask',
      type: {
        tensorType: {
          elemType: ElementType.BOOL,
          shape: { dim: [{}, { dimParam: '' }, { dimValue: -1n }, { dimValue: 0n }] },
        },
      },
    });
    model.producerVersion = '1.2';
    expect(describeModel(model)).toEqual({
      inputs: [
        { name: 'x', datatype: 'FP32', shape: [-1, 4], dimensionNames: ['batch', undefined] },
        {
          name: 'mask',
          datatype: 'BOOL',
          shape: [-1, -1, -1, 0],
          dimensionNames: [undefined, undefined, undefined, undefined],
        },
      ],
      optionalInputs: [{ name: 'w', datatype: 'FP32', shape: [], dimensionNames: [] }],
      outputs: [{ name: 'y', datatype: 'FP32', shape: [-1, 4], dimensionNames: ['batch', undefined] }],
      opening: { isMended: false, bfloat16Outputs: [], optionalInputs: ['w'] },
      opset: 17,
      producer: 'turntable 1.2',
      nodeCount: 4,
      parameterCount: 16,
      weightBytes: 64,
    });
  });

  test.each([
    [resnet50, 25_557_032],
    [bertBase, 109_482_240],
    [gpt2, 124_439_808],
  ])('of $name counts the published parameters', (architecture, published) => {
    expect(describeModel(architecture.build({}, 0).model).parameterCount).toBe(published);
  });

  test.each([
    [
      'a sequence',
      { sequenceType: {} },
      /the input 'odd' is a sequence; only tensors can be served: export the model with a tensor/,
    ],
    ['a map', { mapType: { keyType: 7 } }, /the input 'odd' is a map/],
    ['an optional', { optionalType: {} }, /is an optional/],
    ['a sparse tensor', { sparseTensorType: { elemType: 1 } }, /is a sparse tensor/],
    [
      'of complex numbers',
      { tensorType: { elemType: ElementType.COMPLEX64, shape: { dim: [] } } },
      /COMPLEX64, which the protocol cannot/,
    ],
  ])('with an input that is %s is refused by name', async (_, type, reason) => {
    const model = valid();
    model.graph.input.push({ name: 'odd', type });
    expect(await refusal(() => describeModel(model))).toEqual(['unsupported', expect.stringMatching(reason)]);
  });
});
