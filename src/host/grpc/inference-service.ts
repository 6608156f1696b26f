/** `inference.GRPCInferenceService`: every method does the same as its HTTP path. */
import { setMaxListeners } from 'node:events';
import type { ServerDuplexStream, ServerUnaryCall, ServiceError, UntypedServiceImplementation } from '@grpc/grpc-js';
import { admitted, refuseWhileDraining } from '../access/access.ts';
import type { BeforeCall } from '../calls/open-calls.ts';
import { toHostError } from '../errors.ts';
import { oipMetadata, repositoryIndex, tritonConfig } from '../http/describe.ts';
import { unlessRemoved, versionChosen } from '../http/call-routes.ts';
import { sloAsked } from '../http/exchange.ts';
import { versionNamed } from '../http/host-context.ts';
import { loadRequestOf } from '../http/load-body.ts';
import { loadFunction, unloadFunction } from '../http/repository.ts';
import { serverMetadata, statisticsView } from '../http/model-routes.ts';
import { pushInvocationHeaders, runInfer, type HeaderList } from '../calls/infer.ts';
import { bytesIn } from '../infer/answer.ts';
import { specOf } from '../infer/model-spec.ts';
import type { FunctionVersion } from '../types.ts';
import { allVersions } from '../rollout/versions.ts';
import {
  account,
  asking,
  CallerSignal,
  deadlineInMs,
  forScope,
  metadataOf,
  metadataText,
  modelId,
  unary,
} from './call.ts';
import type { CallLike, GrpcContext } from './call.ts';
import { guardedCall } from './guarded-call.ts';
import { decodeInferMessage, encodeInferMessage } from './infer-message.ts';
import { headBytes } from './long-reply.ts';
import type { ModelInferRequest, ModelInferResponse } from './messages.ts';
import { serviceError } from './status.ts';

interface Named {
  readonly name?: string;
  readonly version?: string;
}

interface RepositoryRequest {
  readonly model_name?: string;
  readonly parameters?: Readonly<Record<string, { readonly string_param?: string; readonly bytes_param?: Buffer }>>;
}

export function inferenceService(context: GrpcContext): UntypedServiceImplementation {
  const asked = ({ name = '', version = '' }: Named): FunctionVersion =>
    versionNamed(context, name, version === '' ? undefined : version);
  return {
    ServerLive: unary(context, 'ServerLive', 'open', () => ({ live: true })),
    ServerReady: unary(context, 'ServerReady', 'open', () => ({ ready: context.lifecycle.phase === 'ready' })),
    ServerMetadata: unary(context, 'ServerMetadata', 'open', () => serverMetadata(context)),
    // An unknown model is not ready, and that is no error, as in Triton.
    ModelReady: unary(context, 'ModelReady', 'read', ({ name = '', version = '' }: Named) => {
      const found = context.store.find(name, version === '' ? undefined : version);
      return {
        ready:
          context.lifecycle.phase !== 'draining' &&
          found?.state.status === 'ready' &&
          context.invoker.outOfService.why(found) === undefined,
      };
    }),
    ModelMetadata: unary(context, 'ModelMetadata', 'read', (request: Named) =>
      oipMetadata(context.store, asked(request)),
    ),
    ModelConfig: unary(context, 'ModelConfig', 'read', (request: Named) => ({
      config: tritonConfig(asked(request), context.config),
    })),
    ModelStatistics: unary(context, 'ModelStatistics', 'read', ({ name = '', version = '' }: Named) =>
      statisticsView(context, versionsFor(context, name, version)),
    ),
    RepositoryIndex: unary(context, 'RepositoryIndex', 'read', ({ ready = false }: { ready?: boolean }) => ({
      models: repositoryIndex(context.store, context.invoker.outOfService, ready),
    })),
    RepositoryModelLoad: unary(context, 'RepositoryModelLoad', 'publish', async (request: RepositoryRequest, call) => {
      refuseWhileDraining(context);
      const { model_name: name = '' } = request;
      const publisher = { name: context.access.callerOf(asking(context, call)), signal: new CallerSignal(call).signal };
      await loadFunction(context, name, loadRequestOf(loadParameters(request), name), publisher);
      return {};
    }),
    RepositoryModelUnload: unary(context, 'RepositoryModelUnload', 'publish', async (request: RepositoryRequest) => {
      refuseWhileDraining(context);
      await unloadFunction(context, request.model_name ?? '');
      return {};
    }),
    ModelInfer: forScope(
      'invoke',
      (call: ServerUnaryCall<ModelInferRequest, ModelInferResponse>, callback: InferCallback) => {
        void answerInfer(context, call, callback);
      },
    ),
    ModelStreamInfer: forScope('invoke', (call: ServerDuplexStream<ModelInferRequest, object>) =>
      streamInfer(context, call),
    ),
  };
}

/** Whether nothing but the message and its head is in its memory; a short one has come with others in one piece. */
const isAlone = ({ byteLength, buffer }: Uint8Array): boolean => headBytes + byteLength === buffer.byteLength;

type InferCallback = (error: ServiceError | null, response?: ModelInferResponse) => void;

async function answerInfer(
  context: GrpcContext,
  call: ServerUnaryCall<ModelInferRequest, ModelInferResponse>,
  callback: InferCallback,
): Promise<void> {
  const caller = new CallerSignal(call);
  try {
    const { headers, response } = await modelInfer(context, 'ModelInfer', call, call.request, caller.signal);
    caller.answered();
    call.sendMetadata(metadataOf(headers));
    callback(null, response);
  } catch (error) {
    caller.answered();
    callback(serviceError(error));
  }
}

interface Inferred {
  readonly headers: HeaderList;
  readonly response: ModelInferResponse;
  /** Until the reply is sent. */
  readonly heldBytes: number;
}

/** Runs one inference and accounts for it. The caller's deadline applies, or the SLO if it is tighter. */
async function modelInfer(
  context: GrpcContext,
  method: string,
  call: CallLike,
  request: ModelInferRequest,
  signal: AbortSignal,
): Promise<Inferred> {
  const arrivalMs = performance.now();
  let called: FunctionVersion | undefined;
  let [requestBytes, replyBytes] = [0, 0];
  /** Bytes of tensors that were made of typed contents. */
  let typedBytes = 0;
  const { keyName, held, spent } = guardedCall(call);
  const before: BeforeCall = {};
  try {
    const { name, version: number } = modelAsked(call, request);
    await context.store.learn(name, number);
    const ofMetadata = (key: string): string | undefined => metadataText(call, key);
    const choose = (): FunctionVersion =>
      number === undefined ? versionChosen(context, name, ofMetadata) : versionNamed(context, name, number);
    const chosen = choose();
    called = chosen;
    context.statistics.callBegun(chosen.name);
    const run = async (asked: FunctionVersion): Promise<Inferred> => {
      const slo = sloAsked(metadataText(call, 'x-turntable-slo'));
      const version = asked.state.status === 'ready' ? asked : await context.invoker.ready(asked, signal);
      const decoded = decodeInferMessage(request, specOf(version), (bytes) => {
        held.grow(bytes);
        typedBytes += bytes;
      });
      called = version;
      requestBytes = bytesIn(decoded.tensors);
      const leftMs = deadlineInMs(call);
      const sloMs = slo ?? (leftMs < version.settings.sloMs ? Math.max(1, leftMs) : undefined);
      const timeoutMs = Math.min(leftMs, decoded.timeoutMs ?? Infinity);
      const options = { ...decoded, timeoutMs: timeoutMs === Infinity ? undefined : timeoutMs };
      const { ran, outputs } = await runInfer(context.invoker, version, options, {
        arrivalMs,
        sloMs,
        signal,
        before,
      });
      replyBytes = bytesIn(outputs);
      if (method === 'ModelInfer') {
        spent.addWhole(outputs.map(({ data }) => data));
        if (ran.inputsAreSpent === true) {
          spent.addWhole(decoded.tensors.map(({ data }) => data));
          if (isAlone(request.wire)) spent.addOwn(request.wire);
        }
      }
      // One reply is written from its outputs, or is short; those of a stream are messages made of them.
      const heldBytes = method === 'ModelInfer' ? replyBytes : 2 * replyBytes;
      held.grow(heldBytes, true);
      const headers: HeaderList = [];
      pushInvocationHeaders(headers, version, ran, arrivalMs);
      return { headers, response: encodeInferMessage(version, decoded.id, outputs), heldBytes };
    };
    const inferred = await admitted(context, chosen.name, () => unlessRemoved(chosen, choose, run));
    account(context, { method, startMs: arrivalMs, called, requestBytes, replyBytes });
    return inferred;
  } catch (thrown) {
    const error = called && context.invoker.failedAround(called, { arrivalMs, before }, thrown);
    account(context, { method, startMs: arrivalMs, error: error ?? thrown, called, keyName, requestBytes });
    throw error ?? thrown;
  } finally {
    held.grow(-typedBytes, true);
  }
}

/**
 * ModelMesh's routing: `mm-vmodel-id` names a function, `mm-model-id` a function or `name@version`; both override the
 * model of the request. The `-bin` forms carry names that metadata cannot.
 */
function modelAsked(
  call: CallLike,
  { model_name: name = '', model_version: version = '' }: ModelInferRequest,
): { readonly name: string; readonly version: string | undefined } {
  const virtual = metadataText(call, 'mm-vmodel-id') ?? metadataText(call, 'mm-vmodel-id-bin');
  if (virtual !== undefined) return { name: virtual, version: undefined };
  const concrete = metadataText(call, 'mm-model-id') ?? metadataText(call, 'mm-model-id-bin');
  if (concrete !== undefined) return modelId(concrete);
  return { name, version: version === '' ? undefined : version };
}

/** Requests of a stream run in parallel; each is answered when it ends, by its id, with errors in the message. */
function streamInfer(context: GrpcContext, call: ServerDuplexStream<ModelInferRequest, object>): void {
  const { signal } = new CallerSignal(call);
  // Every request of the stream adds a listener.
  setMaxListeners(0, signal);
  let running = 0;
  let isOver = false;
  let isFirst = true;
  const { held, bytesOf } = guardedCall(call);
  const endIfDone = (): void => {
    if (isOver && running === 0) call.end();
  };
  const answer = async (request: ModelInferRequest): Promise<void> => {
    let message: object;
    let heldBytes = messageBytesMin;
    try {
      // The guard has admitted the first.
      if (isFirst) isFirst = false;
      else context.access.admit('invoke', asking(context, call));
      const { response, heldBytes: replyBytes } = await modelInfer(context, 'ModelStreamInfer', call, request, signal);
      heldBytes += replyBytes;
      message = { infer_response: { ...response, parameters: finalResponse } };
    } catch (error) {
      message = { error_message: toHostError(error).message, infer_response: { id: request.id ?? '', outputs: [] } };
    }
    running--;
    held.grow(-(bytesOf.get(request) ?? 0));
    try {
      held.grow(messageBytesMin);
    } catch (error) {
      call.destroy(serviceError(error));
      return;
    }
    if (!signal.aborted) call.write(message, () => held.grow(-heldBytes));
    endIfDone();
  };
  call.on('data', (request: ModelInferRequest) => {
    running++;
    void answer(request);
  });
  call.on('end', () => {
    isOver = true;
    endIfDone();
  });
}

/** A small reply that waits to be read takes about as much. */
const messageBytesMin = 512;

/** Tells clients of Triton's decoupled models that this is the last response of the request. */
const finalResponse = { triton_final_response: { bool_param: true } };

function versionsFor(context: GrpcContext, name: string, version: string): readonly FunctionVersion[] {
  const { store } = context;
  if (name === '') return allVersions(store);
  const asked = versionNamed(context, name, version === '' ? undefined : version);
  return version === '' ? store.versions(name) : [asked];
}

/** The parameters of a load: strings, and the bytes of files. */
function loadParameters({ parameters = {} }: RepositoryRequest): Map<string, string | Buffer> {
  const values = new Map<string, string | Buffer>();
  for (const [key, { string_param: text, bytes_param: bytes }] of Object.entries(parameters)) {
    const value = bytes ?? text;
    if (value !== undefined) values.set(key, value);
  }
  return values;
}
