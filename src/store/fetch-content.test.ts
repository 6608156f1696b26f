/** Fetching content by its hash: whole, in ranges, from stores that break off or have other bytes. */
import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { fetchContent, type ContentSource } from './fetch-content.ts';

const content = randomBytes(20 * 2 ** 20 + 17);
const wantedOf = (bytes: Buffer) => ({
  sha256: createHash('sha256').update(bytes).digest('hex'),
  bytes: bytes.byteLength,
});
const wanted = wantedOf(content);

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-fetch-'));
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

interface Source extends ContentSource {
  /** Where each reply began; -1: a whole file was asked for. */
  readonly starts: number[];
}

/** @param breakAt each reply ends with an error after so many bytes */
function sourceOf(bytes: Buffer, breakAt = Infinity, knowsRanges = true): Source {
  const starts: number[] = [];
  return {
    place: 'the store of the test',
    starts,
    open: async (_sha256, range) => {
      starts.push(range?.from ?? -1);
      const isWhole = range === undefined || !knowsRanges;
      const part = isWhole ? bytes : bytes.subarray(range.from, range.to);
      const body = async function* (): AsyncGenerator<Uint8Array> {
        const sent = part.subarray(0, breakAt);
        for (let at = 0; at < sent.byteLength; at += 65_536) yield sent.subarray(at, at + 65_536);
        if (sent.byteLength < part.byteLength) throw new Error('the connection broke');
      };
      return await Promise.resolve({ isWhole, body: body() });
    },
  };
}

test('a large file comes in ranges, and has its hash', async () => {
  const source = sourceOf(content);
  const path = join(folder, 'ranges');
  await fetchContent(source, wanted, path);
  expect((await readFile(path)).equals(content)).toBe(true);
  expect(source.starts.toSorted((a, b) => a - b)).toEqual([0, 8 * 2 ** 20, 16 * 2 ** 20]);
});

test('a range whose connection breaks goes on at the byte where it stopped', async () => {
  const source = sourceOf(content, 5 * 2 ** 20);
  const path = join(folder, 'resumed');
  await fetchContent(source, wanted, path);
  expect((await readFile(path)).equals(content)).toBe(true);
  // 8 MiB in replies of 5 MiB each: bytes that have arrived are not asked for again.
  expect(new Set(source.starts).size).toBe(source.starts.length);
  expect(source.starts).toContain(5 * 2 ** 20);
});

test('a store that sends nothing is reported with its name, and leaves no file', async () => {
  const path = join(folder, 'nothing');
  await expect(fetchContent(sourceOf(content, 0), wanted, path)).rejects.toThrow(
    'the store of the test: the connection broke',
  );
  await expect(stat(path)).rejects.toThrow('ENOENT');
});

test('an impossible size does not become a list of as many ranges', async () => {
  const lie = { ...wanted, bytes: Number.MAX_SAFE_INTEGER };
  await expect(fetchContent(sourceOf(content), lie, join(folder, 'lie'))).rejects.toThrow('did not arrive');
});

test('a store without support for ranges will do', async () => {
  const path = join(folder, 'old');
  await fetchContent(sourceOf(content, Infinity, false), wanted, path);
  expect((await readFile(path)).equals(content)).toBe(true);
});

test('an empty file is a file', async () => {
  const path = join(folder, 'empty');
  await fetchContent(sourceOf(Buffer.alloc(0)), wantedOf(Buffer.alloc(0)), path);
  expect((await stat(path)).size).toBe(0);
});

test('wrong bytes, and more bytes than announced, are refused and leave no file', async () => {
  const wrong = Buffer.from(content);
  wrong[content.byteLength - 1]! ^= 1;
  const path = join(folder, 'wrong');
  await expect(fetchContent(sourceOf(wrong), wanted, path)).rejects.toThrow('have the sha256');
  const small = wantedOf(content.subarray(0, 1000));
  await expect(fetchContent(sourceOf(content.subarray(0, 2000)), small, path)).rejects.toThrow(
    'more than the 1000 bytes',
  );
  await expect(stat(path)).rejects.toThrow('ENOENT');
});
