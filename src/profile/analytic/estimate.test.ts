import { describe, expect, it } from 'vitest';
import { loadMachine } from '../../hardware/index.ts';
import { buildArchitecture, ElementType, GraphBuilder } from '../../onnx/index.ts';
import { namedModel } from '../named-models.ts';
import { estimateLayers } from './estimate.ts';

const machine = loadMachine('p3.8xlarge');
const { hostRead } = machine.costs!;
const estimate = (name: string) => {
  const { model, dimensions } = namedModel(name);
  return estimateLayers(model, machine, { dimensions }).profile.layers;
};
/** PCIe reads of 64 bytes, as the paper counts them (Table 1). */
const reads = (ms: number, gigabytesPerSecond: number): number => (ms * gigabytesPerSecond * 1e6) / 64;

/** Looks up rows in a table [1000, 32]; with `head`, also multiplies them with the whole table. */
const tied = (head: boolean) => {
  const graph = new GraphBuilder('tied');
  const ids = graph.input('ids', ElementType.INT64, [1, 64]);
  const table = graph.weight('table', [1000, 32], new Float32Array(32_000));
  const x = graph.node('Gather', [table, ids]);
  const rows = graph.node('Reshape', [x, graph.constant({ ints: [64, 32] })]);
  const y = head ? graph.node('Gemm', [rows, table], { transB: 1 }) : rows;
  graph.output(y, ElementType.FLOAT, head ? [64, 1000] : [64, 32]);
  return estimateLayers(graph.build(), machine).profile.layers;
};

describe('an estimate', () => {
  it('an estimate for BERT-Base has the PCIe reads that the paper counted', () => {
    const layers = estimate('bert-base');
    const cost = (name: string) => layers.find((layer) => layer.name === name)!;
    // Table 1: 18,459 and 18,267 reads by the large and the medium embedding, 446,276 by a small linear layer.
    const words = cost('embeddings.word_embeddings').cost!;
    expect(reads(words.hostRead, hostRead.rowsGBps) / 18_459).toBeCloseTo(1, 2);
    const positions = cost('embeddings.position_embeddings').cost!;
    expect(reads(positions.hostRead, hostRead.rowsGBps) / 18_267).toBeCloseTo(1, 1);
    const query = cost('encoder.layer.0.attention.self.query').cost!;
    expect(reads(query.hostRead, hostRead.linkGBps) / 446_276).toBeCloseTo(1, 1);
    const wide = cost('encoder.layer.0.intermediate.dense').cost!;
    expect(reads(wide.hostRead, hostRead.linkGBps) / 1_765_787).toBeCloseTo(1, 1);
  });

  it.each([
    ['bert-base', 102, 101, 437.93],
    ['bert-large', 198, 197, 1340.57],
    ['roberta-base', 102, 101, 498.58],
    ['roberta-large', 198, 197, 1421.44],
    ['gpt2', 75, 75, 497.76],
    ['gpt2-medium', 147, 147, 1419.29],
    ['resnet50', 158, 107, 102.44],
    ['resnet101', 311, 209, 178.62],
  ])(
    'an estimate of %s has the layers that the paper plans: %i, of them %i with weights, %f MB',
    (name, count, weighted, mb) => {
      const layers = estimate(name);
      expect(layers).toHaveLength(count);
      expect(layers.filter(({ bytes }) => bytes > 0)).toHaveLength(weighted);
      expect(layers.reduce((sum, { bytes }) => sum + bytes, 0) / 1e6).toBeCloseTo(mb, 1);
    },
  );

  it('an estimate is consistent: layers without weights cost the same anywhere, the others no less from host memory', () => {
    for (const name of ['bert-base', 'gpt2', 'resnet50', 'mobilenet-v2', 'lstm']) {
      for (const { bytes, load, exec, dha, cost } of estimate(name)) {
        expect(cost!.tensorBytes.reduce((sum, size) => sum + size, 0)).toBeGreaterThanOrEqual(bytes);
        expect(bytes > 0).toBe(load > 0);
        expect(dha >= exec).toBe(true);
        expect(bytes === 0 && dha > exec).toBe(false);
        expect([load, exec, dha].every((ms) => Number.isFinite(ms) && ms >= 0)).toBe(true);
      }
    }
  });

  it('grows with the batch', () => {
    const { model } = buildArchitecture('resnet50');
    const total = (batch: number): number =>
      estimateLayers(model, machine, { dimensions: { batch } }).profile.layers.reduce(
        (sum, { cost }) => sum + cost!.gpu + cost!.operators.gpu,
        0,
      );
    expect(total(8)).toBeGreaterThan(2 * total(1));
    expect(total(8)).toBeLessThan(8 * total(1));
  });

  it('charges a table that is also the output layer for both uses', () => {
    const [alone] = tied(false);
    const [shared, head] = tied(true);
    expect(head).toMatchObject({ bytes: 0, load: 0 });
    // 64 rows read the 128 KB twice.
    const more = (2 * 128_000) / (hostRead.linkGBps * 1e6);
    expect(shared!.cost!.hostRead - alone!.cost!.hostRead).toBeCloseTo(more, 6);
  });

  it('an estimate in 16 bits holds, loads and reads half of the bytes, and is executed in the same time', () => {
    const { model, dimensions } = namedModel('bert-base');
    const layersIn = (weightBits: 16 | 32) => estimateLayers(model, machine, { dimensions, weightBits }).profile.layers;
    const wide = layersIn(32);
    for (const [index, half] of layersIn(16).entries()) {
      const whole = wide[index]!;
      expect([half.bytes, half.exec]).toEqual([whole.bytes / 2, whole.exec]);
      expect(half.cost!.hostRead).toBeCloseTo(whole.cost!.hostRead / 2, 9);
      expect(half.load < whole.load).toBe(whole.bytes > 0);
    }
  });

  it('an estimate with coding moves fewer bytes of all but tables and small layers, and is slowed by less than 3%', () => {
    const { model, dimensions } = namedModel('bert-base');
    const plain = estimate('bert-base');
    for (const [index, layer] of estimateLayers(model, machine, {
      dimensions,
      coding: true,
    }).profile.layers.entries()) {
      const before = plain[index]!;
      const isCoded = layer.kind === 'linear' && layer.bytes > 2_000_000;
      expect([layer.name, layer.coded !== undefined, layer.bytes]).toEqual([before.name, isCoded, before.bytes]);
      expect(layer.exec).toBeGreaterThanOrEqual(before.exec);
      expect(layer.exec).toBeLessThan(1.03 * before.exec);
      const { bytes, decode } = layer.coded ?? { bytes: layer.bytes, decode: 0 };
      expect(bytes / Math.max(1, layer.bytes)).toBeCloseTo(isCoded ? 0.84 : Math.min(1, layer.bytes), 6);
      expect(layer.cost!.tensorBytes.reduce((sum, each) => sum + each, 0)).toBeCloseTo(bytes, 0);
      // The link saves more than the launch that decodes takes.
      expect(before.load - layer.load > machine.gpus[0]!.kernelUs / 1000).toBe(isCoded);
      expect(decode).toBeLessThanOrEqual(layer.load);
    }
  });

  it('an estimate counts an exact GELU as one kernel', () => {
    const layers = estimate('bert-base');
    expect(layers.find(({ name }) => name === 'encoder.layer.3.intermediate.dense')!.cost!.operators.count).toBe(1);
  });

  it('an estimate names the nodes that it could not estimate', () => {
    const graph = new GraphBuilder('custom');
    const x = graph.input('x', ElementType.FLOAT, [1, 4]);
    const made = graph.node('Mystery', [x], {}, { name: 'riddle', domain: 'com.example' });
    graph.output(made, ElementType.FLOAT, [], 'y');
    const model = graph.build();
    delete model.graph.output[0]!.type!.tensorType!.shape;
    expect(estimateLayers(model, machine).unknown).toEqual(['/riddle']);
  });

  it('an estimate refuses a machine without GPUs, and an unknown name', () => {
    const { model } = namedModel('mlp');
    expect(() => estimateLayers(model, loadMachine('cpu-16'))).toThrow("machine 'cpu-16' has no GPU 0");
    expect(() => namedModel('bert')).toThrow("there is no model 'bert'; there are bert-base");
  });
});
