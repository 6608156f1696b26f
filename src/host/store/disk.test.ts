import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { failureOf, sha256, streamOf } from '../../../test/host/store-fixtures.ts';
import { hashFile } from '../../tools/index.ts';
import { pour, receiveFile, replaceFile } from './disk.ts';

let folder: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'turntable-disk-'));
});

afterAll(() => {
  rmSync(folder, { recursive: true });
});

async function* inPieces(bytes: Uint8Array, sizes: readonly number[]): AsyncGenerator<Uint8Array> {
  let at = 0;
  for (const size of sizes) {
    yield await Promise.resolve(bytes.subarray(at, at + size));
    at += size;
  }
  yield bytes.subarray(at);
}

describe('streams to disk', () => {
  test('bytes, size and hash are the same however the stream is cut', async () => {
    const path = join(folder, 'cut');
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 0, max: 700_000 }),
        fc.array(fc.oneof(fc.nat(100), fc.nat(400_000)), { maxLength: 12 }),
        async (size, sizes) => {
          const content = Buffer.alloc(size, 'seven bytes and then eight');
          const streamed = await receiveFile(path, inPieces(content, sizes), size);
          expect(streamed).toEqual({ sha256: sha256(content), bytes: size });
          expect(readFileSync(path).equals(content)).toBe(true);
          expect(await hashFile(path)).toEqual(streamed);
          rmSync(path);
        },
      ),
      { numRuns: 25 },
    );
  });

  test('a sender is at most two batches ahead of the disk', async () => {
    const chunk = new Uint8Array(512 * 1024);
    let sent = 0;
    let written = 0;
    const ahead: number[] = [];
    async function* sender(): AsyncGenerator<Uint8Array> {
      for (; sent < 20; sent++) {
        ahead.push(sent - written);
        yield await Promise.resolve(chunk);
      }
    }
    const handle = await open(join(folder, 'slow'), 'w');
    const writev = handle.writev.bind(handle);
    handle.writev = (async (chunks: readonly Uint8Array[]) => {
      const result = await writev(chunks);
      written += chunks.length;
      return result;
    }) as typeof handle.writev;
    await pour(handle, sender(), Infinity);
    await handle.close();
    expect(written).toBe(20);
    expect(Math.max(...ahead)).toBeLessThanOrEqual(2);
  });

  test('a disk that takes less at a time gets the rest again', async () => {
    const content = Buffer.from(Array.from({ length: 1000 }, (_, index) => index % 251));
    const path = join(folder, 'short');
    const handle = await open(path, 'w');
    handle.writev = (async (chunks: readonly Uint8Array[]) =>
      await handle.write(
        Buffer.concat(chunks),
        0,
        Math.min(70, Buffer.concat(chunks).byteLength),
      )) as unknown as typeof handle.writev;
    expect((await pour(handle, streamOf(content), Infinity)).bytes).toBe(1000);
    await handle.close();
    expect(readFileSync(path).equals(content)).toBe(true);
  });

  test('a full disk is said to be full', async () => {
    const handle = await open('/dev/full', 'w');
    const failure = await failureOf(pour(handle, streamOf('some bytes'), Infinity));
    await handle.close();
    expect(failure.code).toBe('disk-full');
    expect(failure.status).toBe(507);
  });

  test('a file that failed is gone', async () => {
    const path = join(folder, 'failed');
    expect((await failureOf(receiveFile(path, streamOf('too long'), 3))).code).toBe('body-too-large');
    expect(existsSync(path)).toBe(false);
  });

  test('a file is replaced without a trace of the old one', async () => {
    const path = join(folder, 'cache.json');
    await replaceFile(path, 'old');
    await replaceFile(path, 'new');
    expect(readFileSync(path, 'utf8')).toBe('new');
    expect(readdirSync(folder).filter((name) => name.endsWith('.tmp'))).toEqual([]);
    await expect(replaceFile(join(folder, 'nowhere', 'x'), 'new')).rejects.toThrow('ENOENT');
  });
});
