/** The bucket of a fleet on a real S3 server: what is written to it, and what is read back when no host has it. */
import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { loadConfig } from '../../src/host/index.ts';
import { Bucket, fetchContent } from '../../src/store/index.ts';
import { call, patient, publish, scaleModel } from '../support/fleet-calls.ts';
import { FleetHosts } from '../support/fleet-hosts.ts';
import { redisMissing } from '../support/redis-server.ts';
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
  new Bucket({ url: s3.url, region: 'us-east-1', ...s3Keys, ...keys });

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

  test('wrong bytes and half a body are refused, and leave no file', async () => {
    const file = await fileOf(randomBytes(1000));
    await bucketOf().put(file, file.path);
    const target = join(folder, 'back');
    s3.isLying = true;
    await expect(fetchContent(bucketOf().source(neverAborted), file, target)).rejects.toThrow('have the sha256');
    s3.isLying = false;
    s3.breakAt = 400;
    await expect(fetchContent(bucketOf().source(neverAborted), file, target)).rejects.toThrow(
      /600 bytes of it did not arrive|aborted|the connection broke/,
    );
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

  test('a host with a bucket but no keys says which variables it needs', () => {
    const flags = { 'fleet.bucket': s3.url };
    expect(() => loadConfig({ flags, environment: {} })).toThrow('set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY');
  });
});

describe.skipIf(redisMissing !== undefined)('a fleet with a bucket', () => {
  let fleet: FleetHosts;
  beforeAll(() => {
    vi.stubEnv('AWS_ACCESS_KEY_ID', s3Keys.accessKeyId);
    vi.stubEnv('AWS_SECRET_ACCESS_KEY', s3Keys.secretAccessKey);
  });
  afterAll(() => vi.unstubAllEnvs());
  beforeEach(async () => {
    fleet = await FleetHosts.start(0);
  });
  afterEach(async () => {
    await fleet[Symbol.asyncDispose]();
  });

  test('a single host acknowledges content once it is in the bucket; a new host without its disk serves it from there', async () => {
    const flags = { 'fleet.bucket': s3.url };
    const first = await fleet.add({ flags });
    expect((await publish(first, 'stored', 3)).status).toBe(201);
    expect(s3.stored()).toEqual([shaOf(await scaleModel(3))]);
    await s3.stop();
    const refused = await publish(first, 'late', 5);
    expect([refused.status, refused.headers['x-turntable-error']]).toEqual([503, 'fleet-unavailable']);
    expect(refused.text).toContain(`the bucket at ${s3.url} was not reached`);
    await s3.restart();
    expect((await publish(first, 'late', 5)).status).toBe(201);
    await fleet.stop(first);
    const second = await fleet.add({ flags });
    await vi.waitFor(async () => {
      expect(await call(second, 'stored')).toEqual([3, 6, 9, 12]);
      expect(await call(second, 'late')).toEqual([5, 10, 15, 20]);
    }, patient);
  });

  test('content secured by another host is written to the bucket later, even after an outage of the server', async () => {
    const flags = { 'fleet.bucket': s3.url, 'fleet.cache': '1B' };
    const [one, other] = [await fleet.add({ flags }), await fleet.add({ flags })];
    await vi.waitFor(async () => {
      const { hosts } = JSON.parse(await (await fetch(`${one.url}/v2/fleet`)).text()) as { hosts: object[] };
      expect(hosts).toHaveLength(2);
    }, patient);
    await s3.stop();
    expect((await publish(one, 'behind', 7)).status).toBe(201);
    await s3.restart();
    const sha256 = shaOf(await scaleModel(7));
    await vi.waitFor(async () => expect(s3.stored()).toEqual([sha256]), patient);
    // Both are over their budget, so neither keeps it, and a call loads it again.
    await vi.waitFor(async () => {
      for (const { url } of [one, other]) {
        expect((await fetch(`${url}/blobs/sha256:${sha256}`, { method: 'HEAD' })).status).toBe(404);
      }
    }, patient);
    await vi.waitFor(async () => expect(await call(other, 'behind')).toEqual([7, 14, 21, 28]), patient);
  });
});
