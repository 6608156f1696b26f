/** Writes a function folder around an architecture with seeded weights. */
import { randomBytes } from 'node:crypto';
import { mkdir, readdir, rename, rm, statfs, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ArchitectureError, buildArchitecture, writeModel, type BuiltModel, type ModelProto } from '../onnx/index.ts';
import { CliError, spoken, commandError } from './error.ts';
import { Interruption } from './interruption.ts';
import { exists, formatBytes, given, makeFolders } from '../tools/index.ts';
import { startBytesProgress } from './progress.ts';

const modelFile = 'model.onnx';
const dataFile = `${modelFile}.data`;
const settingsFile = 'function.json';

export interface MakeRequest {
  readonly architecture: string;
  readonly description: string;
  /** The function's folder; made when it does not exist. */
  readonly outDir: string;
  readonly seed: number;
  /** As text, by name. */
  readonly settings: Readonly<Record<string, string>>;
  /** Weights beside the model, whatever its size. */
  readonly external: boolean;
  /** Whether a model that stands there may be overwritten. */
  readonly force: boolean;
  /** Latency objective for function.json, such as "100ms"; the host's default when absent. */
  readonly slo: string | undefined;
}

/**
 * Files appear whole: they are written in a hidden folder inside `outDir` and renamed. An interrupted call leaves the
 * files from before, or no model if it had begun to replace them; never a model with the weights of another.
 *
 * @throws CliError for an unknown architecture or setting, a model that stands there already, or a lack of disk space.
 */
export async function makeFunction(request: MakeRequest) {
  const startedMs = performance.now();
  const { outDir, external, force } = request;
  const built = build(request);
  const modelPath = join(outDir, modelFile);
  const dataPath = join(outDir, dataFile);
  const settingsPath = join(outDir, settingsFile);
  if (!force) {
    for (const path of [modelPath, dataPath]) {
      if (await exists(path)) throw new CliError(`${path} exists already; --force overwrites it`);
    }
  }
  await makeFolders(outDir).catch((error: unknown) => {
    throw commandError(`the folder ${outDir} cannot be made`, error);
  });
  await checkSpace(outDir, built.weightBytes);
  await removeAbandoned(outDir);
  const stagingDir = join(outDir, `.make-${process.pid}-${randomBytes(6).toString('hex')}`);
  const interruption = new Interruption();
  const { signal: interrupting } = interruption;
  const throwIfInterrupted = (): void => {
    if (interrupting.aborted) throw new CliError(`interrupted by ${String(interrupting.reason)}`);
  };
  const progress = startBytesProgress(`making ${request.architecture}`, built.weightBytes);
  try {
    await mkdir(stagingDir);
    const model = reporting(built.model, (doneBytes) => {
      throwIfInterrupted();
      progress.update(doneBytes);
    });
    const externalData = external ? 'always' : 'auto';
    const written = await writeModel(model, join(stagingDir, modelFile), { externalData });
    throwIfInterrupted();
    const hasData = written.externalPath !== undefined;
    // With data in a file of its own the switch takes two steps, between which the old model must not find new weights.
    if (hasData || (await exists(dataPath))) await rm(modelPath, { force: true });
    if (hasData) await rename(join(stagingDir, dataFile), dataPath);
    else await rm(dataPath, { force: true });
    await rename(join(stagingDir, modelFile), modelPath);
    // Last: a folder with settings counts as a function that can serve.
    const settingsWritten = !(await exists(settingsPath));
    if (settingsWritten) {
      await writeFile(join(stagingDir, settingsFile), settingsText(request, built));
      await rename(join(stagingDir, settingsFile), settingsPath);
    }
    return {
      modelPath,
      /** Undefined when the weights are in the model file. */
      dataPath: hasData ? dataPath : undefined,
      settingsPath,
      /** False when a function.json stood there already: it may hold an operator's settings, and was kept. */
      settingsWritten,
      parameterCount: built.parameterCount,
      fileBytes: written.modelBytes + written.externalBytes,
      elapsedMs: performance.now() - startedMs,
    };
  } finally {
    progress[Symbol.dispose]();
    await rm(stagingDir, { recursive: true, force: true });
    interruption[Symbol.dispose]();
    // Only now, since removing files from within the signal would race the writes that other threads have under way.
    if (interrupting.aborted) process.kill(process.pid, interrupting.reason as NodeJS.Signals);
  }
}

function build({ architecture, settings, seed }: MakeRequest): BuiltModel {
  return spoken([ArchitectureError], () => buildArchitecture(architecture, settings, seed));
}

/** The same model, telling how many bytes of weights have been made each time the writer has asked for some. */
function reporting(model: ModelProto, update: (doneBytes: number) => void): ModelProto {
  let doneBytes = 0;
  const initializer = model.graph.initializer.map((tensor) => {
    const { source } = tensor;
    if (source === undefined) return tensor;
    return {
      ...tensor,
      source: () => {
        const bytes = source();
        doneBytes += bytes.byteLength;
        update(doneBytes);
        return bytes;
      },
    };
  });
  return { ...model, graph: { ...model.graph, initializer } };
}

function settingsText({ architecture, description, seed, settings, slo }: MakeRequest, built: BuiltModel): string {
  const chosen = Object.entries(settings).map(([name, value]) => `${name}=${value}`);
  const made = [`${architecture} made with random weights, seed ${seed}`, ...chosen].join(', ');
  // Nothing can be added to a batch of fixed size.
  const batching = Number(built.settings['batch'] ?? 0) > 0 ? { batching: { max: 1 } } : {};
  const content = {
    description: `${description} (${made})`.slice(0, 1000),
    model: modelFile,
    ...given({ slo }),
    ...batching,
  };
  return `${JSON.stringify(content, undefined, 2)}\n`;
}

/** A killed call may have left gigabytes behind. The folders of calls that still run are kept. */
async function removeAbandoned(outDir: string): Promise<void> {
  for (const name of await readdir(outDir)) {
    const [, pid] = /^\.make-(\d+)-[0-9a-f]{12}$/.exec(name) ?? [];
    if (pid !== undefined && !isRunning(Number(pid))) await rm(join(outDir, name), { recursive: true, force: true });
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}

/** Checked before the files are written, which may take a minute. */
async function checkSpace(folder: string, weightBytes: number): Promise<void> {
  const { bavail, bsize } = await statfs(folder);
  const freeBytes = bavail * bsize;
  if (weightBytes > freeBytes) {
    throw new CliError(
      `the model takes ${formatBytes(weightBytes)}, but only ${formatBytes(freeBytes)} are free where ${folder} is`,
    );
  }
}
