/**
 * Starts child processes without copying this one. Node's `spawn` forks: Linux copies the page tables, and this process
 * then takes a fault at its next write to each of its pages. In a virtual machine with slow page faults, a process of
 * 200 MB stood still for 24 ms, and writing to all its pages took a second more. `posix_spawn` lends the memory to the
 * child until its program runs: 1 ms, and no faults.
 */
import { spawn as fork } from 'node:child_process';
import { EventEmitter } from 'node:events';
import { closeSync } from 'node:fs';
import { Socket, type OnReadOpts } from 'node:net';
import { constants } from 'node:os';
import { isMainThread } from 'node:worker_threads';
import { openSocket } from './channel.ts';
import { libcFunction } from './libc.ts';

export interface SpawnOptions {
  readonly env: NodeJS.ProcessEnv;
  /**
   * A 'pipe' is a pair of sockets: both sides read and write. With OnReadOpts it is a pipe that is read into their
   * memory. A number is an open descriptor of this process.
   */
  readonly stdio: readonly ('ignore' | 'pipe' | OnReadOpts | number)[];
  /** It leads a session of its own, and so a process group. */
  readonly detached: boolean;
}

/** The part of Node's ChildProcess that is used, with the same meaning. */
export interface SpawnedProcess {
  /** Undefined: it could not be started; an 'error' says why. */
  readonly pid?: number | undefined;
  readonly exitCode: number | null;
  readonly signalCode: NodeJS.Signals | null;
  /** This process's ends of the pipes. */
  readonly stdio: readonly unknown[];
  kill(signal: NodeJS.Signals): boolean;
  ref(): void;
  unref(): void;
  on(event: 'exit', listener: (code: number | null, signal: NodeJS.Signals | null) => void): unknown;
  /** It has ended, and its pipes have closed. */
  on(event: 'close', listener: () => void): unknown;
  on(event: 'error', listener: (error: Error) => void): unknown;
}

/** Where `posix_spawn` is missing or fails, Node starts the process, or reports why it cannot. */
export function spawn(path: string, args: readonly string[], options: SpawnOptions): SpawnedProcess {
  return posixSpawn(path, args, options) ?? spawnByFork(path, args, options);
}

/** By Node's own spawn. */
export function spawnByFork(path: string, args: readonly string[], options: SpawnOptions): SpawnedProcess {
  const stdio = options.stdio.map((each) => (typeof each === 'object' ? 'pipe' : each));
  const child = fork(path, args, { ...options, stdio });
  // Node makes no pipes if this process has no files left, and reports that later, as an 'error'.
  if ((child.stdio as unknown) === undefined) {
    return Object.assign(child, { stdio: stdio.map((kind) => (kind === 'pipe' ? new Socket().destroy() : null)) });
  }
  for (const [fd, reads] of options.stdio.entries()) {
    if (typeof reads !== 'object') continue;
    // Node makes the socket, and then it cannot be told where to read to.
    (child.stdio[fd] as Socket).on('data', (chunk: Buffer) => copyInto(reads, chunk));
  }
  return child;
}

function copyInto(reads: OnReadOpts, chunk: Buffer): void {
  for (let rest = chunk; rest.byteLength > 0;) {
    const space = typeof reads.buffer === 'function' ? reads.buffer() : reads.buffer;
    const bytes = rest.copy(space);
    reads.callback(bytes, space);
    rest = rest.subarray(bytes);
  }
}

/** More than the structures of any C library for Linux. */
const structureBytes = 1024;
/** For the new program no signal is ignored or blocked; Node ignores SIGPIPE. */
const [defaultSignals, signalMask, newSession] = [0x04, 0x08, 0x80];
const [unixSockets, streamUntilExec] = [1, 1 | 0o2000000];
const readWrite = 2;
const noWait = 1;
/** If its signal is missed, an end is noticed after this time. */
const lookMs = 1000;

type Functions = Readonly<Record<keyof typeof prototypes, (...values: unknown[]) => unknown>>;

const prototypes = {
  attributes: 'int posix_spawnattr_init(void *attributes)',
  setFlags: 'int posix_spawnattr_setflags(void *attributes, short flags)',
  setDefault: 'int posix_spawnattr_setsigdefault(void *attributes, const void *signals)',
  setMask: 'int posix_spawnattr_setsigmask(void *attributes, const void *signals)',
  actions: 'int posix_spawn_file_actions_init(void *actions)',
  addOpen: 'int posix_spawn_file_actions_addopen(void *actions, int fd, const char *path, int flags, uint mode)',
  addDup: 'int posix_spawn_file_actions_adddup2(void *actions, int from, int to)',
  endActions: 'int posix_spawn_file_actions_destroy(void *actions)',
  socketPair: 'int socketpair(int domain, int type, int protocol, void *pair)',
  spawn:
    'int posix_spawn(void *pid, const char *path, const void *actions, const void *attributes, const char **args, const char **variables)',
  wait: 'int waitpid(int pid, void *status, int options)',
};

let loaded: Functions | undefined;

function functions(): Functions | undefined {
  if (loaded !== undefined) return loaded;
  const found = Object.entries(prototypes).map(([name, prototype]) => [name, libcFunction(prototype)] as const);
  if (found.some(([, libc]) => libc === undefined)) return undefined;
  return (loaded = Object.fromEntries(found) as Functions);
}

function posixSpawn(path: string, args: readonly string[], options: SpawnOptions): SpawnedProcess | undefined {
  // Only the main thread hears of signals.
  const libc = isMainThread ? functions() : undefined;
  if (libc === undefined) return undefined;
  const { env, stdio, detached } = options;
  const attributes = Buffer.alloc(structureBytes);
  libc.attributes(attributes);
  libc.setFlags(attributes, defaultSignals | signalMask | (detached ? newSession : 0));
  libc.setDefault(attributes, Buffer.alloc(structureBytes, 0xff));
  libc.setMask(attributes, Buffer.alloc(structureBytes));
  const actions = Buffer.alloc(structureBytes);
  libc.actions(actions);
  const pairs = new Map<number, Int32Array>();
  let mine = 0;
  try {
    for (const [fd, kind] of stdio.entries()) {
      if (kind === 'ignore') {
        libc.addOpen(actions, fd, '/dev/null', readWrite, 0);
        continue;
      }
      if (typeof kind === 'number') {
        libc.addDup(actions, kind, fd);
        continue;
      }
      const pair = new Int32Array(2);
      if (libc.socketPair(unixSockets, streamUntilExec, 0, pair) !== 0) return undefined;
      pairs.set(fd, pair);
      libc.addDup(actions, pair[1], fd);
    }
    const variables = Object.entries(env).flatMap(([name, value]) => (value === undefined ? [] : [`${name}=${value}`]));
    const pid = new Int32Array(1);
    if (libc.spawn(pid, path, actions, attributes, [path, ...args, null], [...variables, null]) !== 0) return undefined;
    mine = 1;
    const pipes = stdio.map((kind, fd) => openPipe(pairs.get(fd)?.[0], kind));
    return new Spawned(libc, pid[0]!, pipes);
  } finally {
    libc.endActions(actions);
    for (const pair of pairs.values()) for (const fd of pair.subarray(mine)) closeSync(fd);
  }
}

function openPipe(fd: number | undefined, kind: SpawnOptions['stdio'][number]): Socket | null {
  if (fd === undefined) return null;
  return typeof kind === 'object' ? openSocket(fd, kind) : new Socket({ fd, readable: true, writable: true });
}

/** Those that have not ended. */
const running = new Set<Spawned>();

function lookAtAll(): void {
  for (const child of running) child.look();
}

class Spawned extends EventEmitter implements SpawnedProcess {
  readonly pid: number;
  readonly stdio: readonly (Socket | null)[];
  exitCode: number | null = null;
  signalCode: NodeJS.Signals | null = null;
  readonly #libc: Functions;
  /** The process itself, and its pipes. */
  #open = 1;
  /** As Node does, it keeps this process running until the child has ended. */
  readonly #timer = setInterval(() => this.look(), lookMs);

  constructor(libc: Functions, pid: number, stdio: Spawned['stdio']) {
    super();
    this.#libc = libc;
    this.pid = pid;
    this.stdio = stdio;
    for (const socket of this.stdio) {
      if (socket === null) continue;
      this.#open++;
      socket.once('close', () => this.#close());
    }
    if (running.size === 0) process.on('SIGCHLD', lookAtAll);
    running.add(this);
    // It may have ended before the signal was listened to.
    setImmediate(() => this.look());
  }

  kill(signal: NodeJS.Signals): boolean {
    // Its number may be another's as soon as it was waited for.
    return running.has(this) && process.kill(this.pid, signal);
  }

  ref(): void {
    this.#timer.ref();
  }

  unref(): void {
    this.#timer.unref();
  }

  /** Notices whether it has ended. */
  look(): void {
    if (!running.has(this)) return;
    const status = new Int32Array(1);
    if (this.#libc.wait(this.pid, status, noWait) === 0) return;
    running.delete(this);
    if (running.size === 0) process.off('SIGCHLD', lookAtAll);
    clearInterval(this.#timer);
    const number = status[0]! & 0x7f;
    if (number === 0) this.exitCode = (status[0]! >> 8) & 0xff;
    else this.signalCode = signalNames.get(number) ?? 'SIGKILL';
    this.emit('exit', this.exitCode, this.signalCode);
    this.#close();
  }

  #close(): void {
    this.#open--;
    if (this.#open === 0) this.emit('close');
  }
}

/** Some numbers have two names; the first is the usual one. */
const signalNames = new Map(
  Object.entries(constants.signals)
    .map(([name, number]) => [number, name as NodeJS.Signals] as const)
    .toReversed(),
);
