/** Starts a module as a child process of Node, with its limits and the channel to it. The child's side is parent.ts. */
import { closeSync, writeFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { getPriority, setPriority } from 'node:os';
import { fileURLToPath } from 'node:url';
import { stripVTControlCharacters } from 'node:util';
import { FrameDecoder, lendOut } from '../tensor/index.ts';
import { childEnvironment } from './child-environment.ts';
import { frameReader, frameWriter, type Channel, type ChannelEvents } from './channel.ts';
import { kernelKills } from './kernel-kills.ts';
import { OutputLines } from './output-lines.ts';
import { takeTag } from './output-tags.ts';
import type { ProcessLimits } from './confine.ts';
import { startedVariable, type Started } from './parent.ts';
import type { Peer, PeerEvents } from './peer.ts';
import { makeRegion, type Region } from './region.ts';
import { spawn, type SpawnedProcess } from './spawn.ts';

export interface ProcessOptions {
  /** See compiledModule. */
  readonly module: URL;
  /** Its whole environment. Default: {@link childEnvironment}. */
  readonly environment?: NodeJS.ProcessEnv;
  /** Receives the lines that the child writes, at a limited rate. Without it they are dropped. */
  readonly log?: (line: string) => void;
  /** Heap limit of JavaScript; native memory is not included. */
  readonly heapMiBMax?: number;
  readonly limits?: ProcessLimits;
  readonly nodeOptions?: readonly string[];
  /** The child leads a process group: its end kills what it has started, and a terminal's signals do not reach it. */
  readonly ownGroup?: boolean;
  /** See {@link setNiceness}. Default: that of this process. */
  readonly niceness?: number;
  /** What the child uses its memory for, in messages that the kernel has ended it. */
  readonly purpose?: string;
  /** 0 to 1000: when memory runs out, the kernel kills the highest first. */
  readonly memoryScore?: number;
  /** Whether it may connect to other machines by TLS, and so needs the certificates that this process was given. */
  readonly connects?: boolean;
  /**
   * Whether glibc asks for pages of 2 MiB for large blocks. The first write to each page of 4 KiB is a fault of some
   * 20 us in a virtual machine without nested paging: there a model of 102 MB loads in 60% of the time. A process that
   * serves calls should not ask for them: a run that takes and returns blocks pays for whole pages each time (BERT-Base
   * 10 to 37% at the median).
   */
  readonly hugePages?: boolean;
  /** Large tensors cross in memory that it shares with this process, where the system can do that. */
  readonly sharesTensors?: boolean;
}

/**
 * Which process waits when there are too few cores: 0 to 19, and the host is usually 0. The host must be able to read
 * and refuse requests while models take all cores. Checks and preparations come after calls.
 */
export const niceness = { run: 10, background: 15 };

/** Must come before the process makes threads. If this process has a higher niceness, a child keeps that. */
function setNiceness(pid: number, to: number): void {
  try {
    if (to > getPriority()) setPriority(pid, to);
  } catch {
    // The process has ended, or this system has no niceness.
  }
}

const running = new Map<number, string | undefined>();
/** Child processes that run now, by process id, with what they use their memory for. */
export const runningProcesses: ReadonlyMap<number, string | undefined> = running;

/** Counts a child among {@link runningProcesses} until it ends. */
function countProcess(child: SpawnedProcess, purpose: string | undefined): void {
  const { pid } = child;
  if (pid === undefined) return;
  running.set(pid, purpose);
  child.on('exit', () => void running.delete(pid));
}

/** By default ONNX Runtime reports its use to Microsoft, and logs that in the temporary folder. */
const quiet = { ORT_DISABLE_TELEMETRY: '1' };
/** Node 20 reads the file of certificates that this names at its start, used or not: 50 ms of a core. */
const unconnected = { NODE_EXTRA_CA_CERTS: undefined };
/** glibc reads it at the start of a process only. */
const hugePages = 'glibc.malloc.hugetlb=1';
function withHugePages({ GLIBC_TUNABLES: given }: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  if (given?.includes('glibc.malloc.hugetlb') === true) return { GLIBC_TUNABLES: given };
  return { GLIBC_TUNABLES: given === undefined ? hugePages : `${given}:${hugePages}` };
}
/** How long to wait for the exit when a socket has closed. The exit says why, and comes late on a busy machine. */
const exitMsMax = 1000;
/** How long after the exit to read last messages and output. The child's own children may hold its output open. */
const closingMsMax = 100;
/** How much of the end of standard error is searched for the reason of the child's end. */
const wordCharactersMax = 4096;

export function startProcess<Out extends object, In extends object>(
  options: ProcessOptions,
  events: PeerEvents<In>,
): Peer<Out> {
  return new Child<Out, In>(options, events);
}

class Child<Out extends object, In extends object> implements Peer<Out> {
  readonly pid: number;
  readonly exited: Promise<void>;
  readonly send: Channel<Out>['send'];
  readonly #child: SpawnedProcess;
  readonly #socket: Socket;
  readonly #events: PeerEvents<In>;
  readonly #decoder: FrameDecoder<In>;
  readonly #region: Region | undefined;
  readonly #incoming: { -readonly [Key in keyof ChannelEvents<In>]: ChannelEvents<In>[Key] };
  readonly #purpose: string | undefined;
  readonly #hasOwnGroup: boolean;
  #closing: NodeJS.Timeout | undefined;
  #closingReason = 'its socket closed';
  #words = '';
  #isForMemory = false;
  #hasEnded = false;

  constructor(options: ProcessOptions, events: PeerEvents<In>) {
    const { module, environment = childEnvironment(), log, heapMiBMax, nodeOptions = [], ownGroup } = options;
    this.#events = events;
    this.#purpose = options.purpose;
    this.#hasOwnGroup = ownGroup ?? false;
    const heap = heapMiBMax === undefined ? [] : [`--max-old-space-size=${heapMiBMax}`];
    this.#incoming = {
      message: (message) => events.message(lendOut(message)),
      unreadable: (reason) => this.end(`it sent something unreadable: ${reason}`),
    };
    const shared = options.sharesTensors === true ? makeRegion() : undefined;
    this.#region = shared?.region;
    this.#decoder = new FrameDecoder(events.account, this.#region, true);
    const descriptors = shared === undefined ? [] : [shared.fd];
    const started = { parent: process.pid, limits: options.limits ?? {}, hasRegion: shared !== undefined };
    this.#child = spawn(process.execPath, [...heap, ...nodeOptions, fileURLToPath(module)], {
      stdio: [
        'ignore',
        log === undefined ? 'ignore' : 'pipe',
        'pipe',
        frameReader(this.#decoder, this.#incoming),
        ...descriptors,
      ],
      env: {
        ...environment,
        ...quiet,
        ...(options.hugePages === true ? withHugePages(environment) : {}),
        ...(options.connects === true ? {} : unconnected),
        [startedVariable]: JSON.stringify(started satisfies Started),
      },
      detached: this.#hasOwnGroup,
    });
    for (const fd of descriptors) closeSync(fd);
    this.pid = this.#child.pid ?? -1;
    countProcess(this.#child, this.#purpose);
    this.#setPriorities(options);
    this.exited = new Promise((resolve) => {
      this.#child.on('exit', () => resolve());
      this.#child.on('error', () => resolve());
    });
    this.#child.on('error', (error) => this.end(`it could not be started: ${error.message}`));
    this.#child.on('exit', (code, signal) => this.#exited(code, signal));
    this.#child.on('close', () => this.end(this.#closingReason));
    this.#socket = this.#child.stdio[3] as Socket;
    this.send = frameWriter<Out>(this.#socket, this.#region).send;
    this.#socket.on('error', () => this.#close('its socket failed'));
    this.#socket.on('close', () => this.#close('its socket closed'));
    this.#readOutput(log);
  }

  #exited(code: number | null, signal: NodeJS.Signals | null): void {
    if (signal === null) {
      this.#close(`it exited with code ${String(code)}`, true);
      return;
    }
    // After `end` the signal is that of this process.
    const isUnexpected = !this.#hasEnded;
    this.#isForMemory =
      isUnexpected && signal === 'SIGKILL' && kernelKills.explains({ pid: this.pid, purpose: this.#purpose });
    this.#close(this.#isForMemory ? 'the kernel ended it for lack of memory' : `it was ended by ${signal}`, true);
  }

  unref(): void {
    for (const each of this.#handles()) each?.unref();
  }

  #handles(): readonly (SpawnedProcess | Socket | null)[] {
    return [this.#child, ...(this.#child.stdio as readonly (Socket | null)[])];
  }

  /** The child is ending by itself. Waits for its exit, which says best why, and for messages that it sent before. */
  #close(reason: string, isExit = false): void {
    if (this.#hasEnded) return;
    const isFirst = this.#closing === undefined;
    if (!isFirst && !isExit) return;
    this.#closingReason = reason;
    clearTimeout(this.#closing);
    this.#closing = setTimeout(() => this.end(this.#closingReason), isExit ? closingMsMax : exitMsMax);
    if (isFirst) this.#events.closing?.(reason);
  }

  end(reason: string, isLate = false): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    // Messages that the child has sent and that are not read yet are dropped.
    this.#incoming.message = ({ release }) => release?.();
    clearTimeout(this.#closing);
    // This process stays alive until the child has ended.
    for (const each of this.#handles()) each?.ref();
    const { exitCode, signalCode: signal } = this.#child;
    this.#kill();
    this.#socket.destroy();
    this.#decoder.close();
    this.#region?.[Symbol.dispose]();
    const hasFailed = (exitCode ?? 0) !== 0 || signal === 'SIGABRT';
    const words = stripVTControlCharacters(this.#words);
    const error = hasFailed ? errorLine(words) : undefined;
    this.#events.ended({
      reason: error === undefined ? reason : `${reason}: ${error}`,
      exitCode,
      signal,
      ...(this.#isForMemory ? { isForMemory: true as const } : {}),
      isLate,
      words,
    });
  }

  #kill(): void {
    if (this.#hasOwnGroup && this.#child.pid !== undefined) {
      try {
        process.kill(-this.#child.pid, 'SIGKILL');
        return;
      } catch {
        // The group is gone, or was never made.
      }
    }
    this.#child.kill('SIGKILL');
  }

  #readOutput(log: ProcessOptions['log']): void {
    const [, stdout, stderr] = this.#child.stdio as readonly (Socket | null)[];
    stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#words = (this.#words + text).slice(-wordCharactersMax);
    });
    if (log === undefined) return;
    for (const stream of [stdout, stderr]) {
      const lines = new OutputLines(log);
      stream?.setEncoding('utf8').on('data', (text: string) => lines.push(text));
      stream?.on('end', () => lines.end());
    }
  }

  /** Set from here, before the child has made its threads. Not every system has them, and the child works without. */
  #setPriorities({ niceness, memoryScore }: ProcessOptions): void {
    if (this.#child.pid === undefined) return;
    if (niceness !== undefined) setNiceness(this.#child.pid, niceness);
    try {
      if (memoryScore !== undefined) writeFileSync(`/proc/${this.#child.pid}/oom_score_adj`, String(memoryScore));
    } catch {
      // This system has no such file.
    }
  }
}

/** The line that names the error which ended a process. Node writes it between the source and the stack. */
function errorLine(written: string): string | undefined {
  const lines = written.split('\n').map((line) => takeTag(line).text.trim());
  return (
    lines.findLast((line) => /^(Uncaught )?\w*Error\b|^FATAL ERROR/.test(line)) ??
    lines.findLast((line) => line !== '' && !line.startsWith('Node.js v'))
  );
}
