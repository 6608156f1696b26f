/** Whether the GPU engine can run a model: every operator in the way, by node. Needs no GPU. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { compileModel, operators, ProgramError, type InputShapes, type Obstacle } from '../../gpu/index.ts';
import type { TensorSpec } from '../../host/index.ts';

export type GpuCoverage =
  | {
      readonly state: 'covered';
      readonly shapes: InputShapes;
      readonly layers: number;
      readonly launches: number;
      readonly weightBytes: number;
      readonly arenaBytes: number;
    }
  | { readonly state: 'uncovered'; readonly shapes: InputShapes; readonly obstacles: readonly Obstacle[] }
  | { readonly state: 'unknown'; readonly shapes: InputShapes; readonly reason: string };

/** Sizes of open dimensions: one item of a batch; an image of the usual size; a short text or series for the rest. */
const imageSize = 224;
const sequenceLength = 16;

/** Shapes to try a model with, as it leaves dimensions open. */
export function trialShapes(inputs: readonly TensorSpec[]): InputShapes {
  return Object.fromEntries(
    inputs.map(({ name, shape, dimensionNames }) => {
      const isImage = shape.length === 4;
      const sizes = shape.map((size, axis) => {
        if (size >= 0) return size;
        if (axis === 0 || /batch/i.test(dimensionNames[axis] ?? '')) return 1;
        return isImage ? imageSize : sequenceLength;
      });
      return [name, sizes];
    }),
  );
}

export async function inspectCoverage(modelPath: string, inputs: readonly TensorSpec[]): Promise<GpuCoverage> {
  const shapes = trialShapes(inputs);
  const cacheFolder = await mkdtemp(join(tmpdir(), 'turntable-coverage-'));
  try {
    const { layout, launches, arenaBytes } = await compileModel(modelPath, shapes, operators, { cacheFolder });
    const weightBytes = layout.bytes;
    return {
      state: 'covered',
      shapes,
      layers: layout.layers.length,
      launches: launches.length,
      weightBytes,
      arenaBytes,
    };
  } catch (error) {
    if (error instanceof ProgramError && error.code === 'unsupported') {
      return { state: 'uncovered', shapes, obstacles: error.obstacles };
    }
    return { state: 'unknown', shapes, reason: (error as Error).message };
  } finally {
    await rm(cacheFolder, { recursive: true, force: true });
  }
}
