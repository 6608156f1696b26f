/** A file of a function, fetched from a host by the hash of its bytes: `GET /blobs/sha256:HEX`. */
import { createHash } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { mkdir, open, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';

export interface WantedContent {
  readonly sha256: string;
  readonly bytes: number;
}

export interface ContentSource {
  readonly hostUrls: readonly string[];
  /** For hosts that ask for a key. */
  readonly apiKey?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Writes the file to `path`, from the first host that has it, and flushes it to the disk.
 *
 * @returns the host that had it
 * @throws Error with a sentence about the last host: it has not the file, other bytes arrived, or it was not reached
 */
export async function fetchContent(source: ContentSource, wanted: WantedContent, path: string): Promise<string> {
  let reason = 'no host is there to fetch it from';
  for (const url of source.hostUrls) {
    try {
      await fetchFrom(url, source, wanted, path);
      return url;
    } catch (error) {
      await rm(path, { force: true });
      const cause = error instanceof Error && error.cause instanceof Error ? ` (${error.cause.message})` : '';
      reason = `${url}: ${error instanceof Error ? error.message : String(error)}${cause}`;
    }
  }
  throw new Error(reason);
}

async function fetchFrom(
  url: string,
  { apiKey, signal }: ContentSource,
  { sha256, bytes }: WantedContent,
  path: string,
): Promise<void> {
  const headers = apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` };
  const response = await fetch(`${url}/blobs/sha256:${sha256}`, {
    headers,
    redirect: 'error',
    ...(signal === undefined ? {} : { signal }),
  });
  if (!response.ok || response.body === null) {
    await response.body?.cancel();
    throw new Error(`the host answered with status ${response.status}`);
  }
  await mkdir(dirname(path), { recursive: true });
  const hash = createHash('sha256');
  let received = 0;
  const counted = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      received += chunk.byteLength;
      hash.update(chunk);
      if (received > bytes) done(new Error(`more than the ${bytes} bytes that were announced arrived`));
      else done(null, chunk);
    },
  });
  await pipeline(chunksOf(response.body), counted, createWriteStream(path));
  const found = hash.digest('hex');
  if (found !== sha256) throw new Error(`the bytes that arrived have the sha256 ${found}`);
  const handle = await open(path, 'r');
  await handle.sync();
  await handle.close();
}

async function* chunksOf(body: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
  const reader = body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}
