import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { DataFolder } from './data-folder.ts';

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'turntable-format-'));
});
afterEach(() => {
  rmSync(root, { recursive: true, force: true });
});

const open = async (): Promise<void> => {
  const data = new DataFolder(root);
  await data.open();
  await data.close();
};

test('an empty data folder gets the format of this version, and is opened again', async () => {
  await open();
  expect(JSON.parse(readFileSync(join(root, 'store.json'), 'utf8'))).toEqual({ format: 2 });
  await open();
});

test('a data folder of 0.1 is refused with what brings its functions to a new one, and stays as it is', async () => {
  mkdirSync(join(root, 'functions', 'echo'), { recursive: true });
  const importIt = `is of release 0.1: bring its functions into a new folder (turntable store import ${root} --store NEW)`;
  await expect(open()).rejects.toThrow(importIt);
  writeFileSync(join(root, 'store.json'), '{"format":1}');
  await expect(open()).rejects.toThrow(importIt);
  expect(readdirSync(root).toSorted()).toEqual(['functions', 'host.lock', 'store.json']);
  expect(readFileSync(join(root, 'store.json'), 'utf8')).toBe('{"format":1}');
});

test('a data folder of a newer format is refused with both numbers, and a damaged note by its path', async () => {
  writeFileSync(join(root, 'store.json'), '{"format":7}');
  await expect(open()).rejects.toThrow(/has format 7, and this version of Turntable reads formats up to 2/);
  writeFileSync(join(root, 'store.json'), '{');
  await expect(open()).rejects.toThrow(/store\.json is damaged/);
});
