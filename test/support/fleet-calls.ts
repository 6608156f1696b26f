/** Requests of fleet tests to hosts, over HTTP and HTTPS. */
import { createHash } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { vi } from 'vitest';
import { writeScaleModel } from './models.ts';

/**
 * For news that hosts exchange after a while; a busy machine only takes longer. Hosts that are asked more often have
 * less time for the news.
 */
export const patient = { interval: 100 };

export interface At {
  readonly url: string;
  /** The certificates that the client trusts. */
  readonly ca?: string;
}

export interface Reply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
}

const scaleModels = new Map<number, Promise<Buffer>>();

/** A model that multiplies by the factor. */
export function scaleModel(factor: number): Promise<Buffer> {
  let model = scaleModels.get(factor);
  if (model === undefined) {
    model = (async () => {
      const folder = await mkdtemp(join(tmpdir(), 'turntable-scale-'));
      const bytes = await readFile(await writeScaleModel(folder, factor));
      await rm(folder, { recursive: true });
      return bytes;
    })();
    scaleModels.set(factor, model);
  }
  return model;
}

export const shaOf = async (factor: number): Promise<string> =>
  createHash('sha256')
    .update(await scaleModel(factor))
    .digest('hex');

export async function ask(at: At, method: string, path: string, body?: string | Buffer): Promise<Reply> {
  return await new Promise((resolve, reject) => {
    const isSecure = at.url.startsWith('https:');
    const options = { method, ...(at.ca === undefined ? {} : { ca: at.ca }) };
    const outgoing = (isSecure ? httpsRequest : httpRequest)(`${at.url}${path}`, options, (incoming) => {
      const chunks: Buffer[] = [];
      incoming.on('data', (chunk: Buffer) => chunks.push(chunk));
      incoming.once('error', reject);
      incoming.once('end', () =>
        resolve({
          status: incoming.statusCode ?? 0,
          headers: incoming.headers,
          text: Buffer.concat(chunks).toString(),
        }),
      );
    });
    outgoing.once('error', reject);
    outgoing.end(body);
  });
}

export const publish = async (at: At, name: string, factor: number, query = 'slo=60s'): Promise<Reply> =>
  await ask(at, 'PUT', `/functions/${name}?${query}`, await scaleModel(factor));

/** A host refuses with 503 while the others are too busy to keep a second copy. */
export async function untilPublished(at: At, name: string, factor: number): Promise<void> {
  await vi.waitFor(async () => {
    const { status, text } = await publish(at, name, factor);
    if (status >= 300) throw new Error(`${name} was not published: ${status} ${text}`);
  }, patient);
}

/** A function's answer to 1, 2, 3, 4, or the error. */
export async function call(at: At, path: string): Promise<unknown> {
  return (await placed(at, path)).answer;
}

/** The answer, and where it ran. */
export async function placed(at: At, path: string): Promise<{ answer: unknown; placement: string }> {
  const { headers, text } = await ask(at, 'POST', `/function/${path}`, '{"input": [[1, 2, 3, 4]]}');
  const json = JSON.parse(text) as { output?: number[][] };
  return { answer: json.output?.[0] ?? json, placement: String(headers['x-turntable-placement'] ?? '') };
}

export async function json<T>(at: At, path: string): Promise<T> {
  return JSON.parse((await ask(at, 'GET', path)).text) as T;
}

/** What a host shows of a function; undefined for an unknown name. */
export async function shown(at: At, name: string): Promise<object | undefined> {
  const { status, text } = await ask(at, 'GET', `/functions/${name}`);
  return status === 200 ? (JSON.parse(text) as object) : undefined;
}

export async function functionsAt(at: At): Promise<string[]> {
  const { functions } = await json<{ functions: { name: string }[] }>(at, '/functions');
  return functions.map(({ name }) => name).toSorted();
}
