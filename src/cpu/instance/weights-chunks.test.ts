import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { buildArchitecture, writeModel } from '../../onnx/index.ts';
import { writePrepared } from './session.ts';
import { cutWeights } from './weights-chunks.ts';

test('the files that 100 versions of ResNet-50 with heads of 10 classes map have at most 1.3 times the bytes of one', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'turntable-mapped-'));
  /** Of the versions so far, by content. */
  const mapped = new Map<string, number>();
  try {
    const { model } = buildArchitecture('resnet50', { classes: 10 }, 1);
    const body = model.graph.initializer.slice(0, -2);
    const added: number[] = [];
    for (const seed of [1, 2, 3]) {
      const head = buildArchitecture('resnet50', { classes: 10 }, seed).model.graph.initializer.slice(-2);
      const entry = join(folder, `entry ${seed}`);
      await mkdir(entry);
      const path = join(folder, 'model.onnx');
      await writeModel({ ...model, graph: { ...model.graph, initializer: [...body, ...head] } }, path);
      await writePrepared(path, undefined, join(entry, 'model.onnx'), 'weights.bin');
      const chunks = await cutWeights(join(entry, 'model.onnx'), join(entry, 'weights.bin'), join(folder, 'shared'));
      const own = chunks.filter(({ sha256 }) => !mapped.has(sha256));
      for (const { sha256, bytes } of own) mapped.set(sha256, bytes);
      added.push(own.reduce((sum, { bytes }) => sum + bytes, 0));
    }
    const [one, second, third] = added as [number, number, number];
    expect(one).toBeGreaterThan(90e6);
    // Each further version adds as much.
    expect([second > 0, third]).toEqual([true, second]);
    expect(one + 99 * second).toBeLessThanOrEqual(1.3 * one);
  } finally {
    await rm(folder, { recursive: true });
  }
});
