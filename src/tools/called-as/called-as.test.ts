import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { quoted } from '../quoted.ts';
import { asCalled, calledAs } from './index.ts';

let dir: string;
let script: string;

beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'turntable-called-'));
  for (const folder of ['checkout/bin', 'path', 'node_modules/.bin', 'other', "it's here"]) {
    mkdirSync(join(dir, folder), { recursive: true });
  }
  script = join(dir, 'checkout', 'bin', 'turntable.js');
  writeFileSync(script, '');
  chmodSync(script, 0o755);
  for (const folder of ['path', 'node_modules/.bin']) symlinkSync(script, join(dir, folder, 'turntable'));
  writeFileSync(join(dir, 'other', 'turntable'), '');
  chmodSync(join(dir, 'other', 'turntable'), 0o755);
});

afterAll(() => rmSync(dir, { recursive: true, force: true }));

test('a command that the shell finds is called by its name, however it was called now', () => {
  const path = `${join(dir, 'nowhere')}:${join(dir, 'path')}`;
  expect(calledAs(join(dir, 'path', 'turntable'), path, dir, ['--flag'])).toBe('turntable');
  expect(calledAs(script, path, dir, [])).toBe('turntable');
});

test('a command that the shell does not find is called by its path, short below the current folder', () => {
  const inCheckout = join(dir, 'checkout');
  expect(calledAs(script, '', inCheckout, [])).toBe('node bin/turntable.js');
  expect(calledAs(script, '', inCheckout, ['--flag'])).toBe('bin/turntable.js');
  expect(calledAs(script, '', join(inCheckout, 'bin'), ['--flag'])).toBe('./turntable.js');
  expect(calledAs(script, '', join(dir, 'path'), [])).toBe(`node ${script}`);
  expect(calledAs(join(dir, "it's here", 'turntable.js'), '', dir, [])).toBe(
    String.raw`node 'it'\''s here/turntable.js'`,
  );
});

test('a program of the same name that is first on the path is not taken for it, nor what npm adds', () => {
  expect(calledAs(script, `${join(dir, 'other')}:${join(dir, 'path')}`, join(dir, 'other'), [])).toBe(`node ${script}`);
  const local = join(dir, 'node_modules', '.bin', 'turntable');
  expect(calledAs(local, join(dir, 'node_modules', '.bin'), dir, ['--flag'])).toBe('node_modules/.bin/turntable');
});

test('a text has the words of the caller in the place of the command, and nowhere else', () => {
  // This process is a test's: it is no command.
  expect(calledAs()).toBe('turntable');
  const text = "turntable: start 'turntable serve', not my-turntable serve, lib/turntable serve, nor turntable 1.0";
  const words = ['node', 'bin/turntable.js'].join(' ');
  const before = process.argv[1];
  process.argv[1] = join(process.cwd(), 'bin', 'turntable.js');
  try {
    const flags = process.execArgv.length > 0 ? 'bin/turntable.js' : words;
    expect(asCalled(text)).toBe(text.replace("'turntable serve'", `'${flags} serve'`));
  } finally {
    process.argv[1] = before!;
  }
  expect(quoted('{"a": 1}')).toBe(`'{"a": 1}'`);
});
