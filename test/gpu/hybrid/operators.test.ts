/** Operators timed on an emulated GPU and on cores: the times mean nothing, the structure of the profile does. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../../src/gpu/engine/engine.ts';
import { CpuCores } from '../../../src/gpu/hybrid/cpu-cores.ts';
import { draftOperators, type OperatorDraft } from '../../../src/gpu/hybrid/operator-draft.ts';
import { profileOperators } from '../../../src/gpu/hybrid/operator-profile.ts';
import { livingNodes } from '../../../src/gpu/program/prepared.ts';
import { measureOperatorsOnGpu } from '../../../src/gpu/measure/operators.ts';
import { operators } from '../../../src/gpu/operators/index.ts';
import { defaultSettings } from '../../../src/gpu/program/index.ts';
import { ElementType, GraphBuilder } from '../../../src/onnx/index.ts';
import { parseGraphProfile, type GraphProfile } from '../../../src/profile/index.ts';
import { tensorOf } from '../../../src/tensor/index.ts';
import { emulatorMissing, withEmulatedCuda } from '../../support/emulated-cuda.ts';
import { exampleOf, noise, type Example } from './examples.ts';
import { unrolledNetwork } from '../../support/unrolled-networks.ts';

let folder: string;
let cores: CpuCores;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-operators-'));
  cores = new CpuCores({ count: 2 });
});
afterAll(async () => {
  await cores.close();
  await rm(folder, { recursive: true, force: true });
});

const draftOf = ({ prepared }: Example): Promise<OperatorDraft> =>
  draftOperators(prepared, { operators, settings: defaultSettings, cacheFolder: folder });

async function profileOf(draft: OperatorDraft): Promise<GraphProfile> {
  return await withEmulatedCuda({ devices: 1 }, async (cuda) => {
    const engine = new Engine(cuda, { hostBytes: 2 ** 24, slabBytes: 2 ** 20, gpuBytes: 2 ** 26 });
    try {
      engine.addFunction('f', draft.layout);
      await engine.stage('f');
      return await profileOperators({ engine, key: 'f', gpu: 0, draft, cpuCores: cores, cores: 2, iterations: 3 });
    } finally {
      await engine.close();
    }
  });
}

/** Branches that join: y = softmax(relu(x a) + normalizer(x b)) c, where the engine lacks Normalizer. */
function withNormalizer(): GraphBuilder {
  const graph = new GraphBuilder('branches');
  const x = graph.input('x', ElementType.FLOAT, [4, 16]);
  const weight = (name: string): string =>
    graph.weight(name, [16, 16], () => Float32Array.from({ length: 256 }, (_, index) => Math.sin(index) / 4));
  const left = graph.node('Relu', [graph.node('MatMul', [x, weight('a')], {}, { name: 'left' })]);
  const right = graph.node(
    'Normalizer',
    [graph.node('MatMul', [x, weight('b')], {}, { name: 'right' })],
    { norm: 'L2' },
    { domain: 'ai.onnx.ml' },
  );
  const sum = graph.node('Softmax', [graph.node('Add', [left, right])]);
  graph.output(graph.node('MatMul', [sum, weight('c')], {}, { name: 'last' }), ElementType.FLOAT, [4, 16], 'y');
  return graph;
}

describe.skipIf(emulatorMissing)('the operators of a function', () => {
  it('the operators of a function share the weights of the layers that their cells read, whose bytes count once', async () => {
    const settings = { layers: 2, input: 8, hidden: 16, sequence: 4 };
    const example = await exampleOf(folder, 'lstm', unrolledNetwork('lstm', settings), [noise('input', [2, 4, 8], 1)]);
    const draft = await draftOf(example);
    const profile = await profileOf(draft);
    expect(() => parseGraphProfile(JSON.parse(JSON.stringify(profile)))).not.toThrow();
    const nodes = livingNodes(example.prepared);
    expect(profile.nodes.map(({ name }) => name)).toEqual(nodes.map(({ name }) => name));
    const cells = profile.nodes.filter((_, index) => nodes[index]!.proto.opType === 'LSTM');
    expect(cells).toHaveLength(8);
    const groups = new Map(cells.map(({ shares, bytes }) => [shares, bytes.weights]));
    expect(groups.size).toBe(2);
    expect([...groups.values()].reduce((sum, bytes) => sum + bytes, 0)).toBe(draft.layout.bytes);
    for (const { gpu, cpu, bytes } of profile.nodes) {
      expect(gpu).toBeGreaterThanOrEqual(0);
      expect(cpu).toHaveLength(2);
      expect(bytes.output).toBeGreaterThan(0);
    }
    for (const { gpu, bytes } of cells) {
      expect(gpu).toBeGreaterThan(0);
      // The step's input and, except for a layer's first cell, both states.
      expect([2 * 8 * 4, 2 * 16 * 4, 2 * 8 * 4 + 2 * 128, 2 * 16 * 4 + 2 * 128]).toContain(bytes.input);
    }
    expect(profile).toMatchObject({ activations: 'shared', unit: 'ms' });
    expect(profile.bandwidth).toBeGreaterThan(0);
    expect(profile.latency).toBeGreaterThan(0);
    expect(profile.callMs).toBeGreaterThan(0);
  });

  it('the operators of a function that the engine lacks run only on the CPU, and their outputs are copied', async () => {
    const inputs = [
      tensorOf(
        'x',
        'FP32',
        [4, 16],
        Float32Array.from({ length: 64 }, (_, index) => Math.cos(index)),
      ),
    ];
    const example = await exampleOf(folder, 'branches', withNormalizer().build(), inputs);
    const draft = await draftOf(example);
    expect(draft.crossing?.outputs).toHaveLength(1);
    expect(draft.gpu?.fused.inputs.map(({ name }) => name)).toEqual(['x', ...draft.crossing!.outputs]);
    expect(draft.gpu!.fused.launches.length).toBeLessThan(draft.gpu!.single.launches.length);
    const profile = await profileOf(draft);
    const onGpu = Object.fromEntries(profile.nodes.map(({ name, gpu }) => [name, gpu !== null]));
    expect(onGpu).toEqual({
      '/left': true,
      '/Relu': true,
      '/right': true,
      '/Normalizer': false,
      '/Add': true,
      '/Softmax': true,
      '/last': true,
    });
    expect(draft.operators.find(({ operator }) => operator === 'ai.onnx.ml.Normalizer')?.obstacle).toMatch(/\w/);
    expect(profile.edges.map(([from, to, bytes]) => [from, to, bytes])).toContainEqual(['/Normalizer', '/Add', 256]);
    const times = profile.nodes.flatMap(({ gpu }) => gpu ?? []);
    expect(times.every((ms) => ms > 0)).toBe(true);
  });

  it('the operators of a function take as long on the GPU, in total, as a run of their fused program', async () => {
    const settings = { layers: 1, input: 4, hidden: 8, sequence: 3 };
    const inputs = [noise('input', [1, 3, 4], 2)];
    const draft = await draftOf(
      await exampleOf(folder, 'primitive', unrolledNetwork('lstm', settings, 'primitive'), inputs),
    );
    await withEmulatedCuda({ devices: 1 }, async (cuda) => {
      const engine = new Engine(cuda, { hostBytes: 2 ** 24, slabBytes: 2 ** 20, gpuBytes: 2 ** 24 });
      engine.addFunction('f', draft.layout);
      await engine.stage('f');
      const found = await measureOperatorsOnGpu(engine, 'f', draft.gpu!, { gpu: 0, iterations: 3, inputs });
      const labels = new Set(draft.operators.flatMap(({ nodes }) => nodes.map(({ label }) => label)));
      expect([...found.operators.keys()].filter((label) => !labels.has(label))).toEqual([]);
      const sumMs = [...found.operators.values()].reduce((sum, ms) => sum + ms, 0);
      expect(sumMs).toBeCloseTo(found.warmMs, 6);
      expect(engine.memory()[0]).toMatchObject({ weightBytes: draft.layout.bytes, constantBytes: 0 });
      await engine.close();
    });
  });

  it('the operators of a function may all be on the CPU', async () => {
    const graph = new GraphBuilder('hardmax');
    const x = graph.input('x', ElementType.FLOAT, [2, 4]);
    graph.output(
      graph.node('Normalizer', [x], { norm: 'L2' }, { domain: 'ai.onnx.ml' }),
      ElementType.FLOAT,
      [2, 4],
      'y',
    );
    const example = await exampleOf(folder, 'hardmax', graph.build(), [noise('x', [2, 4], 1)]);
    const draft = await draftOf(example);
    expect(draft.gpu).toBeNull();
    const profile = await profileOf(draft);
    expect(profile.nodes).toMatchObject([
      { name: '/Normalizer', gpu: null, cpu: [expect.any(Number), expect.any(Number)] },
    ]);
  });
});
