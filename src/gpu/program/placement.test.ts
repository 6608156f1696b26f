/**
 * Checks the arena of whole programs: each launch reads the values that were written for it, though others share their
 * bytes before and after.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ElementType, Graph, type ModelProto } from '../../onnx/index.ts';
import { elementwiseOperators } from '../operators/elementwise/expressed.ts';
import type { Operator } from '../operators/types.ts';
import { viewOperators } from '../operators/views.ts';
import type { FunctionBase } from './base.ts';
import { compileProgram, defaultSettings } from './compile.ts';
import type { PreparedGraph, PreparedValue } from './prepared.ts';
import type { Operand, Program } from './types.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-placement-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

interface Step {
  readonly type: 'Relu' | 'Add' | 'Copy' | 'Flatten';
  /** The earlier values that it reads, counted back from the last. */
  readonly back: readonly [number, number];
}

const step: fc.Arbitrary<Step> = fc.record({
  type: fc.constantFrom('Relu', 'Add', 'Copy', 'Flatten'),
  back: fc.tuple(fc.nat(6), fc.nat(6)),
});

/** Copies through scratch memory. */
const copying: Operator = {
  type: 'Copy',
  emit(emitter) {
    const [input, output] = [emitter.required(0), emitter.output(0)!];
    const scratch = emitter.scratch(input.buffer.bytes);
    emitter.copy(input.buffer, scratch, input.buffer.bytes);
    emitter.copy(scratch, output.buffer, input.buffer.bytes);
  },
};

const operators: readonly Operator[] = [...elementwiseOperators, ...viewOperators, copying];

const shape = [4, 64];
const bytes = 4 * 64 * 4;

function prepared(steps: readonly Step[], outputs: readonly string[]): PreparedGraph {
  const names = ['x'];
  const node = steps.map(({ type, back }, index) => {
    const input = back.slice(0, type === 'Add' ? 2 : 1).map((place) => names[Math.max(0, names.length - 1 - place)]!);
    const output = [`v${index}`];
    names.push(output[0]!);
    return { name: `n${index}`, opType: type, domain: '', input, output, attribute: [] };
  });
  const info = (name: string) => ({
    name,
    type: {
      tensorType: { elemType: ElementType.FLOAT, shape: { dim: shape.map((size) => ({ dimValue: BigInt(size) })) } },
    },
  });
  const graph = { name: 'g', node, initializer: [], input: [info('x')], output: outputs.map(info), valueInfo: [] };
  const model: ModelProto = {
    irVersion: 8n,
    opsetImport: [{ domain: '', version: 17n }],
    producerName: '',
    producerVersion: '',
    domain: '',
    modelVersion: 0n,
    docString: '',
    graph,
    metadataProps: [],
  };
  const base: FunctionBase = {
    modelHash: 'hash',
    graphHash: 'hash',
    modelPath: join(folder, 'model.onnx'),
    derivedPath: join(folder, 'derived.bin'),
    layers: [{ name: 'all', kind: 'other' }],
    weights: [],
    layerOfValue: new Map(),
    model,
    inputs: ['x'],
  };
  return {
    base,
    shapes: [{ name: 'x', shape }],
    model,
    opset: 17,
    nodes: new Graph(model).nodes.map((each) => Object.assign({}, each, { layer: 0 })),
    inputs: ['x'],
    outputs,
    values: new Map(names.map((name): [string, PreparedValue] => [name, { datatype: 'FP32', shape }])),
    constants: new Map(),
    weights: new Map(),
    obstacles: [],
  };
}

/** Runs a program on formulas: a launch writes the formula of what it reads. Returns those of the outputs. */
function run(program: Program): string[] {
  const arena = new Map<number, string>();
  const at = (operand: Operand): string => arena.get(operand.byteOffset) ?? 'nothing';
  /** A write removes other values from those bytes. */
  const put = (start: number, size: number, value: string): void => {
    for (const other of arena.keys()) if (other < start + size && start < other + bytes) arena.delete(other);
    arena.set(start, value);
  };
  for (const input of program.inputs) put(input.byteOffset, input.bytes, input.name);
  for (const launch of program.launches) {
    if (launch.kind === 'copy') put(launch.to.byteOffset, launch.bytes, at(launch.from));
    if (launch.kind !== 'kernel') continue;
    const pointers = launch.arguments.filter((argument) => argument.type === 'pointer');
    const read = pointers.filter(({ access }) => access === 'read').map(({ operand }) => at(operand));
    const kernel = program.source.slice(program.source.indexOf(`void ${launch.kernel}(`)).split('KERNEL')[0]!;
    const body = kernel.slice(kernel.indexOf('{')).replaceAll(/\s+/g, ' ').trim();
    for (const written of pointers.filter(({ access }) => access === 'write')) {
      put(written.operand.byteOffset, written.bytes, `[${body}](${read.join(', ')})`);
    }
  }
  return program.outputs.map(({ byteOffset }) => arena.get(byteOffset) ?? 'nothing');
}

test('the outputs are the same when all values have bytes of their own', () => {
  fc.assert(
    fc.property(fc.array(step, { minLength: 1, maxLength: 14 }), fc.nat(13), (steps, second) => {
      const outputs = [...new Set([`v${steps.length - 1}`, `v${second % steps.length}`])];
      const graph = prepared(steps, outputs);
      const plain = run(compileProgram(graph, operators, defaultSettings, { key: 'key', fusion: false }));
      // The same program with every value as an output, which shares no bytes.
      const alone = prepared(
        steps,
        steps.map((_, index) => `v${index}`),
      );
      const every = run(compileProgram(alone, operators, defaultSettings, { key: 'key', fusion: false }));
      expect(plain).toEqual(outputs.map((name) => every[Number(name.slice(1))]));
      const fused = run(compileProgram(graph, operators, defaultSettings, { key: 'key', fusion: true }));
      expect(fused.join()).not.toContain('nothing');
    }),
  );
});

test('a chain of elementwise launches works in place, except in the bytes of the input and the output', () => {
  const chain = Array.from({ length: 12 }, (): Step => ({ type: 'Relu', back: [0, 0] }));
  const { arenaBytes } = compileProgram(prepared(chain, ['v11']), operators, defaultSettings, {
    key: 'key',
    fusion: false,
  });
  expect(arenaBytes).toBe(3 * bytes);
});
