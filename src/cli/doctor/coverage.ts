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

/** @param trials shapes to try for the inputs: the first with which ONNX Runtime accepts the graph decides */
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

/** The coverage for one choice of sizes; it is unknown if ONNX Runtime refuses the graph with these. */
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
      /** How an answer of this machine's first GPU compares with ONNX Runtime's; undefined without a GPU. */
      check: await checkOnGpu(modelPath, program, shapes, cacheFolder, environment),
    };
  } catch (error) {
    if (error instanceof ProgramError && error.code === 'unsupported') {
      return { state: 'uncovered' as const, shapes, obstacles: error.obstacles };
    }
    return { state: 'unknown' as const, shapes, reason: (error as Error).message };
  }
}

/** Pinned memory for inputs, outputs and copies, in addition to that for the weights. */
const stagingBytes = 2 ** 26;

/** Runs the program once, as the host does before it serves. If the GPU process cannot start, there is no GPU. */
async function checkOnGpu(
  modelPath: string,
  program: Program,
  shapes: InputShapes,
  cacheFolder: string,
  environment: Readonly<Record<string, string>>,
): Promise<GpuCheck | undefined> {
  const hostBytes = program.layout.bytes + stagingBytes;
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
