import { linkSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { hashFile } from '../../tools/index.ts';
import { HashedFiles } from './hashed-files.ts';

const folder = mkdtempSync(join(tmpdir(), 'turntable-files-'));
afterAll(() => rmSync(folder, { recursive: true }));

test('a file with two names is read once, and again after it has changed', async () => {
  const [one, other] = [join(folder, 'one'), join(folder, 'other')];
  writeFileSync(one, 'content');
  linkSync(one, other);
  const files = new HashedFiles();
  const [first, second] = await Promise.all([files.hash(one), files.hash(other)]);
  expect(second).toBe(first);
  expect(first).toEqual(await hashFile(one));
  writeFileSync(other, 'other content');
  expect(await files.hash(one)).toEqual(await hashFile(one));
  expect((await files.hash(one)).sha256).not.toBe(first.sha256);
});

test('a file that could not be read is read again', async () => {
  const files = new HashedFiles();
  const path = join(folder, 'late');
  await expect(files.hash(path)).rejects.toThrow('ENOENT');
  writeFileSync(path, 'there');
  expect((await files.hash(path)).bytes).toBe(5);
});
