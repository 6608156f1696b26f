/** Calls a function's handler and model in this process, without a host: for training scripts and tests. */
import { join } from 'node:path';
import { InferenceSession, Tensor } from 'onnxruntime-node';
import type { Handler, HandlerCall, HandlerContext, HandlerTensor } from '../../src/cpu/index.ts';

export interface OpenFunction {
  readonly session: InferenceSession;
  /** One request through preprocess, the model and postprocess. */
  readonly call: (body: string | Uint8Array, headers?: Readonly<Record<string, string>>) => Promise<unknown>;
  /** The model alone. */
  readonly run: (tensors: readonly HandlerTensor[]) => Promise<HandlerTensor[]>;
}

export async function openFunction(folder: string, handler: Handler): Promise<OpenFunction> {
  const session = await InferenceSession.create(join(folder, 'model.onnx'), { intraOpNumThreads: 1 });
  const run = async (tensors: readonly HandlerTensor[]): Promise<HandlerTensor[]> => {
    const feeds: Record<string, Tensor> = {};
    for (const { name, datatype, shape, data } of tensors) {
      if (datatype === 'FP32') feeds[name] = new Tensor('float32', data as Float32Array, shape);
      else if (datatype === 'INT32') feeds[name] = new Tensor('int32', data as Int32Array, shape);
      else throw new Error(`tensor '${name}' is ${datatype}, which no function here takes`);
    }
    const results = await session.run(feeds);
    return Object.entries(results).map(([name, { type, dims, data }]) => {
      if (type !== 'float32') throw new Error(`output '${name}' is ${type}, which no function here gives`);
      return { name, datatype: 'FP32', shape: dims, data: data as Float32Array };
    });
  };
  return {
    session,
    run,
    call: async (body, headers = {}) => {
      const request = handlerCall(body, headers);
      return handler.postprocess(await run(await handler.preprocess(request, alone)), request, alone);
    },
  };
}

/** No function here invokes another. */
const refuse = (): Promise<never> => Promise.reject(new Error('there is no other function here'));
const alone: HandlerContext = { invoke: refuse, call: refuse };

export function handlerCall(body: string | Uint8Array, headers: Readonly<Record<string, string>> = {}): HandlerCall {
  const bytes = Buffer.from(body);
  return {
    method: 'POST',
    url: '/',
    headers,
    body: bytes,
    text: () => bytes.toString('utf8'),
    json: () => JSON.parse(bytes.toString('utf8')) as unknown,
  };
}
