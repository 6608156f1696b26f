/** Content in a bucket: written once, read in ranges, and each failure in a sentence. */
import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Bucket } from '../../src/store/bucket.ts';
import { fetchContent } from '../../src/store/index.ts';
import { S3Server, s3Keys } from '../support/s3-server.ts';

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
