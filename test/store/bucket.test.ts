/** Content in a bucket: written once, read in ranges, and each failure in a sentence. */
import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Bucket } from '../../src/store/bucket.ts';
import { fetchContent } from '../../src/store/index.ts';
import { S3Server, s3Keys, type S3Fault } from '../support/s3-server.ts';

const shaOf = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');
const neverAborted = new AbortController().signal;

let s3: S3Server;
let folder: string;
beforeEach(async () => {
  s3 = await S3Server.start();
  folder = await mkdtemp(join(tmpdir(), 'turntable-bucket-'));
});
afterEach(async () => {
  await s3[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
});

const bucketOf = (keys: Partial<typeof s3Keys> | object = {}): Bucket =>
  new Bucket({ url: s3.url, region: 'us-east-1', ...s3Keys, retryMs: 1, ...keys });

async function fileOf(bytes: Buffer): Promise<{ path: string; sha256: string; bytes: number }> {
  const path = join(folder, shaOf(bytes));
  await writeFile(path, bytes);
  return { path, sha256: shaOf(bytes), bytes: bytes.byteLength };
}

describe('a bucket', () => {
  test('a file is written once, and read back in ranges, each resumed where its connection broke', async () => {
    const content = randomBytes(9 * 2 ** 20 + 17);
    const file = await fileOf(content);
    const bucket = bucketOf();
    expect(await bucket.has(file)).toBe(false);
    await bucket.put(file, file.path);
    await bucket.put(file, file.path);
    expect(s3.stored()).toEqual([file.sha256]);
    expect(s3.requests.filter((each) => each === 'PUT')).toHaveLength(1);
    expect(await bucket.has({ ...file, bytes: file.bytes + 1 })).toBe(false);
    s3.breakAt = 5 * 2 ** 20;
    const target = join(folder, 'back');
    await fetchContent(bucket.source(neverAborted), file, target);
    expect((await readFile(target)).equals(content)).toBe(true);
    const starts = s3.requests.flatMap((each) => /^GET bytes=(\d+)/.exec(each)?.[1] ?? []).map(Number);
    expect(new Set(starts).size).toBe(starts.length);
    expect(starts.some((start) => start % (8 * 2 ** 20) !== 0)).toBe(true);
  });

  test('a file over the size of a part goes in parts, and appears whole or not at all', async () => {
    const bucket = bucketOf({ partBytes: 1000 });
    for (const bytes of [999, 1000, 1001, 7500]) {
      const content = randomBytes(bytes);
      const file = await fileOf(content);
      s3.requests.length = 0;
      await bucket.put(file, file.path);
      await bucket.put(file, file.path);
      const parts = bytes > 1000 ? Math.ceil(bytes / 1000) : 0;
      expect(s3.requests.filter((each) => each === 'PUT')).toHaveLength(Math.max(1, parts));
      expect(s3.requests.filter((each) => each === 'POST')).toHaveLength(parts > 0 ? 2 : 0);
      const target = join(folder, 'back');
      await fetchContent(bucket.source(neverAborted), file, target);
      expect((await readFile(target)).equals(content)).toBe(true);
    }
    const refused = await fileOf(randomBytes(2500));
    s3.faultOf = () => 'busy';
    await expect(bucket.put(refused, refused.path)).rejects.toThrow('status 503 (SlowDown)');
    expect(await bucket.has(refused)).toBe(false);
    expect(s3.uploadsLeft).toBe(0);
  });

  test('two hosts put one large file at once while writes fail: both succeed, and no part is left', async () => {
    const faults: readonly (S3Fault | undefined)[] = ['lost-request', 'lost-reply', 'late', 'conflict', 'busy'];
    for (let round = 0; round < 60; round++) {
      const content = randomBytes(3500);
      const file = await fileOf(content);
      // Every other time an old copy is there, which may be about to be collected.
      s3.olderByMs = round % 2 === 1 ? 2 * 60 * 60 * 1000 : Infinity;
      if (Number.isFinite(s3.olderByMs)) await bucketOf().put(file, file.path);
      s3.olderByMs = 0;
      let writes = 0;
      // In each round other writes fail, of parts and of completions.
      s3.faultOf = () => (++writes % 3 === round % 3 ? faults[(writes + round) % faults.length] : undefined);
      const put = async (): Promise<void> => await bucketOf({ partBytes: 1000, retryMs: 0.01 }).put(file, file.path);
      await Promise.all([put(), put()]);
      s3.faultOf = () => undefined;
      const stored = (await bucketOf().contents()).find(({ sha256 }) => sha256 === file.sha256);
      expect(stored!.bytes).toBe(3500);
      expect(stored!.ageMs).toBeLessThan(60 * 60 * 1000);
    }
    expect(s3.uploadsLeft).toBe(0);
  });

  test('wrong bytes, and replies without any, are refused and leave no file', async () => {
    const file = await fileOf(randomBytes(1000));
    await bucketOf().put(file, file.path);
    const target = join(folder, 'back');
    s3.isLying = true;
    await expect(fetchContent(bucketOf().source(neverAborted), file, target)).rejects.toThrow('have the sha256');
    s3.isLying = false;
    s3.breakAt = 0;
    await expect(fetchContent(bucketOf().source(neverAborted), file, target)).rejects.toThrow(/did not arrive|aborted/);
    await expect(stat(target)).rejects.toThrow('ENOENT');
  });

  test('wrong keys, a server that is gone and a missing file are each reported in a sentence', async () => {
    const file = await fileOf(Buffer.from('content'));
    const wrong = bucketOf({ secretAccessKey: 'another' });
    await expect(wrong.put(file, file.path)).rejects.toThrow('status 403: its keys are wrong, or may not do this');
    await expect(fetchContent(wrong.source(neverAborted), file, join(folder, 'back'))).rejects.toThrow(
      'status 403 (SignatureDoesNotMatch): its keys are wrong',
    );
    await expect(fetchContent(bucketOf().source(neverAborted), file, join(folder, 'back'))).rejects.toThrow(
      'status 404 (NoSuchKey)',
    );
    const unknown = bucketOf({ accessKeyId: 'nobody' }).source(neverAborted);
    await expect(fetchContent(unknown, file, join(folder, 'back'))).rejects.toThrow('InvalidAccessKeyId');
    await s3.stop();
    await expect(bucketOf().put(file, file.path)).rejects.toThrow(`the bucket at ${s3.url} was not reached`);
  });
});
