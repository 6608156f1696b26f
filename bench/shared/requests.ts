/** Requests of benchmarks to hosts. */
import { Agent, request, type OutgoingHttpHeaders } from 'node:http';
import { waitLimitMs } from '../../test/time-limits.ts';
import { sum } from './statistics.ts';

export interface HttpAnswer {
  readonly status: number;
  readonly text: string;
  /** Where a call ran, and the code of an error, from the headers; '' without. */
  readonly placement: string;
  readonly code: string;
  readonly isColdStart: boolean;
}

export interface HttpRequest {
  readonly method?: string;
  readonly headers?: OutgoingHttpHeaders;
  readonly body?: string | Uint8Array;
  /** The connections to use; default: those shared by all others. */
  readonly agent?: Agent;
}

/** Longer than all limits of a host together: a request without its whole answer for so long is lost. */
export const lostMs = waitLimitMs;

/** Rejects a request without an answer within {@link lostMs}. */
export class NoAnswer extends Error {
  override readonly name = 'NoAnswer';
}

const sharedConnections = new Agent({ keepAlive: true });

/**
 * Sends a request and reads the whole answer. Rejects if the connection breaks before. Not with fetch, which takes three
 * times the CPU time.
 */
export function send(
  url: string,
  { method = 'GET', headers = {}, body = '', agent = sharedConnections }: HttpRequest = {},
): Promise<HttpAnswer> {
  return new Promise((resolve, reject) => {
    const outgoing = request(url, {
      method,
      agent,
      headers: { ...headers, 'content-length': Buffer.byteLength(body) },
    });
    const late = setTimeout(() => {
      reject(new NoAnswer('no answer'));
      outgoing.destroy();
    }, lostMs);
    const broken = (error: Error): void => {
      clearTimeout(late);
      reject(error);
    };
    outgoing.on('error', broken);
    outgoing.on('response', (incoming) => {
      const chunks: Buffer[] = [];
      incoming.on('data', (chunk: Buffer) => chunks.push(chunk));
      incoming.on('error', broken);
      incoming.on('end', () => {
        clearTimeout(late);
        const header = (name: string): string => incoming.headers[name]?.toString() ?? '';
        resolve({
          status: incoming.statusCode ?? 0,
          text: Buffer.concat(chunks).toString(),
          placement: header('x-turntable-placement'),
          code: header('x-turntable-error'),
          isColdStart: header('x-model-cold-start') === 'true',
        });
      });
    });
    outgoing.end(body);
  });
}

/** The same. @throws Error for an answer other than success */
export async function mustSend(url: string, sent: HttpRequest = {}): Promise<HttpAnswer> {
  const answer = await send(url, sent);
  if (answer.status >= 200 && answer.status < 300) return answer;
  throw new Error(`${sent.method ?? 'GET'} ${url} was answered with ${answer.status}: ${answer.text.slice(0, 300)}`);
}

/** A tensor `x` in the binary form of the Open Inference Protocol, to be answered in it. */
export function binaryRequest(
  shape: readonly number[],
  values: Float32Array,
): { readonly headers: Readonly<Record<string, string>>; readonly body: Buffer } {
  const data = Buffer.from(values.buffer, values.byteOffset, values.byteLength);
  const x = { name: 'x', shape, datatype: 'FP32', parameters: { binary_data_size: data.byteLength } };
  const header = Buffer.from(JSON.stringify({ inputs: [x], parameters: { binary_data_output: true } }));
  const headers = {
    'Content-Type': 'application/octet-stream',
    'Inference-Header-Content-Length': String(header.byteLength),
  };
  return { headers, body: Buffer.concat([header, data]) };
}

/** The sum over all series of `/metrics` whose line begins with `series`, a regular expression; NaN without any. */
export async function metric(url: string, series: string): Promise<number> {
  const { text } = await mustSend(`${url}/metrics`);
  const values = Array.from(text.matchAll(new RegExp(`^${series}.*? (\\S+)$`, 'gm')), ([, value]) => Number(value));
  return values.length === 0 ? Number.NaN : sum(values);
}

/** Delay of the host's event loop since it was asked last. */
export const loopDelayMs = async (url: string, statistic: 'p99' | 'max'): Promise<number> =>
  1000 * (await metric(url, `turntable_event_loop_delay_seconds\\{statistic="${statistic}"\\}`));
