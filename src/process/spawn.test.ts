import { closeSync, openSync, readFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { describe, expect, it } from 'vitest';
import { libcFunction } from './libc.ts';
import { spawn, spawnByFork, type SpawnedProcess, type SpawnOptions } from './spawn.ts';

const kinds = [
  { name: 'a child of spawn', start: spawn },
  { name: "a child of Node's spawn", start: spawnByFork },
];

/** The end of a process, and what it wrote to the pipes that it was given. */
async function ended(child: SpawnedProcess) {
  const exit = new Promise<unknown[]>((resolve) => void child.on('exit', (...how) => resolve(how)));
  const closed = new Promise<void>((resolve) => void child.on('close', resolve));
  const pipes = (child.stdio as (Socket | null)[]).map((pipe) => (pipe === null ? Promise.resolve() : text(pipe)));
  const written = await Promise.all(pipes);
  await closed;
  return { exit: await exit, written, exitCode: child.exitCode, signalCode: child.signalCode };
}

/** Does work while this process may open no more files. */
function withoutFiles<Result>(work: () => Result): Result {
  const get = libcFunction('int getrlimit(int what, void *limit)')!;
  const set = libcFunction('int setrlimit(int what, const void *limit)')!;
  const openFiles = 7;
  const limit = new BigUint64Array(2);
  get(openFiles, limit);
  const [soft] = limit;
  limit[0] = 3n;
  set(openFiles, limit);
  try {
    return work();
  } finally {
    limit[0] = soft!;
    set(openFiles, limit);
  }
}

describe.each(kinds)('$name', ({ start }) => {
  const shell = (script: string, options: Partial<SpawnOptions> = {}): SpawnedProcess =>
    start('/bin/sh', ['-c', script], {
      env: process.env,
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: false,
      ...options,
    });

  it('tells its exit code, with all that it wrote', async () => {
    expect(await ended(shell('echo said; echo complained >&2; exit 7'))).toEqual({
      exit: [7, null],
      written: [undefined, 'said\n', 'complained\n'],
      exitCode: 7,
      signalCode: null,
    });
  });

  it('tells the signal that ended it', async () => {
    const child = shell('kill -ABRT $$');
    expect(await ended(child)).toMatchObject({ exit: [null, 'SIGABRT'], exitCode: null, signalCode: 'SIGABRT' });
    expect(child.kill('SIGKILL')).toBe(false);
  });

  it('that no file is left for tells so as an error, and has closed pipes', async () => {
    const child = withoutFiles(() => shell('echo said'));
    const [error] = await Promise.all([
      new Promise<Error>((resolve) => void child.on('error', resolve)),
      new Promise<void>((resolve) => void child.on('close', resolve)),
    ]);
    expect(error.message).toContain('EMFILE');
    expect(child.pid).toBeUndefined();
    expect((child.stdio as (Socket | null)[]).map((pipe) => pipe?.destroyed)).toEqual([undefined, true, true]);
  });

  it('is ended by a signal', async () => {
    const child = shell('exec sleep 1000');
    expect(child.kill('SIGTERM')).toBe(true);
    expect(await ended(child)).toMatchObject({ exit: [null, 'SIGTERM'] });
  });

  it('has what comes from a pipe read into the memory that it was given', async () => {
    const memory = Buffer.alloc(5);
    let read = '';
    const callback = (bytes: number): boolean => {
      read += memory.toString('utf8', 0, bytes);
      return true;
    };
    const child = shell('echo a long line >&3', {
      stdio: ['ignore', 'ignore', 'ignore', { buffer: () => memory, callback }],
    });
    await new Promise<void>((resolve) => void child.on('close', resolve));
    expect(read).toBe('a long line\n');
  });

  it('gets an open descriptor of this process', async () => {
    const fd = openSync('/proc/version', 'r');
    const child = shell('cat <&3', { stdio: ['ignore', 'pipe', 'ignore', fd] });
    expect((await ended(child)).written[1]).toBe(readFileSync('/proc/version', 'utf8'));
    closeSync(fd);
  });

  it('reads from a pipe and writes to it', async () => {
    const child = shell('read line <&3; echo "$line" back >&3', { stdio: ['ignore', 'ignore', 'ignore', 'pipe'] });
    (child.stdio[3] as Socket).write('there\n');
    expect((await ended(child)).written[3]).toBe('there back\n');
  });

  it('has the variables that are given, and no others', async () => {
    const child = start('/usr/bin/env', [], {
      env: { ONE: 'a=b', NONE: undefined, EMPTY: '' },
      stdio: ['ignore', 'pipe', 'ignore'],
      detached: false,
    });
    expect((await ended(child)).written[1]).toBe('ONE=a=b\nEMPTY=\n');
  });

  it('has only its own pipes, and neither ignores nor blocks a signal', async () => {
    const child = shell('ls -l /proc/$$/fd | grep -c socket: ; grep -E "^Sig(Blk|Ign)" /proc/self/status');
    expect((await ended(child)).written[1]).toBe('2\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n');
  });

  it('leads a session of its own if it is detached', async () => {
    const session = 'cut -d " " -f 6 /proc/$$/stat';
    const own = shell(session, { detached: true });
    expect((await ended(own)).written[1]).toBe(`${own.pid}\n`);
    const shared = shell(session);
    expect((await ended(shared)).written[1]).not.toBe(`${shared.pid}\n`);
  });

  it('that does not exist is an error', async () => {
    const child = start('/nowhere/program', [], { env: {}, stdio: ['ignore', 'pipe', 'pipe'], detached: false });
    const error = await new Promise<Error>((resolve) => void child.on('error', resolve));
    expect(error.message).toBe('spawn /nowhere/program ENOENT');
    expect(child.pid).toBeUndefined();
  });
});

it('a start does not copy the memory of the process that asks for it', async () => {
  const pages = 25_000;
  const memory = Buffer.alloc(pages * 4096, 1);
  const child = spawn('/bin/true', [], { env: {}, stdio: [], detached: false });
  await new Promise((resolve) => void child.on('exit', resolve));
  const before = process.resourceUsage().minorPageFault;
  for (let page = 0; page < pages; page++) memory[page * 4096] = 2;
  // After a fork, each write to a page is a fault.
  expect(process.resourceUsage().minorPageFault - before).toBeLessThan(pages / 10);
});
