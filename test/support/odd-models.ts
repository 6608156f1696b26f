/**
 * Odd models: what converters write although the specification discourages it, and ONNX Runtime runs. Each has a twin
 * that computes the same without oddities, and a list of gaps: why ONNX Runtime's JavaScript binding cannot run the
 * odd one.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import fc from 'fast-check';
import {
  AttributeType,
  ElementType,
  nodeProto,
  serializeModel,
  type GraphProto,
  type ModelProto,
  type NodeProto,
  type TensorProto,
  type TypeProto,
  type ValueInfoProto,
} from '../../src/onnx/index.ts';
import { bytesOfNumbers, type Tensor } from '../../src/tensor/index.ts';

const { FLOAT, INT64, BOOL, BFLOAT16 } = ElementType;

/** Elements of `x`; the result of each stage has as many. */
const size = 4;

const tensorOf = (elemType: number, sizes?: readonly (number | string)[]): TypeProto => ({
  tensorType: {
    elemType,
    ...(sizes && {
      shape: { dim: sizes.map((each) => (typeof each === 'number' ? { dimValue: BigInt(each) } : { dimParam: each })) },
    }),
  },
});
const value = (name: string, elemType: number, sizes?: readonly (number | string)[]): ValueInfoProto => ({
  name,
  type: tensorOf(elemType, sizes),
});
const floats = (name: string, values: readonly number[], dims: readonly number[] = [values.length]): TensorProto => ({
  name,
  dims: dims.map(BigInt),
  dataType: FLOAT,
  rawData: bytesOfNumbers('FP32', values),
});
const wholes = (name: string, values: readonly number[], dims: readonly number[] = [values.length]): TensorProto => ({
  name,
  dims: dims.map(BigInt),
  dataType: INT64,
  rawData: bytesOfNumbers('INT64', values),
});
const external = (tensor: TensorProto, location: string): TensorProto => ({
  name: tensor.name,
  dims: tensor.dims,
  dataType: tensor.dataType,
  dataLocation: 1,
  externalData: [
    { key: 'location', value: location },
    { key: 'length', value: String(tensor.rawData!.byteLength) },
  ],
});
const graphOf = (name: string, parts: Partial<GraphProto>): { readonly graph: GraphProto } => ({
  graph: { name, node: [], initializer: [], input: [], output: [], valueInfo: [], ...parts },
});

/** Why the binding does not run the odd model. The twin's answer is then the expected one. */
export type Gap =
  /** ONNX Runtime crashes with SIGSEGV, or fails to find the value ''. */
  | 'unnamed-outputs'
  /** `Unsupported data type: 16`. */
  | 'bfloat16'
  /** It takes no input that has an initializer. */
  | 'optional-inputs'
  /** `Non tensor type is temporarily not supported`. */
  | 'no-tensors'
  /** It crashes with SIGABRT or reads past the end of the file. */
  | 'empty-external';

/** A model under construction, odd or not. */
export class OddModel {
  readonly isOdd: boolean;
  readonly gaps = new Set<Gap>();
  readonly nodes: NodeProto[] = [];
  readonly initializers: TensorProto[] = [];
  readonly inputs: ValueInfoProto[] = [value('x', FLOAT, ['n'])];
  readonly outputs: ValueInfoProto[] = [];
  readonly given: Tensor[] = [
    { name: 'x', datatype: 'FP32', shape: [size], data: bytesOfNumbers('FP32', [1, -2, 3, 0.5]) },
  ];
  readonly files = new Map<string, Uint8Array>();
  functions: NonNullable<ModelProto['functions']> = [];
  imports: { domain: string; version: bigint }[] = [{ domain: '', version: 17n }];
  /** Names of the outputs that the host serves; a remark of the model names the others. */
  readonly served: string[] = [];
  /** Name of the latest stage's result, which the next stage reads. */
  latestValue = 'x';
  #count = 0;

  constructor(isOdd: boolean) {
    this.isOdd = isOdd;
  }

  name(stem: string): string {
    return `${stem}${this.#count++}`;
  }

  /** The name of an output that no node reads: empty in the odd model. */
  unnamed(): string {
    const name = this.name('unused');
    return this.isOdd ? '' : name;
  }

  add(
    opType: string,
    input: readonly string[],
    attributes: Parameters<typeof nodeProto>[3] = {},
    domain = '',
    output = [this.name('v')],
  ): string {
    this.nodes.push(nodeProto(opType, input, output, attributes, { name: this.name('node'), domain }));
    return output[0]!;
  }

  weight(tensor: TensorProto): string {
    this.initializers.push(tensor);
    return tensor.name;
  }

  output(name: string, type: TypeProto | undefined, isServed = true): void {
    this.outputs.push(type === undefined ? { name } : { name, type });
    if (isServed) this.served.push(name);
  }

  build(): ModelProto {
    return {
      irVersion: 8n,
      opsetImport: this.imports,
      producerName: 'odd',
      producerVersion: '',
      domain: '',
      modelVersion: 0n,
      docString: '',
      metadataProps: [],
      ...(this.functions.length > 0 && { functions: this.functions }),
      graph: {
        name: 'odd',
        node: this.nodes,
        initializer: this.initializers,
        input: this.inputs,
        output: this.outputs,
        valueInfo: [],
      },
    };
  }
}

type Change = (model: OddModel) => void;

function splitWith(model: OddModel, unnamedAt: number): string {
  const names = [0, 1, 2].map((index) => (index === unnamedAt ? model.unnamed() : model.name('part')));
  const sizes = model.weight(wholes(model.name('sizes'), [1, 1, 2]));
  model.nodes.push(nodeProto('Split', [model.latestValue, sizes], names, { axis: 0 }, { name: model.name('node') }));
  const readParts = names.filter((_, index) => index !== unnamedAt);
  return model.add('Concat', [...readParts, model.weight(floats(model.name('pad'), unnamedAt === 2 ? [7, 8] : [7]))], {
    axis: 0,
  });
}

/** Each stage reads the latest value, and makes the next of the same size. */
const stages = {
  plain: (model) => {
    model.latestValue = model.add('Softplus', [model.latestValue]);
  },
  'split without its first': (model) => {
    if (model.isOdd) model.gaps.add('unnamed-outputs');
    model.latestValue = splitWith(model, 0);
  },
  'split without its middle': (model) => {
    if (model.isOdd) model.gaps.add('unnamed-outputs');
    model.latestValue = splitWith(model, 1);
  },
  'split without its last': (model) => {
    if (model.isOdd) model.gaps.add('unnamed-outputs');
    model.latestValue = splitWith(model, 2);
  },
  'loop without its state': (model) => {
    if (model.isOdd) model.gaps.add('unnamed-outputs');
    const count = model.weight(wholes(model.name('count'), [2], []));
    const [i, c, state, next, go, scanned] = ['i', 'c', 's', 'next', 'go', 'scan'].map((stem) => model.name(stem));
    const body = graphOf('body', {
      input: [value(i!, INT64, []), value(c!, BOOL, []), value(state!, FLOAT)],
      node: [
        nodeProto('Identity', [c!], [go!]),
        nodeProto('Neg', [state!], [next!]),
        nodeProto('Relu', [state!], [scanned!]),
      ],
      output: [value(go!, BOOL, []), value(next!, FLOAT), value(scanned!, FLOAT)],
    });
    const all = model.name('all');
    model.nodes.push(
      nodeProto('Loop', [count, '', model.latestValue], [model.unnamed(), all], { body }, { name: model.name('node') }),
    );
    model.latestValue = model.add('ReduceSum', [all, model.weight(wholes(model.name('axes'), [0]))], { keepdims: 0 });
  },
  'branches without an output': (model) => {
    if (model.isOdd) model.gaps.add('unnamed-outputs');
    const condition = model.add('Less', [
      model.add('ReduceMax', [model.latestValue], { keepdims: 0 }),
      model.weight(floats(model.name('limit'), [1], [])),
    ]);
    const branch = (first: string, second: string) => {
      const [a, b] = [model.name('a'), model.name('b')];
      return graphOf('branch', {
        node: [nodeProto(first, [model.latestValue], [a]), nodeProto(second, [model.latestValue], [b])],
        output: [value(a, FLOAT), value(b, FLOAT)],
      });
    };
    const result = model.name('result');
    const branches = { then_branch: branch('Relu', 'Neg'), else_branch: branch('Abs', 'Neg') };
    model.nodes.push(nodeProto('If', [condition], [model.unnamed(), result], branches, { name: model.name('node') }));
    model.latestValue = result;
  },
  'a split without its first in a branch': (model) => {
    if (model.isOdd) model.gaps.add('unnamed-outputs');
    const condition = model.weight({ name: model.name('yes'), dims: [], dataType: BOOL, rawData: Uint8Array.of(1) });
    const branch = () => {
      const [half, out] = [model.name('half'), model.name('out')];
      return graphOf('branch', {
        node: [
          nodeProto('Split', [model.latestValue], [model.unnamed(), half], { axis: 0 }),
          nodeProto('Concat', [half, half], [out], { axis: 0 }),
        ],
        output: [value(out, FLOAT)],
      });
    };
    model.latestValue = model.add('If', [condition], { then_branch: branch(), else_branch: branch() });
  },
  'a split without its first in a function': (model) => {
    if (model.isOdd) model.gaps.add('unnamed-outputs');
    const name = model.name('Halve');
    model.functions.push({
      name,
      domain: 'own',
      input: ['a'],
      output: ['q'],
      attribute: [],
      opsetImport: model.isOdd
        ? [
            { domain: '', version: 11n },
            { domain: 'ai.onnx', version: 17n },
          ]
        : [{ domain: '', version: 17n }],
      node: [
        nodeProto('Split', ['a'], [model.isOdd ? '' : 'p', 'half'], { axis: 0 }),
        nodeProto('Concat', ['half', 'half'], ['q'], { axis: 0 }),
      ],
    });
    if (!model.imports.some(({ domain }) => domain === 'own')) model.imports.push({ domain: 'own', version: 1n });
    model.latestValue = model.add(name, [model.latestValue], {}, 'own');
  },
  'normalization with empty statistics': (model) => {
    if (model.isOdd) model.gaps.add('unnamed-outputs');
    const shaped = model.add('Reshape', [model.latestValue, model.weight(wholes(model.name('to'), [1, 1, size]))]);
    const statistics = [2, 1, 0.5, 4].map((each) => model.weight(floats(model.name('statistic'), [each])));
    const out = model.name('normal');
    const outputs = model.isOdd ? [out, '', ''] : [out];
    model.nodes.push(
      nodeProto('BatchNormalization', [shaped, ...statistics], outputs, {}, { name: model.name('node') }),
    );
    model.latestValue = model.add('Reshape', [out, model.weight(wholes(model.name('back'), [size]))]);
  },
  'a dropout with an empty mask': (model) => {
    const out = model.name('undropped');
    const outputs = model.isOdd ? [out, ''] : [out];
    model.nodes.push(nodeProto('Dropout', [model.latestValue], outputs, {}, { name: model.name('node') }));
    model.latestValue = out;
  },
  'an operator of Microsoft without its import': (model) => {
    if (!model.isOdd && !model.imports.some(({ domain }) => domain === 'com.microsoft'))
      model.imports.push({ domain: 'com.microsoft', version: 1n });
    model.latestValue = model.add('QuickGelu', [model.latestValue], {}, 'com.microsoft');
  },
  'an operator of ML without its import': (model) => {
    if (!model.isOdd && !model.imports.some(({ domain }) => domain === 'ai.onnx.ml'))
      model.imports.push({ domain: 'ai.onnx.ml', version: 3n });
    model.latestValue = model.add(
      'Scaler',
      [model.latestValue],
      { offset: { floats: [1] }, scale: { floats: [2] } },
      'ai.onnx.ml',
    );
  },
  'an operator of the other name of ONNX': (model) => {
    model.latestValue = model.add('Abs', [model.latestValue], {}, model.isOdd ? 'ai.onnx' : '');
  },
  'an initializer given twice': (model) => {
    const name = model.name('w');
    if (model.isOdd) model.weight(floats(name, [100]));
    model.weight(floats(name, [3]));
    model.latestValue = model.add('Mul', [model.latestValue, name]);
  },
  'an initializer without a name': (model) => {
    if (model.isOdd) model.weight(floats('', [1]));
  },
  'weights in a file with a dot': (model) => {
    const tensor = floats(model.name('w'), [1, 2, 3, 4]);
    const file = `${model.name('part')}.bin`;
    model.files.set(`sub/${file}`, tensor.rawData!);
    model.weight(model.isOdd ? external(tensor, `./sub//../sub/${file}`) : tensor);
    model.latestValue = model.add('Add', [model.latestValue, tensor.name]);
  },
  'an empty tensor in an empty file': (model) => {
    const tensor = floats(model.name('roi'), [], [0]);
    const file = `${model.name('empty')}.bin`;
    if (model.isOdd) {
      model.gaps.add('empty-external');
      model.files.set(file, new Uint8Array());
    }
    model.weight(model.isOdd ? external(tensor, file) : tensor);
    model.latestValue = model.add('Concat', [model.latestValue, tensor.name], { axis: 0 });
  },
} satisfies Record<string, Change>;

/** Oddities of the graph's inputs, outputs and imports. A model has each at most once. */
const edges = {
  'an input of unknown rank': (model) => {
    if (model.isOdd && model.inputs[0]!.type!.tensorType!.elemType === FLOAT) model.inputs[0] = value('x', FLOAT);
  },
  'operator sets imported twice': (model) => {
    if (model.isOdd) model.imports.unshift({ domain: '', version: 12n }, { domain: 'ai.onnx', version: 9n });
    model.latestValue = model.add(
      'Softmax',
      [model.add('Reshape', [model.latestValue, model.weight(wholes(model.name('to'), [2, 2, 1]))])],
      {
        axis: 1,
      },
    );
    model.latestValue = model.add('Reshape', [model.latestValue, model.weight(wholes(model.name('back'), [size]))]);
  },
  'a BF16 input': (model) => {
    const name = 'narrow';
    const data = bytesOfNumbers('BF16', [1, 2, -0.5, 3.140625]);
    model.inputs.push(value(name, model.isOdd ? BFLOAT16 : FLOAT, ['n']));
    if (model.isOdd) model.gaps.add('bfloat16');
    model.given.push(
      model.isOdd
        ? { name, datatype: 'BF16', shape: [size], data }
        : { name, datatype: 'FP32', shape: [size], data: bytesOfNumbers('FP32', [1, 2, -0.5, 3.140625]) },
    );
    const inner = model.add('Identity', [name]);
    const condition = model.weight({ name: model.name('yes'), dims: [], dataType: BOOL, rawData: Uint8Array.of(1) });
    const branch = () => {
      const out = model.name('out');
      // The branch captures the input itself.
      return graphOf('branch', {
        node: [nodeProto('Cast', [name], [out], { to: FLOAT })],
        output: [value(out, FLOAT)],
      });
    };
    const captured = model.add('If', [condition], { then_branch: branch(), else_branch: branch() });
    model.latestValue = model.add('Add', [model.latestValue, model.add('Cast', [inner], { to: FLOAT })]);
    model.latestValue = model.add('Add', [model.latestValue, captured]);
  },
  'a BF16 output': (model) => {
    if (model.isOdd) model.gaps.add('bfloat16');
    const narrow = model.add('Cast', [model.latestValue], { to: BFLOAT16 });
    const out = model.isOdd ? narrow : model.add('Cast', [narrow], { to: FLOAT });
    model.nodes.push(nodeProto('Identity', [out], ['bf'], {}, { name: model.name('node') }));
    model.output('bf', tensorOf(model.isOdd ? BFLOAT16 : FLOAT, ['m']));
    model.latestValue = model.add('Add', [model.latestValue, model.add('Cast', ['bf'], { to: FLOAT })]);
  },
  'an optional input that is left out': (model) => {
    const name = model.weight(floats('left', [5]));
    if (model.isOdd) model.inputs.push(value(name, FLOAT, ['k']));
    model.latestValue = model.add('Sub', [model.latestValue, name]);
  },
  'an optional input that is given': (model) => {
    const name = 'over';
    model.inputs.push(value(name, FLOAT, ['k']));
    if (model.isOdd) {
      model.gaps.add('optional-inputs');
      model.weight(floats(name, [5]));
    }
    model.given.push({ name, datatype: 'FP32', shape: [size], data: bytesOfNumbers('FP32', [4, 3, 2, 1]) });
    model.latestValue = model.add('Mul', [model.latestValue, name]);
  },
  'dimensions of one name that differ': (model) => {
    model.inputs.push(value('one', FLOAT, [model.isOdd ? 'n' : 'k']));
    model.given.push({ name: 'one', datatype: 'FP32', shape: [1], data: bytesOfNumbers('FP32', [9]) });
    model.latestValue = model.add('Add', [model.latestValue, 'one']);
  },
  'a ZipMap': (model) => {
    const shaped = model.add('Reshape', [model.latestValue, model.weight(wholes(model.name('to'), [2, 2]))]);
    const scores = model.add('Normalizer', [shaped], { norm: 'L1' }, 'ai.onnx.ml');
    if (!model.imports.some(({ domain }) => domain === 'ai.onnx.ml'))
      model.imports.push({ domain: 'ai.onnx.ml', version: 3n });
    if (model.isOdd) {
      model.gaps.add('no-tensors');
      model.add('ZipMap', [scores], { classlabels_int64s: [4, 5] }, 'ai.onnx.ml', ['probability']);
      const pair = { mapType: { keyType: INT64, valueType: tensorOf(FLOAT) } };
      model.output('probability', { sequenceType: { elemType: pair } });
    } else {
      model.add('Identity', [scores], {}, '', ['probability']);
      model.output('probability', tensorOf(FLOAT));
    }
  },
  'a sequence of pieces': (model) => {
    if (model.isOdd) {
      model.gaps.add('no-tensors');
      model.add('SplitToSequence', [model.latestValue], { axis: 0 }, '', ['pieces']);
      model.output('pieces', { sequenceType: { elemType: tensorOf(FLOAT) } });
      model.latestValue = model.add('ConcatFromSequence', ['pieces'], { axis: 0 });
    } else {
      model.add('Identity', [model.latestValue], {}, '', ['pieces']);
      model.output('pieces', tensorOf(FLOAT));
    }
  },
  'an optional output': (model) => {
    if (!model.isOdd) return;
    model.gaps.add('no-tensors');
    model.add('Optional', [model.latestValue], {}, '', ['maybe']);
    model.output('maybe', { optionalType: { elemType: tensorOf(FLOAT) } }, false);
  },
  'a sequence without a type': (model) => {
    if (!model.isOdd) return;
    model.gaps.add('no-tensors');
    model.add('SequenceConstruct', [model.latestValue, model.latestValue], {}, '', ['list']);
    model.output('list', undefined, false);
  },
  'an output without a type': (model) => {
    model.add('Shape', [model.latestValue], {}, '', ['untyped']);
    model.output('untyped', model.isOdd ? undefined : tensorOf(INT64));
  },
  'an output given twice': (model) => {
    model.add('Floor', [model.latestValue], {}, '', ['same']);
    model.output('same', tensorOf(FLOAT, ['f']));
    if (model.isOdd) model.outputs.push({ name: 'same', type: tensorOf(FLOAT, ['f']) });
  },
  'an input that is an output': (model) => {
    model.output('x', model.inputs[0]!.type);
  },
} satisfies Record<string, Change>;

/** Faults: ONNX Runtime refuses a model with one of them. */
const faults = {
  'a value that nothing makes': (model) => {
    model.latestValue = model.add('Add', [model.latestValue, 'nowhere']);
  },
  'an unknown operator': (model) => {
    model.latestValue = model.add('Conjure', [model.latestValue]);
  },
  'an unknown domain': (model) => {
    model.latestValue = model.add('Conjure', [model.latestValue], {}, 'com.example');
  },
  'an unknown attribute': (model) => {
    model.latestValue = model.add('Neg', [model.latestValue], { strength: 3 });
  },
  'two nodes of one name': (model) => {
    for (let twice = 0; twice < 2; twice++)
      model.nodes.push(
        nodeProto('Neg', [model.latestValue], [(model.latestValue = model.name('v'))], {}, { name: 'twin' }),
      );
  },
  'a value made twice': (model) => {
    model.add('Neg', [model.latestValue], {}, '', ['twice']);
    model.latestValue = model.add('Abs', [model.latestValue], {}, '', ['twice']);
  },
  'a cycle': (model) => {
    const later = model.name('later');
    const first = model.add('Add', [model.latestValue, later]);
    model.latestValue = model.add('Neg', [first], {}, '', [later]);
  },
  'an operator set of the future': (model) => {
    model.imports.push({ domain: '', version: 99n });
  },
  'an attribute given twice': (model) => {
    const axis = { name: 'axis', type: AttributeType.INT, i: 0n };
    const node = nodeProto(
      'Softmax',
      [model.latestValue],
      [(model.latestValue = model.name('v'))],
      {},
      { name: model.name('node') },
    );
    model.nodes.push({ ...node, attribute: [axis, axis] });
  },
  'an output with a wrong type': (model) => {
    model.add('Neg', [model.latestValue], {}, '', ['mistyped']);
    model.output('mistyped', tensorOf(INT64, ['n']));
  },
  'a weight that is too short': (model) => {
    const tensor = floats(model.name('w'), [1, 2]);
    model.weight({ ...tensor, dims: [3n] });
    model.latestValue = model.add('Add', [model.latestValue, tensor.name]);
  },
  'a file that is missing': (model) => {
    const tensor = floats(model.name('w'), [1, 2, 3, 4]);
    model.weight(external(tensor, 'missing.bin'));
    model.latestValue = model.add('Add', [model.latestValue, tensor.name]);
  },
} satisfies Record<string, Change>;

export interface OddPlan {
  readonly stages: readonly (keyof typeof stages)[];
  readonly edges: readonly (keyof typeof edges)[];
  readonly fault: keyof typeof faults | undefined;
}

const keysOf = <Key extends string>(of: Readonly<Record<Key, unknown>>): Key[] => Object.keys(of) as Key[];

/** A plan for every stage, edge and fault alone. */
export const singlePlans: readonly (readonly [kind: string, plan: OddPlan])[] = [
  ...keysOf(stages).map((stage) => [stage, { stages: [stage], edges: [], fault: undefined }] as const),
  ...keysOf(edges).map((edge) => [edge, { stages: [], edges: [edge], fault: undefined }] as const),
  ...keysOf(faults).map((fault) => [fault, { stages: [], edges: [], fault }] as const),
];

export const oddPlans: fc.Arbitrary<OddPlan> = fc.record({
  stages: fc.array(fc.constantFrom(...keysOf(stages)), { maxLength: 5 }),
  edges: fc.uniqueArray(fc.constantFrom(...keysOf(edges)), { maxLength: 4 }),
  fault: fc.oneof(
    { weight: 4, arbitrary: fc.constant(undefined) },
    { weight: 1, arbitrary: fc.constantFrom(...keysOf(faults)) },
  ),
});

export function modelOf(plan: OddPlan, isOdd: boolean): OddModel {
  const model = new OddModel(isOdd);
  for (const stage of plan.stages) stages[stage](model);
  for (const edge of plan.edges) edges[edge](model);
  if (plan.fault !== undefined) faults[plan.fault](model);
  model.add('Identity', [model.latestValue], {}, '', ['y']);
  model.output('y', tensorOf(FLOAT));
  return model;
}

/** A classifier as skl2onnx writes it by default: its outputs are a label and a map of scores for each row. */
export function classifier(): ModelProto {
  const model = new OddModel(true);
  const domain = 'ai.onnx.ml';
  model.imports.push({ domain, version: 3n });
  model.inputs[0] = value('X', FLOAT, ['n', 2]);
  const linear = {
    coefficients: { floats: [1, -1, -1, 1] },
    intercepts: { floats: [0, 0] },
    classlabels_strings: ['no', 'yes'],
    post_transform: 'LOGISTIC',
  };
  model.nodes.push(nodeProto('LinearClassifier', ['X'], ['output_label', 'scores'], linear, { domain }));
  model.nodes.push(nodeProto('ZipMap', ['scores'], ['output_probability'], { classlabels_strings: ['no', 'yes'] }, { domain })); // prettier-ignore
  model.output('output_label', tensorOf(ElementType.STRING, ['n']));
  const scores = { mapType: { keyType: ElementType.STRING, valueType: tensorOf(FLOAT) } };
  model.output('output_probability', { sequenceType: { elemType: scores } });
  return model.build();
}

/** Writes the model with its files, and returns its path. */
export async function writeOdd(model: OddModel, folder: string): Promise<string> {
  for (const [name, bytes] of model.files) {
    await mkdir(dirname(join(folder, name)), { recursive: true });
    await writeFile(join(folder, name), bytes);
  }
  const path = join(folder, 'model.onnx');
  await mkdir(folder, { recursive: true });
  await writeFile(path, bytesOf(model.build()));
  return path;
}

/** Serializes also the model of 'a weight that is too short', which the project's writer refuses. */
function bytesOf(model: ModelProto): Uint8Array {
  const short = model.graph.initializer.filter(
    ({ name, dims, rawData }) => name !== '' && rawData?.byteLength === 8 && dims[0] === 3n,
  );
  if (short.length === 0) return serializeModel(model);
  // The writer does not check the length of a typed field.
  const initializer = model.graph.initializer.map((tensor): TensorProto => {
    if (!short.includes(tensor)) return tensor;
    const { rawData: _raw, ...rest } = tensor;
    return { ...rest, floatData: [1, 2] };
  });
  return serializeModel({ ...model, graph: { ...model.graph, initializer } });
}
