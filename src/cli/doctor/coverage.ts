/** Whether the GPU engine can run a model: which operators prevent it and, with a GPU, a check of its answer. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import {
  compileModel,
  loadAllPlan,
  operators,
  ProgramError,
  startGpuProcess,
  type GpuCheck,
  type InputShapes,
  type Program,
} from '../../gpu/index.ts';

export type GpuCoverage = Awaited<ReturnType<typeof coverageFor>>;

export interface CoverageOptions {
  /** Added to the GPU process's environment: where the driver's libraries are. */
  readonly environment?: Readonly<Record<string, string>>;
}

/** @param trials shapes of the inputs: the first for which ONNX Runtime accepts the graph counts */
export async function inspectCoverage(
  modelPath: string,
  trials: readonly InputShapes[],
  { environment = {} }: CoverageOptions = {},
): Promise<GpuCoverage> {
  const cacheFolder = await mkdtemp(join(tmpdir(), 'turntable-coverage-'));
  try {
    let refused: GpuCoverage | undefined;
    for (const shapes of trials) {
      const found = await coverageFor(modelPath, shapes, cacheFolder, environment);
      if (found.state !== 'unknown') return found;
      refused ??= found;
    }
    return refused!;
  } finally {
    await rm(cacheFolder, { recursive: true, force: true });
  }
}

/** For one choice of sizes; unknown if ONNX Runtime refuses the graph with them. */
async function coverageFor(
  modelPath: string,
  shapes: InputShapes,
  cacheFolder: string,
  environment: Readonly<Record<string, string>>,
) {
  try {
    const program = await compileModel(modelPath, shapes, operators, { cacheFolder });
    const { layout, launches, arenaBytes } = program;
    const weightBytes = layout.bytes;
    return {
      state: 'covered' as const,
      shapes,
      layers: layout.layers.length,
      launches: launches.length,
      weightBytes,
      arenaBytes,
      /** What a run on this machine's first GPU gave, beside ONNX Runtime's; undefined where there is no GPU. */
      check: await checkOnGpu(modelPath, program, shapes, cacheFolder, environment),
    };
  } catch (error) {
    if (error instanceof ProgramError && error.code === 'unsupported') {
      return { state: 'uncovered' as const, shapes, obstacles: error.obstacles };
    }
    return { state: 'unknown' as const, shapes, reason: (error as Error).message };
  }
}

/** Pinned memory besides that for the weights. */
const besideWeightsBytes = 2 ** 26;

/** Runs the program once, as the host does before it serves. Where the GPU process cannot start there is no GPU. */
async function checkOnGpu(
  modelPath: string,
  program: Program,
  shapes: InputShapes,
  cacheFolder: string,
  environment: Readonly<Record<string, string>>,
): Promise<GpuCheck | undefined> {
  const hostBytes = program.layout.bytes + besideWeightsBytes;
  const client = startGpuProcess({ hostBytes, cacheFolder, environment, log: () => undefined });
  try {
    await client.ready;
  } catch {
    await client.stop();
    return undefined;
  }
  try {
    const key = 'doctor@1';
    await client.register({ key, modelPath: resolve(modelPath), shapes });
    return await client.check(key, { gpu: 0, plan: loadAllPlan(program, 0) });
  } catch (error) {
    return { kind: 'undecided', why: (error as Error).message };
  } finally {
    await client.stop();
  }
}
