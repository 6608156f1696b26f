/**
 * The gate on operators that jump: a right kernel whose rounding decides ties otherwise than ONNX Runtime's agrees, and
 * a wrong kernel does not.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { disagreementOf } from '../../../src/gpu/gate/compare.ts';
import { Compiler } from '../../../src/gpu/process/compiler.ts';
import type { GpuCheck } from '../../../src/gpu/process/protocol.ts';
import { GpuService } from '../../../src/gpu/process/service.ts';
import { ElementType, GraphBuilder, writeModel } from '../../../src/onnx/index.ts';
import { loadAllPlan } from '../../../src/gpu/index.ts';
import { tensorOf, type Tensor } from '../../../src/tensor/index.ts';
import { emulatorMissing, sharedEmulatedCuda } from '../../support/emulated-cuda.ts';

const rows = 512;

type Maker = (graph: GraphBuilder, a: string, b: string, operator: string) => string;

const asFloat = (graph: GraphBuilder, value: string): string =>
  graph.node('Cast', [value], { to: ElementType.FLOAT }, { name: 'AsFloat' });
const pair = (graph: GraphBuilder, a: string, b: string): string => {
  const column = graph.constant({ ints: [rows, 1], shape: [2] });
  return graph.node('Concat', [graph.node('Reshape', [a, column]), graph.node('Reshape', [b, column])], { axis: 1 });
};
const flat = (graph: GraphBuilder, value: string): string =>
  graph.node('Reshape', [value, graph.constant({ ints: [rows], shape: [1] })], {}, { name: 'Flat' });
/** 0 or 1 for an even and an odd whole number. */
const parity = (graph: GraphBuilder, whole: string): string => {
  const wide = graph.node('Cast', [whole], { to: ElementType.INT64 }, { name: 'Wide' });
  return asFloat(graph, graph.node('Mod', [wide, graph.constant({ ints: [2], shape: [1] })]));
};
const rounded: Maker = (graph, a, _b, operator) => {
  const large = graph.node('Mul', [a, graph.constant({ floats: [3e6], shape: [1] })]);
  return parity(graph, graph.node(operator, [large], {}, { name: 'Jump' }));
};
const compared: Maker = (graph, a, b, operator) => asFloat(graph, graph.node(operator, [a, b], {}, { name: 'Jump' }));

/** By the operator that jumps: what is made of two values that are equal but for rounding, and a wrong operator. */
const kinds: readonly (readonly [right: string, wrong: string, make: Maker])[] = [
  ['Equal', 'GreaterOrEqual', compared],
  ['Greater', 'Less', compared],
  ['Less', 'Greater', compared],
  ['GreaterOrEqual', 'Equal', compared],
  ['LessOrEqual', 'Less', compared],
  ['Round', 'Floor', rounded],
  ['Floor', 'Ceil', rounded],
  ['Ceil', 'Floor', rounded],
  ['Sign', 'Ceil', (graph, a, b, operator) => graph.node(operator, [graph.node('Sub', [a, b])], {}, { name: 'Jump' })],
  [
    'ArgMax',
    'ArgMin',
    (graph, a, b, operator) =>
      asFloat(graph, graph.node(operator, [pair(graph, a, b)], { axis: 1, keepdims: 0 }, { name: 'Jump' })),
  ],
  [
    'TopK',
    'smallest',
    (graph, a, b, operator) => {
      const options = { name: 'Jump', outputs: ['top', 'places'] } as const;
      const one = graph.constant({ ints: [1], shape: [1] });
      const largest = operator === 'TopK' ? 1 : 0;
      const [, places] = graph.node('TopK', [pair(graph, a, b), one], { axis: 1, largest }, options);
      return flat(graph, asFloat(graph, places));
    },
  ],
  [
    'Cast',
    'of the negative',
    (graph, a, _b, operator) => {
      const large = graph.node('Mul', [a, graph.constant({ floats: [3e6], shape: [1] })]);
      const read =
        operator === 'Cast' ? large : graph.node('Sub', [large, graph.constant({ floats: [1], shape: [1] })]);
      return parity(graph, graph.node('Cast', [read], { to: ElementType.INT32 }, { name: 'Jump' }));
    },
  ],
  [
    'peaks of a heat map',
    'all but the peaks',
    (graph, a, b, operator) => {
      const shape = graph.constant({ ints: [1, 2, 16, rows / 16], shape: [4] });
      const map = graph.node('Reshape', [pair(graph, a, b), shape], {}, { name: 'Map' });
      const pool = graph.node('MaxPool', [map], { kernel_shape: [3, 3], pads: [1, 1, 1, 1], strides: [1, 1] });
      const isPeak = graph.node(operator.startsWith('all') ? 'Less' : 'Equal', [map, pool], {}, { name: 'Jump' });
      const kept = graph.node('Mul', [map, asFloat(graph, isPeak)], {}, { name: 'Kept' });
      const halves = graph.constant({ ints: [2, rows], shape: [2] });
      return graph.node(
        'ReduceSum',
        [graph.node('Reshape', [kept, halves], {}, { name: 'Halves' }), graph.constant({ ints: [0], shape: [1] })],
        { keepdims: 0 },
      );
    },
  ],
];

let folder: string;
let compiler: Compiler;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-jumps-'));
  compiler = new Compiler(join(folder, 'cache'));
});
afterAll(async () => {
  await compiler.close();
  await rm(folder, { recursive: true, force: true });
});

async function write(name: string, make: Maker, operator: string): Promise<string> {
  const graph = new GraphBuilder('jumps', { opset: 17 });
  const x = graph.input('x', ElementType.FLOAT, [rows]);
  const one = graph.constant({ floats: [1], shape: [1] });
  const a = graph.node('Sigmoid', [x]);
  const same = graph.node('Div', [one, graph.node('Add', [one, graph.node('Exp', [graph.node('Neg', [x])])])]);
  // Every other value ties, the others do not.
  const apart = Array.from({ length: rows }, (_, index) => [0, 0.1, 0, -0.1][index % 4]!);
  const b = graph.node('Add', [same, graph.constant({ floats: apart, shape: [rows] })]);
  graph.output(
    graph.node('Mul', [x, make(graph, a, b, operator)], {}, { name: 'Last' }),
    ElementType.FLOAT,
    [rows],
    'y',
  );
  graph.output(graph.node('Tanh', [a]), ElementType.FLOAT, [rows], 'smooth');
  const path = join(folder, `${name.replaceAll(' ', '-')}.onnx`);
  await writeModel(graph.build(), path);
  return path;
}

const settings = { hostBytes: 2 ** 22, slabBytes: 2 ** 18, gpuBytes: 2 ** 24, cacheFolder: '' };

interface Found {
  readonly check: GpuCheck;
  /** Whether the outputs agree without a look at the jumps. */
  readonly isPlain: boolean;
}

const onMachine = sharedEmulatedCuda({ devices: [{ memoryBytes: 2 ** 25 }] });

/** What the gate finds if the GPU runs the program of `onGpu` for the model in `modelPath`. */
async function checked(modelPath: string, onGpu: string, inputs: readonly Tensor[]): Promise<Found> {
  const make: Compiler['make'] = async (what, order, ...rest) => {
    const isOfGpu = what === 'program' || what === 'opened';
    return await compiler.make(what, isOfGpu ? { ...order, modelPath: onGpu } : order, ...rest);
  };
  return await onMachine(async (cuda) => {
    const service = new GpuService(cuda, { make, close: () => Promise.resolve() }, settings, new Set());
    const { signal } = new AbortController();
    const shapes = [{ name: 'x', shape: [rows] }];
    try {
      const program = await make('program', { shapes, modelPath });
      const order = { key: 'f@1', gpu: 0, plan: loadAllPlan(program, 0) };
      const context = { tensors: inputs, signal, note: () => undefined };
      await service.methods.register({ spec: { key: 'f@1', modelPath, shapes } }, context);
      await service.methods.stage({ key: 'f@1' }, context);
      const asked = { ...order, inputs: inputs.length, isAnswered: false };
      const check = await service.methods.check(asked, context);
      const { outputs } = await service.run({ ...order, trace: false }, inputs, signal);
      const expected = await compiler.make('reference', { modelPath, inputs });
      return { check, isPlain: disagreementOf(outputs, expected, 'fp32') === undefined };
    } finally {
      await service.close();
    }
  });
}

function drawn(seed: number): Tensor {
  let state = seed;
  const next = (): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return (state / 2 ** 32) * 8 - 4;
  };
  return tensorOf('x', 'FP32', [rows], Float32Array.from({ length: rows }, next));
}

describe.skipIf(emulatorMissing)('the gate', () => {
  let ties = 0;

  test.each(kinds)(
    'accepts what rounding decides behind %s, and refuses %s in its place',
    async (right, wrong, make) => {
      const path = await write(`${right}-right`, make, right);
      const wrongPath = await write(`${right}-wrong`, make, wrong);
      const inputs = [drawn(1)];
      const found = await checked(path, path, inputs);
      expect(found.check).toMatchObject({ kind: 'agreed' });
      if (!found.isPlain) ties++;
      const ofWrong = await checked(path, wrongPath, inputs);
      expect(ofWrong.check).toMatchObject({ kind: 'disagreed' });
    },
  );

  test('saw ties in these tests', () => {
    expect(ties).toBeGreaterThan(kinds.length / 2);
  });
});
