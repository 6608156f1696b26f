import { existsSync } from 'node:fs';
import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { makeFolders } from './make-folders.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-folders-'));
});
afterAll(async () => await rm(folder, { recursive: true, force: true }));

test('a folder is made with its parents, by several callers at once, and again', async () => {
  const path = join(folder, 'a', 'b', 'c');
  await Promise.all([makeFolders(path), makeFolders(path), makeFolders(join(folder, 'a', 'd'))]);
  await makeFolders(path);
  expect((await stat(path)).isDirectory()).toBe(true);
});

test('a file in place of a folder is refused', async () => {
  const file = join(folder, 'file');
  await writeFile(file, '');
  await expect(makeFolders(file)).rejects.toThrow('EEXIST');
  await expect(makeFolders(join(file, 'below'))).rejects.toThrow('EEXIST');
});

test.skipIf(!existsSync('/proc/self'))('a file system that allows no new folders refuses at once', async () => {
  await expect(makeFolders('/proc/none/below')).rejects.toThrow('ENOENT');
});
