/** The places beside the GPUs in the scheduler's model, and the host tier. */
import { tuning, type Action } from '../../src/schedule/index.ts';
import type { ModelGpus } from './model-gpus.ts';
import { executedLayer, refuse, type ModelLedger } from './model-ledger.ts';

export class ModelSides {
  readonly #ledger: ModelLedger;
  readonly #gpus: ModelGpus;
  /** By invocation that runs there: its function and cores. */
  readonly onCpu = new Map<number, { readonly functionIndex: number; readonly cores: number }>();
  /** Each run has its own number: a refused invocation may come back. */
  readonly onWorkers = new Map<number, number>();
  #workerRun = 0;
  #diskFreeMs = 0;
  /** From disk. */
  reads = 0;
  /** What becomes of the next reads; they succeed where it is empty. */
  readonly unread: ('stage-refused' | 'stage-failed')[] = [];
  /** By function, the bytes of its session. */
  readonly sessions = new Map<number, number>();
  /** By function, the cores that make its session without a call. */
  readonly making = new Map<number, { readonly cores: number }>();
  /** Functions that were removed while a session of no bytes was in use. */
  readonly #leftEmpty = new Set<number>();

  constructor(ledger: ModelLedger, gpus: ModelGpus) {
    this.#ledger = ledger;
    this.#gpus = gpus;
  }

  stage(functionIndex: number, bytes: number): void {
    const { host } = this.#ledger.options;
    if (host === undefined) refuse('something is staged without a host tier');
    const { inHost, hostBytes, nowMs } = this.#ledger;
    const entry = inHost.get(functionIndex) ?? { bytes: 0, readBytes: 0 };
    if (entry.readBytes > 0) refuse(`function ${functionIndex} is staged twice`);
    this.reads++;
    entry.bytes += bytes;
    entry.readBytes = bytes;
    inHost.set(functionIndex, entry);
    let usedBytes = 0;
    for (const each of inHost.values()) usedBytes += each.bytes;
    if (usedBytes > hostBytes) refuse(`host memory holds ${usedBytes} bytes of ${hostBytes}`);
    if ([...inHost.values()].filter(({ readBytes }) => readBytes > 0).length > tuning.hostMemory.readAhead)
      refuse('too many functions have room for being read');
    const ms = (bytes / (host.diskGBps * 1e6)) * this.#ledger.options.stretch();
    this.#diskFreeMs = Math.max(nowMs, this.#diskFreeMs) + ms;
    const read = (entry.read = {});
    const isValid = (): boolean => inHost.get(functionIndex) === entry && entry.read === read;
    const kind = this.unread.shift() ?? 'staged';
    this.#ledger.plan(kind === 'stage-refused' ? nowMs : this.#diskFreeMs, { kind, functionIndex }, isValid);
  }

  staged(functionIndex: number, isThere: boolean): void {
    const entry = this.#ledger.inHost.get(functionIndex)!;
    if (!isThere) {
      entry.bytes -= entry.readBytes;
      this.#ledger.unread.add(functionIndex);
    }
    entry.readBytes = 0;
    entry.read = undefined;
    if (entry.bytes === 0) this.#ledger.inHost.delete(functionIndex);
  }

  /** All that is there and on its way is gone. */
  hostLost(): void {
    this.#ledger.inHost.clear();
    this.#diskFreeMs = this.#ledger.nowMs;
  }

  evictFromHost({ functionIndex, bytes, layers }: Action & { kind: 'evict-host' }): void {
    const { inHost } = this.#ledger;
    const entry = inHost.get(functionIndex);
    if (entry === undefined || entry.bytes - entry.readBytes < bytes)
      refuse(`function ${functionIndex} has not ${bytes} bytes in host memory`);
    entry.bytes -= bytes;
    for (const [gpu, resident] of this.#gpus.resident.entries()) {
      if (this.#gpus.loading[gpu]!.has(functionIndex))
        refuse(`function ${functionIndex} leaves host memory, and is being loaded to GPU ${gpu}`);
      if (resident.has(functionIndex) && layers.includes(executedLayer))
        refuse(`function ${functionIndex} executes on GPU ${gpu} from host memory, and leaves it`);
    }
    if (entry.bytes === 0) inHost.delete(functionIndex);
  }

  runOnCpu({ invocation: number, functionIndex, loads }: Action & { kind: 'run-beside' }): void {
    const invocation = this.#ledger.toRun(number, functionIndex);
    const { cpu } = this.#ledger.sheets.get(functionIndex)!;
    if (cpu === null) refuse(`function ${functionIndex} has no CPU pool`);
    const running = { functionIndex, cores: cpu.cores };
    this.onCpu.set(number, running);
    if (loads && this.sessions.has(functionIndex)) refuse(`function ${functionIndex} has a session already`);
    if (!this.sessions.has(functionIndex)) this.sessions.set(functionIndex, cpu.bytes ?? 0);
    this.#check();
    invocation.state = 'offloaded';
    const ms = (cpu.latencyMs ?? 1) + (loads ? (cpu.loadMs ?? 0) : 0);
    const isValid = (): boolean => this.onCpu.get(number) === running;
    this.#ledger.plan(
      this.#ledger.nowMs + ms * this.#ledger.options.stretch(),
      { kind: 'finished', invocation: number },
      isValid,
    );
  }

  makeSession(functionIndex: number): void {
    const { cpu } = this.#ledger.sheets.get(functionIndex)!;
    if (!cpu?.bytes) refuse(`function ${functionIndex} has no session that is counted`);
    if (this.sessions.has(functionIndex)) refuse(`function ${functionIndex} has a session already`);
    this.sessions.set(functionIndex, cpu.bytes);
    const making = { cores: Math.min(1, cpu.cores) };
    this.making.set(functionIndex, making);
    this.#check();
    this.#ledger.plan(
      this.#ledger.nowMs + (cpu.loadMs ?? 0) * this.#ledger.options.stretch(),
      { kind: 'session', functionIndex, bytes: cpu.bytes },
      () => this.making.get(functionIndex) === making,
    );
  }

  #check(): void {
    const place = this.#ledger.options.cpu!;
    let cores = 0;
    for (const each of [...this.onCpu.values(), ...this.making.values()]) cores += each.cores;
    if (cores > place.cores) refuse(`${cores} cores are taken, of ${place.cores}`);
    let bytes = 0;
    for (const session of this.sessions.values()) bytes += session;
    if (bytes > place.memoryBytes) refuse(`sessions take ${bytes} bytes of ${place.memoryBytes}`);
  }

  runOnWorkers(number: number): void {
    const invocation = this.#ledger.toRun(number, this.#ledger.invocations.get(number)!.functionIndex);
    const offer = this.#ledger.sheets.get(invocation.functionIndex)!.others?.['workers'];
    if (!offer) refuse(`function ${invocation.functionIndex} is on no worker`);
    this.onWorkers.set(number, 0);
    const place = this.#ledger.options.workers!;
    if (this.onWorkers.size > place.slots) refuse(`${this.onWorkers.size} run at the workers, of ${place.slots}`);
    invocation.state = 'offloaded';
    const ms = place.roundTripMs + (offer.latencyMs ?? 1);
    const run = (this.#workerRun += 1);
    this.onWorkers.set(number, run);
    const isValid = (): boolean => this.onWorkers.get(number) === run;
    this.#ledger.plan(
      this.#ledger.nowMs + ms * this.#ledger.options.stretch(),
      { kind: 'finished', invocation: number },
      isValid,
    );
  }

  /** A run is over, here or at a worker. */
  ended(invocation: number): void {
    const functionIndex = this.onCpu.get(invocation)?.functionIndex;
    this.onCpu.delete(invocation);
    this.onWorkers.delete(invocation);
    if (functionIndex !== undefined && this.#leftEmpty.has(functionIndex)) this.removed(functionIndex);
  }

  /** A session without bytes is removed silently, once nothing runs in it. */
  removed(functionIndex: number): void {
    if (this.sessions.get(functionIndex) !== 0) return;
    for (const running of this.onCpu.values()) {
      if (running.functionIndex !== functionIndex) continue;
      this.#leftEmpty.add(functionIndex);
      return;
    }
    this.#leftEmpty.delete(functionIndex);
    this.sessions.delete(functionIndex);
  }

  evictSession(functionIndex: number, bytes: number): void {
    for (const running of this.onCpu.values()) {
      if (running.functionIndex === functionIndex)
        refuse(`function ${functionIndex} runs on the CPU, and its session goes`);
    }
    if (this.making.has(functionIndex)) refuse(`a session of function ${functionIndex} is made, and goes`);
    if (this.sessions.get(functionIndex) !== bytes) refuse(`function ${functionIndex} has not ${bytes} bytes there`);
    this.sessions.delete(functionIndex);
  }
}
