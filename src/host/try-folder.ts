/** Runs a function's folder without a host: settings, compiled handler and model, in this process. */
import { existsSync } from 'node:fs';
import { access, mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import {
  loadInProcess,
  type FunctionInProcess,
  type HandlerRequest,
  type HandlerResponse,
  type InvokeOthers,
  type OtherAnswer,
  type OtherCall,
} from '../cpu/index.ts';
import { describeModel, readModel } from '../onnx/index.ts';
import { runInSlices } from '../tensor/index.ts';
import { parseDurationMs } from '../tools/index.ts';
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
export type TriedFunction = Awaited<ReturnType<typeof openFolder>>;

/**
 * @param path of a function's folder, or of a model's file.
 *
 * Nothing in the folder changes. Functions that its handler invokes are those of the folders beside it, opened on first
 * use.
 *
 * @throws TryError
 */
export async function openFolder(path: string) {
  const folder = resolve(path);
  const beside = new FoldersBeside(dirname(folder));
  const opened = await beside.open(basename(folder));
  const call = async (request: HandlerRequest): Promise<TriedCall> =>
    opened.hasHandler
      ? await opened.inProcess.answer(request, beside.for([opened.name]), () => beside.nowMs())
      : await plainAnswer(opened.inProcess, opened.spec, request.body);
  return {
    name: opened.name,
    modelPath: opened.modelPath,
    hasHandler: opened.hasHandler,
    metadata: opened.metadata,
    /** `example` of function.json: a text, or '@' and a path relative to the folder. */
    example: opened.given.example,
    /** `slo` of function.json. */
    sloMs: opened.given.slo === undefined ? undefined : parseDurationMs(opened.given.slo),
    /** Time to compile the handler; undefined if there is none. */
    compileMs: opened.compileMs,
    loadMs: opened.inProcess.loadMs,
    /** @throws TryError */
    call: async (request: HandlerRequest) => await call(request).catch(rethrown),
    close: async () => await beside.close(),
  };
}

interface OpenFolder {
  readonly name: string;
  readonly given: GivenSettings;
  readonly modelPath: string;
  readonly metadata: ModelMetadata;
  readonly inProcess: FunctionInProcess;
  readonly hasHandler: boolean;
  /** Read when first asked for. */
  readonly spec: ModelSpec;
  readonly compileMs: number | undefined;
  close(): Promise<void>;
}

/** The functions of a folder of folders, each opened once. */
class FoldersBeside {
  readonly #parent: string;
  readonly #open = new Map<string, Promise<OpenFolder>>();
  /** They are opened one after the other. */
  #turn: Promise<unknown> = Promise.resolve();
  #openMs = 0;
  #openSinceMs: number | undefined;

  constructor(parent: string) {
    this.#parent = parent;
  }

  /** A clock that stops while a function is being opened: a host would have it ready. */
  nowMs(): number {
    return (this.#openSinceMs ?? performance.now()) - this.#openMs;
  }

  /** Rejects with {@link TryError}. */
  open(name: string): Promise<OpenFolder> {
    let opening = this.#open.get(name);
    if (opening === undefined) {
      opening = this.#turn.then(async () => {
        const startMs = (this.#openSinceMs = performance.now());
        try {
          return await openOne(join(this.#parent, name));
        } finally {
          this.#openMs += performance.now() - startMs;
          this.#openSinceMs = undefined;
        }
      });
      this.#open.set(name, opening);
      this.#turn = opening.catch(() => undefined);
    }
    return opening;
  }

  /** Answers the calls of the last of these functions, for which the others wait. */
  for(chain: readonly string[]): InvokeOthers {
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
    const { inProcess, hasHandler, spec } = await this.open(name);
    if (input.kind === 'tensors') {
      checkInputs(spec, input.tensors);
      return { kind: 'tensors', tensors: await inProcess.run(input.tensors) };
    }
    if (!hasHandler) throw noHandler();
    const { response } = await inProcess.answer(input.request, this.for([...chain, name]), () => this.nowMs());
    return { kind: 'response', response };
  }

  async close(): Promise<void> {
    const opened = await Promise.allSettled(this.#open.values());
    for (const each of opened) if (each.status === 'fulfilled') await each.value.close();
  }
}

/** Rejects with {@link TryError}. */
async function openOne(folder: string): Promise<OpenFolder> {
  const name = basename(folder);
  const isModel = (await stat(folder).catch(() => undefined))?.isFile() === true;
  const given = isModel ? {} : await settingsOf(folder);
  const modelPath = isModel ? folder : join(folder, given.model ?? 'model.onnx');
  await access(modelPath).catch(() => {
    throw new TryError(`the model ${modelPath} does not exist`);
  });
  // Node looks for packages from a module's folder upwards: the compiled handler must lie where it finds none.
  const compiledDir = await mkdtemp(join(tmpdir(), 'turntable-try-'));
  const remove = async (): Promise<void> => await rm(compiledDir, { recursive: true, force: true });
  try {
    const startMs = performance.now();
    const handlerPath = given.handler === undefined ? undefined : await compiled(folder, given.handler, compiledDir);
    const compileMs = handlerPath === undefined ? undefined : performance.now() - startMs;
    const { FunctionInProcess } = await loadInProcess();
    const [metadata, inProcess] = await described(modelPath)
      .then(async (found) => [found, await FunctionInProcess.open(modelPath, handlerPath, found.opening)] as const)
      .catch((error: unknown) => {
        throw new TryError(`${name} cannot be loaded: ${(error as Error).message}`, undefined, { cause: error });
      });
    const close = async (): Promise<void> => {
      inProcess.release();
      await remove();
    };
    const spec = modelSpec(metadata);
    return {
      name,
      given,
      modelPath,
      metadata,
      inProcess,
      hasHandler: handlerPath !== undefined,
      spec,
      compileMs,
      close,
    };
  } catch (error) {
    await remove();
    throw error;
  }
}

const described = async (modelPath: string): Promise<ModelMetadata> => describeModel(await readModel(modelPath));

/** A call of a function without a handler, as a host handles it. */
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
