/** Makes one call through each interface of a host, and classifies the result. */
import type { Agent } from 'node:http';
import { credentials, Metadata, status, type Client, type ServiceError } from '@grpc/grpc-js';
import { loadProtos, serviceOf } from '../../src/host/grpc/index.ts';
import { lostMs, NoAnswer, send, type HttpAnswer, type HttpRequest } from '../shared/requests.ts';

type Unanswered = Extract<Outcome, { kind: 'broken' | 'hung' }>;

export type Outcome =
  | { readonly kind: 'answer'; readonly value: number; readonly placement: string }
  /** Asked to try again: nothing was accepted. */
  | { readonly kind: 'refused'; readonly code: string }
  | { readonly kind: 'failed'; readonly detail: string }
  /** The connection broke before an answer. */
  | { readonly kind: 'broken'; readonly detail: string }
  | { readonly kind: 'hung' };

/** @param id comes back with the answer if the protocol has one; unique in a run */
export type Call = (value: number, id: string) => Promise<Outcome>;

/** An answer, or why there is none. */
export async function attempt(url: string, sent?: HttpRequest): Promise<HttpAnswer | Unanswered> {
  return await send(url, sent).catch((error: unknown) =>
    error instanceof NoAnswer ? { kind: 'hung' } : { kind: 'broken', detail: String(error) },
  );
}

/** The outcome of an answer other than success: 503, 429 and 507 mean that nothing was accepted. */
export function unlessGood({ status: http, code, text }: HttpAnswer): Outcome | undefined {
  if (http >= 200 && http < 300) return undefined;
  if (http === 503 || http === 429 || http === 507) {
    return { kind: 'refused', code: code || String(http) };
  }
  return { kind: 'failed', detail: `${http} ${text.slice(0, 300)}` };
}

interface Caller {
  readonly url: string;
  readonly agent?: Agent | undefined;
  readonly bodyOf: (value: number, id: string) => object;
  readonly valueOf: (text: string, id: string) => number;
}

function caller({ url, agent, bodyOf, valueOf }: Caller): Call {
  const headers = { 'content-type': 'application/json' };
  return async (value, id) => {
    const body = JSON.stringify(bodyOf(value, id));
    const answer = await attempt(url, { method: 'POST', headers, body, ...(agent && { agent }) });
    if ('kind' in answer) return answer;
    const placement = placementOf(answer.placement);
    return unlessGood(answer) ?? { kind: 'answer', value: valueOf(answer.text, id), placement };
  };
}

/** 'gpu0 warm' becomes 'gpu', 'remote worker lab-7 overflow: ...' becomes 'worker'. */
function placementOf(text: string): string {
  if (text === '') return 'unknown';
  return text.startsWith('gpu') ? 'gpu' : text.startsWith('remote') ? 'worker' : 'cpu';
}

/** The Open Inference Protocol as JSON; the id has to come back too. */
export const openInference = (url: string, name: string, agent?: Agent): Call =>
  caller({
    url: `${url}/v2/models/${name}/infer`,
    agent,
    bodyOf: (value, id) => ({ id, inputs: [{ name: 'x', shape: [1, 1], datatype: 'FP32', data: [value] }] }),
    valueOf: (text, id) => {
      const answer = JSON.parse(text) as { id: string; outputs: { data: number[] }[] };
      return answer.id === id ? (answer.outputs[0]?.data[0] ?? Number.NaN) : Number.NaN;
    },
  });

export const plainCall = (url: string, name: string, agent?: Agent): Call =>
  caller({
    url: `${url}/function/${name}`,
    agent,
    bodyOf: (value) => ({ input: [[value]] }),
    valueOf: plainValue,
  });

/** NaN, which no call's answer is, if the reply has another form. */
export function plainValue(text: string): number {
  try {
    return (JSON.parse(text) as { output?: number[][] }).output?.[0]?.[0] ?? Number.NaN;
  } catch {
    return Number.NaN;
  }
}

/** A client that reconnects by itself; its calls wait for that. */
export class GrpcCaller {
  readonly #client: Client;

  constructor(port: number) {
    const Service = serviceOf(loadProtos(), 'inference', 'GRPCInferenceService');
    this.#client = new Service(`127.0.0.1:${port}`, credentials.createInsecure(), {
      'grpc.initial_reconnect_backoff_ms': 100,
      'grpc.max_reconnect_backoff_ms': 500,
    });
  }

  infer(name: string): Call {
    return (value, id) =>
      new Promise((resolve) => {
        const data = Buffer.alloc(4);
        data.writeFloatLE(value);
        const request = {
          model_name: name,
          id,
          inputs: [{ name: 'x', datatype: 'FP32', shape: [1, 1] }],
          raw_input_contents: [data],
        };
        const done = (error: ServiceError | null, reply?: GrpcReply): void => {
          if (error !== null) resolve(outcomeOf(error));
          else {
            const own = reply?.id === id ? reply.raw_output_contents[0] : undefined;
            resolve({ kind: 'answer', value: own?.readFloatLE() ?? Number.NaN, placement: 'gRPC' });
          }
        };
        const methods = this.#client as unknown as { readonly ModelInfer: InferMethod };
        const options = { deadline: Date.now() + lostMs };
        methods.ModelInfer.call(this.#client, request, new Metadata({ waitForReady: true }), options, done);
      });
  }

  close(): void {
    this.#client.close();
  }
}

interface GrpcReply {
  readonly id: string;
  readonly raw_output_contents: readonly Buffer[];
}

type InferMethod = (
  request: object,
  metadata: Metadata,
  options: { readonly deadline: number },
  callback: (error: ServiceError | null, reply?: GrpcReply) => void,
) => void;

function outcomeOf(error: ServiceError): Outcome {
  const told = error.metadata.get('x-turntable-error')[0]?.toString();
  const isRefusal = error.code === status.UNAVAILABLE || error.code === status.RESOURCE_EXHAUSTED;
  if (told !== undefined && isRefusal) return { kind: 'refused', code: told };
  if (error.code === status.DEADLINE_EXCEEDED && told === undefined) return { kind: 'hung' };
  const detail = `gRPC ${error.code} ${error.details}`;
  return { kind: told === undefined ? 'broken' : 'failed', detail };
}
