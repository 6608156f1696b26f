/**
 * Fetches a function's file from hosts by the hash of its bytes: `GET /blobs/sha256:HEX`. A large file comes in ranges,
 * from several hosts at once; if a connection breaks, its range continues at the byte where it stopped.
 */
import { createHash } from 'node:crypto';
import { mkdir, open, rm, type FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';
import { hashFile } from '../tools/index.ts';

export interface WantedContent {
  /** Lower-case hex. */
  readonly sha256: string;
  readonly bytes: number;
}

export interface ContentSource {
  readonly hostUrls: readonly string[];
  /** For hosts that ask for a key. */
  readonly apiKey?: string | undefined;
  /** Sends the request for a file, or for a part of it, in place of `fetch`. */
  readonly open?: ((url: string, sha256: string, range: ContentRange | undefined) => Promise<ContentReply>) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Byte positions: the first, and the one after the last. */
export interface ContentRange {
  readonly from: number;
  readonly to: number;
}

export interface ContentReply {
  readonly status: number;
  /** Leaving the loop early ends the connection. */
  readonly body: AsyncIterable<Uint8Array>;
}

/** Larger files are fetched in ranges of this size. */
const rangeBytes = 8 * 2 ** 20;
const rangesAtOnce = 4;

/** What is missing of a range: it begins later with each piece that came. */
type Range = { -readonly [End in keyof ContentRange]: number };

/**
 * Writes the file to `path`, and flushes it to the disk.
 *
 * @returns the host that had it, the first of them if several had
 * @throws Error with a sentence about the last host: it lacks the file, sent other bytes, or could not be reached
 */
export async function fetchContent(source: ContentSource, wanted: WantedContent, path: string): Promise<string> {
  if (source.hostUrls.length === 0) throw new Error('no host is there to fetch it from');
  await mkdir(dirname(path), { recursive: true });
  const file = await open(path, 'w');
  try {
    const from = await fetchRanges(source, wanted, file);
    const { sha256: found } = await hashFile(path);
    if (found !== wanted.sha256) throw new Error(`${from}: the bytes that arrived have the sha256 ${found}`);
    await file.sync();
    return from;
  } catch (error) {
    await rm(path, { force: true });
    throw error;
  } finally {
    await file.close();
  }
}

/** Ranges cannot show which host sends wrong bytes; only the hash of a whole file from that host can. */
async function fetchRanges(source: ContentSource, wanted: WantedContent, file: FileHandle): Promise<string> {
  if (wanted.bytes <= rangeBytes) return await fetchWhole(source, wanted, file);
  let first: string | undefined;
  let begun = 0;
  const work = async (index: number): Promise<void> => {
    // Created one by one: a false size must not become a list of that length.
    while (begun < wanted.bytes) {
      const range = { from: begun, to: Math.min(wanted.bytes, begun + rangeBytes) };
      begun = range.to;
      const from = await fetchRange(source, wanted, range, file, index);
      first ??= from;
    }
  };
  await Promise.all(Array.from({ length: rangesAtOnce }, (_, index) => work(index)));
  return first ?? '';
}

/** Small files are verified at once, so that after a host with wrong bytes the next one is tried. */
async function fetchWhole(source: ContentSource, wanted: WantedContent, file: FileHandle): Promise<string> {
  let reason = '';
  for (const url of source.hostUrls) {
    try {
      const hash = createHash('sha256');
      await receive(url, source, wanted, { from: 0, to: wanted.bytes }, file, hash);
      const found = hash.digest('hex');
      if (found === wanted.sha256) return url;
      reason = `${url}: the bytes that arrived have the sha256 ${found}`;
    } catch (error) {
      source.signal?.throwIfAborted();
      reason = reasonOf(url, error);
    }
  }
  throw new Error(reason);
}

/**
 * Tries one host after the other, each worker beginning with a different one; a host that delivered bytes is asked
 * again.
 */
async function fetchRange(
  source: ContentSource,
  wanted: WantedContent,
  range: Range,
  file: FileHandle,
  first: number,
): Promise<string> {
  const { hostUrls, signal } = source;
  let reason = '';
  for (let tries = 0; tries < hostUrls.length; tries++) {
    const url = hostUrls[(first + tries) % hostUrls.length]!;
    const before = range.from;
    try {
      await receive(url, source, wanted, range, file);
      return url;
    } catch (error) {
      signal?.throwIfAborted();
      reason = reasonOf(url, error);
      if (range.from > before) tries = -1;
    }
  }
  throw new Error(reason);
}

/** Writes the missing part of the range, and advances its beginning with each piece. */
async function receive(
  url: string,
  source: ContentSource,
  { sha256, bytes }: WantedContent,
  range: Range,
  file: FileHandle,
  hash?: ReturnType<typeof createHash>,
): Promise<void> {
  const isPart = range.from > 0 || range.to < bytes;
  const asked = isPart ? { from: range.from, to: range.to } : undefined;
  const { status, body } = await (source.open?.(url, sha256, asked) ?? openAt(url, source, sha256, asked));
  if (status < 200 || status > 299) throw new Error(`it answered with status ${status}`);
  // A host without support for ranges sends the whole file.
  let skip = isPart && status !== 206 ? range.from : 0;
  for await (const value of body) {
    const chunk = value.subarray(Math.min(skip, value.byteLength));
    skip -= value.byteLength - chunk.byteLength;
    const taken = chunk.subarray(0, range.to - range.from);
    if (taken.byteLength < chunk.byteLength && range.to === bytes) {
      throw new Error(`more than the ${bytes} bytes that were announced arrived`);
    }
    hash?.update(taken);
    await file.write(taken, 0, taken.byteLength, range.from);
    range.from += taken.byteLength;
    if (range.from === range.to && range.to < bytes) return;
  }
  if (range.from < range.to) throw new Error(`${range.to - range.from} bytes of it did not arrive`);
}

async function openAt(
  url: string,
  { apiKey, signal }: ContentSource,
  sha256: string,
  range: ContentRange | undefined,
): Promise<ContentReply> {
  const { status, body } = await fetch(`${url}/blobs/sha256:${sha256}`, {
    headers: {
      ...rangeHeader(range),
      ...(apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` }),
    },
    redirect: 'error',
    ...(signal === undefined ? {} : { signal }),
  });
  if (status > 299) await body?.cancel();
  return { status, body: body ?? nothing() };
}

export function rangeHeader(range: ContentRange | undefined): Record<string, string> {
  return range === undefined ? {} : { range: `bytes=${range.from}-${range.to - 1}` };
}

async function* nothing(): AsyncGenerator<Uint8Array> {}

function reasonOf(url: string, error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? ` (${error.cause.message})` : '';
  return `${url}: ${error instanceof Error ? error.message : String(error)}${cause}`;
}
