/**
 * Fetches a file from a store by the hash of its bytes. A large file comes in ranges, several at once; if a connection
 * breaks, its range continues at the byte where it stopped.
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
  /** For sentences: "the folder /srv/store". */
  readonly place: string;
  /** Asks for a file, or for a part of it. */
  readonly open: (sha256: string, range: ContentRange | undefined) => Promise<ContentReply>;
  readonly signal?: AbortSignal | undefined;
}

/** Byte positions: the first, and the one after the last. */
export interface ContentRange {
  readonly from: number;
  readonly to: number;
}

export interface ContentReply {
  /** A server without support for ranges sends the whole file. */
  readonly isWhole: boolean;
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
 * @throws Error with a sentence: the store lacks the file, sent other bytes, or could not be reached
 */
export async function fetchContent(source: ContentSource, wanted: WantedContent, path: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  const file = await open(path, 'w');
  try {
    let begun = 0;
    const work = async (): Promise<void> => {
      // Created one by one: a false size must not become a list of that length.
      while (begun < wanted.bytes) {
        const range = { from: begun, to: Math.min(wanted.bytes, begun + rangeBytes) };
        begun = range.to;
        await fetchRange(source, wanted, range, file);
      }
    };
    await Promise.all(Array.from({ length: rangesAtOnce }, work));
    const { sha256: found } = await hashFile(path);
    if (found !== wanted.sha256) throw new Error(`${source.place}: the bytes that arrived have the sha256 ${found}`);
    await file.sync();
  } catch (error) {
    await rm(path, { force: true });
    throw error;
  } finally {
    await file.close();
  }
}

/** A short file as text. @throws Error with a sentence, as {@link fetchContent} */
export async function fetchText(source: ContentSource, { sha256, bytes }: WantedContent): Promise<string> {
  const parts: Uint8Array[] = [];
  try {
    let left = bytes;
    for await (const part of (await source.open(sha256, undefined)).body) {
      left -= part.byteLength;
      if (left < 0) break;
      parts.push(part);
    }
  } catch (error) {
    source.signal?.throwIfAborted();
    throw new Error(sentence(source, error), { cause: error });
  }
  const text = Buffer.concat(parts);
  const found = createHash('sha256').update(text).digest('hex');
  if (found !== sha256) throw new Error(`${source.place}: the bytes that arrived have the sha256 ${found}`);
  return text.toString();
}

/** Goes on where a connection broke, as long as each brings bytes. */
async function fetchRange(source: ContentSource, wanted: WantedContent, range: Range, file: FileHandle): Promise<void> {
  for (;;) {
    const before = range.from;
    try {
      await receive(source, wanted, range, file);
      return;
    } catch (error) {
      source.signal?.throwIfAborted();
      if (range.from === before) throw new Error(sentence(source, error), { cause: error });
    }
  }
}

/** Writes the missing part of the range, and advances its beginning with each piece. */
async function receive(
  source: ContentSource,
  { sha256, bytes }: WantedContent,
  range: Range,
  file: FileHandle,
): Promise<void> {
  const isPart = range.from > 0 || range.to < bytes;
  const { isWhole, body } = await source.open(sha256, isPart ? { from: range.from, to: range.to } : undefined);
  let skip = isWhole ? range.from : 0;
  for await (const value of body) {
    const chunk = value.subarray(Math.min(skip, value.byteLength));
    skip -= value.byteLength - chunk.byteLength;
    const taken = chunk.subarray(0, range.to - range.from);
    if (taken.byteLength < chunk.byteLength && range.to === bytes) {
      throw new Error(`more than the ${bytes} bytes that were announced arrived`);
    }
    await file.write(taken, 0, taken.byteLength, range.from);
    range.from += taken.byteLength;
    if (range.from === range.to && range.to < bytes) return;
  }
  if (range.from < range.to) throw new Error(`${range.to - range.from} bytes of it did not arrive`);
}

export function rangeHeader(range: ContentRange | undefined): Record<string, string> {
  return range === undefined ? {} : { range: `bytes=${range.from}-${range.to - 1}` };
}

function sentence({ place }: ContentSource, error: unknown): string {
  const { message, cause } = error as Error;
  const because = cause instanceof Error && !message.includes(cause.message) ? ` (${cause.message})` : '';
  return message.includes(place) ? `${message}${because}` : `${place}: ${message}${because}`;
}
