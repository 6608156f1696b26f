/** Fetching content by its hash: whole, in ranges, from hosts that break off or have other bytes. */
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { fetchContent } from './fetch-content.ts';

const content = randomBytes(20 * 2 ** 20 + 17);
const sha256 = createHash('sha256').update(content).digest('hex');
const wanted = { sha256, bytes: content.byteLength };

let folder: string;
const servers: Server[] = [];
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-fetch-'));
});
afterAll(async () => {
  for (const server of servers) server.close();
  await rm(folder, { recursive: true, force: true });
});

interface Source {
  readonly url: string;
  readonly ranges: string[];
}

/** @param breakAt each reply ends with the connection after so many bytes */
async function serve(bytes: Buffer, breakAt = Infinity, knowsRanges = true): Promise<Source> {
  const ranges: string[] = [];
  const server = createServer((request, response) => {
    const [, from, to] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '') ?? [];
    ranges.push(request.headers.range ?? 'whole');
    const isPart = knowsRanges && from !== undefined;
    const part = isPart ? bytes.subarray(Number(from), Number(to) + 1) : bytes;
    response.writeHead(isPart ? 206 : 200, { 'Content-Length': part.byteLength });
    if (part.byteLength <= breakAt) response.end(part);
    else response.write(part.subarray(0, breakAt), () => setImmediate(() => response.destroy()));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  servers.push(server);
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, ranges };
}

test('a large file comes in ranges from several hosts, and has its hash', async () => {
  const [one, other] = [await serve(content), await serve(content)];
  const path = join(folder, 'ranges');
  await fetchContent({ hostUrls: [one.url, other.url] }, wanted, path);
  expect((await readFile(path)).equals(content)).toBe(true);
  expect(one.ranges.length + other.ranges.length).toBe(3);
  expect(one.ranges.length).toBeGreaterThan(0);
  expect(other.ranges.length).toBeGreaterThan(0);
});

test('a range whose connection breaks goes on at the byte where it stopped', async () => {
  const breaking = await serve(content, 5 * 2 ** 20);
  const path = join(folder, 'resumed');
  await fetchContent({ hostUrls: [breaking.url] }, wanted, path);
  expect((await readFile(path)).equals(content)).toBe(true);
  // 8 MiB in replies of 5 MiB each: bytes that have arrived are not requested again.
  const starts = breaking.ranges.map((range) => Number(/\d+/.exec(range)?.[0]));
  expect(new Set(starts).size).toBe(starts.length);
  expect(starts.some((start) => start % (8 * 2 ** 20) !== 0)).toBe(true);
});

test('an impossible size does not become a list of as many ranges', async () => {
  const source = await serve(content);
  const lie = { ...wanted, bytes: Number.MAX_SAFE_INTEGER };
  await expect(fetchContent({ hostUrls: [source.url] }, lie, join(folder, 'lie'))).rejects.toThrow(source.url);
});

test('a host without support for ranges will do', async () => {
  const path = join(folder, 'old');
  await fetchContent({ hostUrls: [(await serve(content, Infinity, false)).url] }, wanted, path);
  expect((await readFile(path)).equals(content)).toBe(true);
});

test('wrong bytes are refused and leave no file; a small file then comes from the next host', async () => {
  const wrong = Buffer.from(content);
  wrong[content.byteLength - 1]! ^= 1;
  const path = join(folder, 'wrong');
  await expect(fetchContent({ hostUrls: [(await serve(wrong)).url] }, wanted, path)).rejects.toThrow('have the sha256');
  await expect(stat(path)).rejects.toThrow('ENOENT');
  const small = content.subarray(0, 1000);
  const smallWanted = { sha256: createHash('sha256').update(small).digest('hex'), bytes: 1000 };
  const right = await serve(small);
  const source = { hostUrls: [(await serve(wrong.subarray(-1000))).url, right.url] };
  expect(await fetchContent(source, smallWanted, path)).toBe(right.url);
  expect((await readFile(path)).equals(small)).toBe(true);
  const long = { hostUrls: [(await serve(content.subarray(0, 2000))).url] };
  await expect(fetchContent(long, smallWanted, path)).rejects.toThrow('more than the 1000 bytes');
});
