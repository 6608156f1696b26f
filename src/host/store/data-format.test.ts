import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { DataFolder, moveData } from './data-folder.ts';
import { migrateData, type Migration } from './data-format.ts';

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'turntable-format-'));
});
afterEach(() => {
  rmSync(root, { recursive: true, force: true });
});

const formatIn = (folder: string): unknown => JSON.parse(readFileSync(join(folder, 'store.json'), 'utf8'));

function withRecord(folder: string, text = '{"old":true}'): string {
  const place = join(folder, 'functions', 'echo', '1');
  mkdirSync(place, { recursive: true });
  writeFileSync(join(place, 'version.json'), text);
  return join(place, 'version.json');
}

test.each([
  ['a file', [], 'a file is in its way'],
  ['a place below a file', ['below'], 'a file is in its way'],
  ['a place where nothing can be made', ['..', '..', '..', '..', '..', 'proc', 'turntable'], 'ENOENT'],
])('%s is refused as a data folder by its name, with what to do', async (_about, more, reason) => {
  const file = join(root, 'file');
  writeFileSync(file, '');
  const folder = join(more[0] === '..' ? root : file, ...more);
  const opened = new DataFolder(folder).open();
  await expect(opened).rejects.toMatchObject({ name: 'ConfigError' });
  await expect(opened).rejects.toThrow(`the data folder ${folder} cannot be made: ${reason}`);
  await expect(opened).rejects.toThrow(/; choose another with --data$/);
});

describe('the format of a data folder', () => {
  test('an empty folder gets the newest format, without a backup', async () => {
    expect(await migrateData(root)).toEqual({ from: 2, to: 2, backup: undefined });
    expect(formatIn(root)).toEqual({ format: 2 });
  });

  test('a folder without a format note is adopted, and its records are backed up', async () => {
    withRecord(root);
    const { from, to, backup } = await migrateData(root);
    expect([from, to]).toEqual([0, 2]);
    expect(readFileSync(join(backup!, 'functions/echo/1/version.json'), 'utf8')).toBe('{"old":true}');
    expect(await migrateData(root)).toMatchObject({ from: 2, backup: undefined });
  });

  test('an older format runs each step after it in turn, behind a backup of the records as they were', async () => {
    const record = withRecord(root);
    writeFileSync(join(root, 'store.json'), '{"format":1}');
    const step =
      (name: string): Migration =>
      async (folder) => {
        expect(folder).toBe(root);
        writeFileSync(record, `${readFileSync(record, 'utf8')} ${name}`);
        await Promise.resolve();
      };
    const { backup } = await migrateData(root, [step('first'), step('second'), step('third')]);
    expect(readFileSync(record, 'utf8')).toBe('{"old":true} second third');
    expect(readFileSync(join(backup!, 'functions/echo/1/version.json'), 'utf8')).toBe('{"old":true}');
    expect(formatIn(root)).toEqual({ format: 3 });
  });

  test('a step that fails leaves the format, and the next start tries again without touching the backup', async () => {
    const record = withRecord(root);
    const fails: Migration = () => {
      writeFileSync(record, 'half');
      return Promise.reject(new Error('killed'));
    };
    await expect(migrateData(root, [fails])).rejects.toThrow('killed');
    expect(readdirSync(root)).not.toContain('store.json');
    const { backup } = await migrateData(root, [() => Promise.resolve()]);
    expect(readFileSync(join(backup!, 'functions/echo/1/version.json'), 'utf8')).toBe('{"old":true}');
  });

  test('a folder of a newer format is refused with both numbers, and a damaged note by its path', async () => {
    writeFileSync(join(root, 'store.json'), '{"format":7}');
    await expect(migrateData(root)).rejects.toThrow(
      /has format 7, and this version of Turntable reads formats up to 2/,
    );
    writeFileSync(join(root, 'store.json'), '{');
    await expect(migrateData(root)).rejects.toThrow(/store\.json is damaged/);
  });
});

describe('the move out of the package', () => {
  test('a data folder moves once, and never over another', async () => {
    const [from, to] = [join(root, 'package', 'data'), join(root, 'home', 'turntable')];
    withRecord(from);
    expect(await moveData(from, to)).toBe(true);
    expect(readdirSync(join(to, 'functions'))).toEqual(['echo']);
    expect(readdirSync(join(root, 'package'))).toEqual([]);
    withRecord(from, 'second');
    expect(await moveData(from, to)).toBe(false);
    expect(readFileSync(join(to, 'functions/echo/1/version.json'), 'utf8')).toBe('{"old":true}');
  });

  test('a folder without functions stays where it is', async () => {
    mkdirSync(join(root, 'data'));
    expect(await moveData(join(root, 'data'), join(root, 'new'))).toBe(false);
  });

  test('a folder that a host uses is not moved', async () => {
    const from = join(root, 'data');
    withRecord(from);
    const stat = readFileSync('/proc/self/stat', 'utf8');
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
    const started = `${boot} ${stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]}`;
    writeFileSync(join(from, 'host.lock'), JSON.stringify({ pid: process.pid, started }));
    await expect(moveData(from, join(root, 'new'))).rejects.toThrow(`process ${process.pid} still uses it`);
  });
});
