/** Runs a function's folder without a host: settings, compiled handler and model, in a CPU pool as a host has it. */
import { existsSync } from 'node:fs';
import { access, mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import {
  createCpuPools,
  type CpuPools,
  type HandlerRequest,
  type HandlerResponse,
  type InvokeOthers,
  type OtherAnswer,
  type OtherCall,
  type PoolInput,
  type PoolLimits,
  type PoolOutput,
  type PoolTimings,
} from '../cpu/index.ts';
import { readMemory } from '../hardware/index.ts';
import { describeModel, readModel } from '../onnx/index.ts';
import { typesOf } from '../operators/index.ts';
import { runInSlices, type Tensor } from '../tensor/index.ts';
import { getOrMake, given, parseDurationMs } from '../tools/index.ts';
import { HostError, toHostError } from './errors.ts';
import { decodePlain, encodePlain } from './infer/plain.ts';
import { modelSpec, type ModelSpec } from './infer/model-spec.ts';
import type { ModelMetadata } from './types.ts';
import { checkChain, checkInputs, noHandler, otherError } from './calls/invoke-others.ts';
import { compileHandler } from './store/handlers.ts';
import { readFolderSettings, type GivenSettings } from './store/index.ts';

/** What is wrong with the folder or the call, in a sentence. `status` is the one that a client of a host would get. */
export class TryError extends Error {
  override readonly name = 'TryError';
  readonly status: number | undefined;
  constructor(message: string, status?: number, options?: ErrorOptions) {
    super(message, options);
    this.status = status;
  }
}

export type TriedTimes = Pick<PoolTimings, 'preprocessMs' | 'inferMs' | 'postprocessMs'>;

export interface TriedCall {
  readonly response: HandlerResponse;
  readonly times: TriedTimes;
}

/** A function of a folder, open in this process. */
export type TriedFunction = Awaited<ReturnType<typeof openFolder>>;

/**
 * @param path of a function's folder, or of a model's file
 * @param printed is given the lines that handlers print, and the stacks of what they throw
 *
 * Nothing in the folder changes. Functions that its handler invokes are those of the folders beside it, opened on first
 * use.
 *
 * @throws TryError
 */
export async function openFolder(path: string, printed: (line: string) => void) {
  const folder = resolve(path);
  const beside = new FoldersBeside(dirname(folder), printed);
  const opened = await beside.open(basename(folder)).catch(async (error: unknown) => {
    await beside.close();
    throw error;
  });
  const call = async (request: HandlerRequest): Promise<TriedCall> => {
    if (!opened.hasHandler)
      return await plainAnswer((tensors) => beside.run(opened, tensors), opened.spec, request.body);
    const { output, timings } = await beside.invoke(opened, { kind: 'request', request }, []);
    return { response: responseOf(output), times: timings };
  };
  return {
    name: opened.name,
    modelPath: opened.modelPath,
    hasHandler: opened.hasHandler,
    metadata: opened.metadata,
    /** `example` of function.json: a text, or '@' and a path relative to the folder. */
    example: opened.settings.example,
    /** `slo` of function.json. */
    sloMs: opened.settings.slo === undefined ? undefined : parseDurationMs(opened.settings.slo),
    /** Time to compile the handler; undefined if there is none. */
    compileMs: opened.compileMs,
    loadMs: opened.loadMs,
    /** @throws TryError */
    call: async (request: HandlerRequest) => await call(request).catch(rethrown),
    close: async () => await beside.close(),
  };
}

interface OpenFolder {
  readonly name: string;
  readonly settings: GivenSettings;
  readonly modelPath: string;
  readonly metadata: ModelMetadata;
  readonly hasHandler: boolean;
  readonly spec: ModelSpec;
  readonly compileMs: number | undefined;
  readonly loadMs: number;
}

/** A step that takes longer hangs: nobody watches it while the command waits. */
const stepMsMax = 60_000;
const limits: PoolLimits = {
  instancesMin: 0,
  instancesMax: 1,
  batchMax: 1,
  batchDelayMs: 0,
  idleMs: Infinity,
  handlerTimeoutMs: stepMsMax,
  loadTimeoutMs: stepMsMax,
  inferTimeoutMs: stepMsMax,
};

/** The functions of a folder of folders, each opened once. */
class FoldersBeside {
  readonly #parent: string;
  readonly #pools: CpuPools;
  readonly #open = new Map<string, Promise<OpenFolder>>();
  /** Of compiled handlers, by function. */
  readonly #compiledDir = mkdtemp(join(tmpdir(), 'turntable-try-'));

  constructor(parent: string, printed: (line: string) => void) {
    this.#parent = parent;
    this.#pools = createCpuPools({
      cores: 1,
      blankInstances: 0,
      memoryBytes: readMemory().ownBytes,
      log: (_pid, _key, line) => printed(line),
    });
  }

  /** Rejects with {@link TryError}. */
  open(name: string): Promise<OpenFolder> {
    return getOrMake(this.#open, name, () => this.#opened(name));
  }

  async #opened(name: string): Promise<OpenFolder> {
    const folder = join(this.#parent, name);
    const isModel = (await stat(folder).catch(() => undefined))?.isFile() === true;
    const settings = isModel ? {} : await settingsOf(folder);
    const modelPath = isModel ? folder : join(folder, settings.model ?? 'model.onnx');
    await access(modelPath).catch(() => {
      throw new TryError(`the model ${modelPath} does not exist`);
    });
    const startMs = performance.now();
    const into = await mkdtemp(join(await this.#compiledDir, 'handler-'));
    const handlerPath = settings.handler === undefined ? undefined : await compiled(folder, settings.handler, into);
    const compileMs = handlerPath === undefined ? undefined : performance.now() - startMs;
    try {
      const metadata = describeModel(await readModel(modelPath), typesOf);
      const inputNames = metadata.inputs.map((input) => input.name);
      const parts = given({ handlerPath, opening: metadata.opening });
      this.#pools.register({ key: name, modelPath, threads: 1, inputNames, ...parts }, limits);
      const loadStartMs = performance.now();
      await this.#pools.load(name);
      const loadMs = performance.now() - loadStartMs;
      const hasHandler = handlerPath !== undefined;
      return { name, settings, modelPath, metadata, hasHandler, spec: modelSpec(metadata), compileMs, loadMs };
    } catch (error) {
      throw new TryError(`${name} cannot be loaded: ${(error as Error).message}`, undefined, { cause: error });
    }
  }

  /** @param waiting the functions that wait for the answer, the outermost first */
  async invoke({ name }: OpenFolder, input: PoolInput, waiting: readonly string[]) {
    return await this.#pools.invoke(name, input, { invokeOthers: this.#othersFor([...waiting, name]) });
  }

  /** The model alone. */
  async run(opened: OpenFolder, tensors: readonly Tensor[]) {
    const { output, timings } = await this.invoke(opened, { kind: 'tensors', tensors }, []);
    return { tensors: output.kind === 'tensors' ? output.tensors : [], inferMs: timings.inferMs };
  }

  /** Answers the calls of the last of these functions, for which the others wait. */
  #othersFor(chain: readonly string[]): InvokeOthers {
    return (calls) =>
      Promise.all(
        calls.map((call) =>
          this.#answer(chain, call).catch((error: unknown) => otherError(chain.at(-1)!, call.name, error)),
        ),
      );
  }

  async #answer(chain: readonly string[], call: OtherCall): Promise<OtherAnswer> {
    const { name, input } = call;
    checkChain(chain, call);
    const folder = join(this.#parent, name);
    const isThere = basename(folder) === name && existsSync(join(folder, 'function.json'));
    if (!isThere) {
      const problem = `it has no folder in ${this.#parent}, where a function that is tried out finds others`;
      throw new HostError('unknown-function', problem);
    }
    const opened = await this.open(name);
    if (input.kind === 'tensors') checkInputs(opened.spec, input.tensors);
    else if (!opened.hasHandler) throw noHandler();
    return (await this.invoke(opened, input, chain)).output;
  }

  async close(): Promise<void> {
    await this.#pools.stop(0);
    await rm(await this.#compiledDir, { recursive: true, force: true });
  }
}

function responseOf(output: PoolOutput): HandlerResponse {
  if (output.kind === 'response') return output.response;
  throw new TypeError('a handler answers with a response');
}

/** A call of a function without a handler, as a host handles it. */
async function plainAnswer(
  run: (tensors: readonly Tensor[]) => ReturnType<FoldersBeside['run']>,
  spec: ModelSpec,
  body: Uint8Array,
): Promise<TriedCall> {
  const startMs = performance.now();
  const { tensors, form } = await runInSlices(decodePlain(Buffer.from(body), spec));
  const preprocessMs = performance.now() - startMs;
  const { tensors: outputs, inferMs } = await run(tensors);
  const outputsMs = performance.now();
  const parts = await runInSlices(encodePlain(form, outputs));
  const reply = Buffer.concat(parts.map((part) => (typeof part === 'string' ? Buffer.from(part) : part)));
  return {
    response: { status: 200, headers: { 'content-type': 'application/json' }, body: reply },
    times: { preprocessMs, inferMs, postprocessMs: performance.now() - outputsMs },
  };
}

async function settingsOf(folder: string): Promise<GivenSettings> {
  const path = join(folder, 'function.json');
  try {
    return readFolderSettings(await readFile(path, 'utf8'));
  } catch (error) {
    const problem = error instanceof HostError ? '' : ' cannot be read';
    throw new TryError(`${path}${problem}: ${(error as Error).message}`, undefined, { cause: error });
  }
}

async function compiled(folder: string, handler: string, into: string): Promise<string> {
  const outcome = await compileHandler({ functionName: 'tried', functionFolder: folder, handler }, into);
  switch (outcome.status) {
    case 'compiled':
      return outcome.path;
    case 'broken':
      throw new TryError(outcome.reason);
    case 'none':
      throw new TryError(`there is no handler '${handler}'`);
  }
}

/** The error of a call's step, as a client of a host would get it. */
function rethrown(error: unknown): never {
  const { message, status } = toHostError(error);
  throw new TryError(message, status, { cause: error });
}
