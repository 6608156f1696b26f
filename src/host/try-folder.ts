/** A function's folder without a host: the settings, the compiled handler and the model, run in this process. */
import { access, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { loadInProcess, type FunctionInProcess, type HandlerRequest, type HandlerResponse } from '../cpu/index.ts';
import { describeModel, readModel } from '../onnx/index.ts';
import { runInSlices } from '../tensor/index.ts';
import { HostError, toHostError } from './errors.ts';
import { decodePlain, encodePlain } from './infer/plain.ts';
import { modelSpec, type ModelSpec } from './infer/model-spec.ts';
import { compileHandler } from './store/handlers.ts';
import { parseDurationMs, parseFolderSettings, type GivenSettings } from './store/index.ts';

/** What went wrong with the folder or the call, in a sentence. `status` is what a client of a host would get. */
export class TryError extends Error {
  override readonly name = 'TryError';
  readonly status: number | undefined;
  constructor(message: string, status?: number, options?: ErrorOptions) {
    super(message, options);
    this.status = status;
  }
}

export interface TriedTimes {
  readonly preprocessMs: number;
  readonly inferMs: number;
  readonly postprocessMs: number;
}

export interface TriedCall {
  readonly response: HandlerResponse;
  readonly times: TriedTimes;
}

/** A function of a folder, open in this process. */
export interface TriedFunction {
  readonly name: string;
  /** `example` of function.json: a text, or '@' and a path relative to the folder. */
  readonly example: string | undefined;
  /** `slo` of function.json. */
  readonly sloMs: number | undefined;
  /** Of the handler; undefined where there is none. */
  readonly compileMs: number | undefined;
  readonly loadMs: number;
  /** @throws TryError */
  call(request: HandlerRequest): Promise<TriedCall>;
  close(): Promise<void>;
}

/**
 * Nothing of the folder changes.
 *
 * @throws TryError
 */
export async function openFolder(path: string): Promise<TriedFunction> {
  const folder = resolve(path);
  const given = await settingsOf(folder);
  const modelPath = join(folder, given.model ?? 'model.onnx');
  await access(modelPath).catch(() => {
    throw new TryError(`the model ${modelPath} does not exist`);
  });
  // Node looks for packages from where a module is: the compiled handler must lie where nothing else is found.
  const compiledDir = await mkdtemp(join(tmpdir(), 'turntable-try-'));
  try {
    const startMs = performance.now();
    const handlerPath = given.handler === undefined ? undefined : await compiled(folder, given.handler, compiledDir);
    const compileMs = handlerPath === undefined ? undefined : performance.now() - startMs;
    const { FunctionInProcess } = await loadInProcess();
    const opened = await FunctionInProcess.open(modelPath, handlerPath).catch((error: unknown) => {
      throw new TryError(`${basename(folder)} cannot be loaded: ${(error as Error).message}`, undefined, {
        cause: error,
      });
    });
    const spec = handlerPath === undefined ? modelSpec(describeModel(await readModel(modelPath))) : undefined;
    const call = async (request: HandlerRequest): Promise<TriedCall> =>
      spec === undefined ? await opened.answer(request) : await plainAnswer(opened, spec, request.body);
    return {
      name: basename(folder),
      example: given.example,
      sloMs: given.slo === undefined ? undefined : parseDurationMs(given.slo),
      compileMs,
      loadMs: opened.loadMs,
      call: async (request) => await call(request).catch(rethrown),
      async close() {
        await opened.release();
        await rm(compiledDir, { recursive: true, force: true });
      },
    };
  } catch (error) {
    await rm(compiledDir, { recursive: true, force: true });
    throw error;
  }
}

/** A call of a function without a handler, as a host takes it. */
async function plainAnswer(opened: FunctionInProcess, spec: ModelSpec, body: Uint8Array): Promise<TriedCall> {
  const startMs = performance.now();
  const { tensors, form } = await runInSlices(decodePlain(Buffer.from(body), spec));
  const inferStartMs = performance.now();
  const outputs = await opened.run(tensors);
  const inferEndMs = performance.now();
  const parts = await runInSlices(encodePlain(form, outputs));
  const reply = Buffer.concat(parts.map((part) => (typeof part === 'string' ? Buffer.from(part) : part)));
  return {
    response: { status: 200, headers: { 'content-type': 'application/json' }, body: reply },
    times: {
      preprocessMs: inferStartMs - startMs,
      inferMs: inferEndMs - inferStartMs,
      postprocessMs: performance.now() - inferEndMs,
    },
  };
}

async function settingsOf(folder: string): Promise<GivenSettings> {
  const path = join(folder, 'function.json');
  let json: unknown;
  try {
    json = JSON.parse((await readFile(path, 'utf8')).replace(/^\uFEFF/, ''));
  } catch (error) {
    const problem = error instanceof SyntaxError ? 'is not JSON' : 'cannot be read';
    throw new TryError(`${path} ${problem}: ${(error as Error).message}`, undefined, { cause: error });
  }
  try {
    return parseFolderSettings(json);
  } catch (error) {
    if (!(error instanceof HostError)) throw error;
    throw new TryError(`${path}: ${error.message}`, undefined, { cause: error });
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

/** What a step of a call threw, as a client of a host would be told. */
function rethrown(error: unknown): never {
  const { message, status } = toHostError(error);
  throw new TryError(message, status, { cause: error });
}
