/**
 * One run of a hybrid program. The GPU's launches and the cores' calls run side by side; a call begins as soon as its
 * inputs are in host memory.
 */
import type { Tensor } from '../../tensor/index.ts';
import type { DeviceAddress } from '../driver/types.ts';
import { alignUp } from '../program/arena.ts';
import { matchInputs } from '../program/input-shapes.ts';
import type { Engine } from '../engine/engine.ts';
import type { Exchange } from '../engine/exchange.ts';
import type { RunOptions, RunResult } from '../types.ts';
import type { HybridCall, HybridProgram, HybridValue } from './compile.ts';
import type { CpuPart } from './cpu-cores.ts';
import type { HostTensor } from './types.ts';

/** A call with its sub-graph open on its core. */
export interface OpenCall {
  readonly call: HybridCall;
  readonly part: CpuPart;
}

interface Deferred {
  readonly promise: Promise<void>;
  resolve(): void;
  reject(error: Error): void;
}

function deferred(): Deferred {
  let resolve!: () => void;
  let reject!: (error: Error) => void;
  const promise = new Promise<void>((yes, no) => {
    resolve = yes;
    reject = no;
  });
  // If no call waits for the value, its rejection is not an unhandled one.
  promise.catch(() => undefined);
  return { promise, resolve, reject };
}

export class HybridRun {
  readonly #engine: Engine;
  readonly #key: string;
  readonly #hybrid: HybridProgram;
  readonly #calls: readonly OpenCall[];
  /** The caller's, until they were copied. */
  #inputs: readonly Tensor[];
  readonly #options: RunOptions;
  readonly #values: ReadonlyMap<string, HybridValue>;
  /** Byte offsets in the run's pinned memory, by value; only values with a known shape have one. */
  readonly #places = new Map<string, number>();
  readonly #loose = new Map<string, Tensor>();
  /** By value: resolves when the value is complete in host memory. */
  readonly #there = new Map<string, Deferred>();
  /** Calls that were sent to their cores. */
  readonly #underWay: Promise<unknown>[] = [];
  #failure: Error | undefined;
  #base: DeviceAddress = 0;

  constructor(
    engine: Engine,
    key: string,
    hybrid: HybridProgram,
    calls: readonly OpenCall[],
    inputs: readonly Tensor[],
    options: RunOptions,
  ) {
    this.#engine = engine;
    this.#key = key;
    this.#hybrid = hybrid;
    this.#calls = calls;
    this.#inputs = matchInputs(hybrid.inputs, inputs, 'function');
    this.#options = options;
    this.#values = new Map(hybrid.values.map((value) => [value.name, value]));
  }

  /** @throws GpuError */
  async execute(): Promise<RunResult> {
    const calledMs = performance.now();
    let bytes = 0;
    for (const { name, shape, bytes: size } of this.#hybrid.values) {
      const there = deferred();
      this.#there.set(name, there);
      if (shape === undefined) continue;
      this.#places.set(name, bytes);
      bytes += alignUp(size);
      // An empty tensor is complete at once: no launch makes it.
      if (size === 0) there.resolve();
    }
    const buffer = await this.#engine.allocateIo(Math.max(1, bytes));
    this.#base = buffer.address;
    try {
      this.#inputs = this.#inputs.map((input) => this.#taken(input, buffer.view));
      const cpu = Promise.all(this.#calls.map((open) => this.#call(open)));
      cpu.catch((error: Error) => this.#fail(error));
      const gpu = this.#gpu();
      gpu?.catch((error: Error) => this.#fail(error));
      const [result] = await Promise.all([gpu, cpu]);
      return this.#result(result, buffer.view, calledMs);
    } catch (error) {
      throw this.#failure ?? error;
    } finally {
      // After a failure, copies and calls that are under way still use the memory.
      const rest = Promise.allSettled([...this.#underWay, this.#engine.quiet(this.#options.gpu)]);
      if (this.#failure === undefined) buffer[Symbol.dispose]();
      else void rest.then(() => buffer[Symbol.dispose]());
    }
  }

  /** The input in memory of this run's own: what is under way after a failure still reads it. */
  #taken(input: Tensor, view: Uint8Array): Tensor {
    const { name, data } = input;
    const at = this.#places.get(name);
    const own = { ...input, data: at === undefined ? Buffer.from(data) : view.subarray(at, at + data.byteLength) };
    if (at === undefined) this.#loose.set(name, own);
    else own.data.set(data);
    this.#there.get(name)?.resolve();
    return own;
  }

  #fail(error: Error): void {
    this.#failure ??= error;
    for (const each of this.#there.values()) each.reject(this.#failure);
  }

  #gpu(): Promise<RunResult> | undefined {
    const { program, gates, outputs } = this.#hybrid;
    if (program === null) return undefined;
    const arriving = new Set([...gates.before.values()].flat().map(({ name }) => name));
    // Inputs of zero bytes, and those that no launch reads, have no gate; the caller does not give them either.
    const ownInputs = new Set(this.#hybrid.inputs.map(({ name }) => name));
    for (const { name } of program.inputs) if (!ownInputs.has(name)) arriving.add(name);
    const exchange: Exchange = {
      ...gates,
      arriving,
      results: new Set(outputs.map(({ name }) => name)),
      arrived: async (name) => {
        await this.#there.get(name)!.promise;
        return this.#base + this.#places.get(name)!;
      },
      placeOf: (name) => this.#base + this.#places.get(name)!,
      left: (name) => this.#there.get(name)!.resolve(),
      failed: (error) => this.#fail(error as Error),
    };
    const given = this.#inputs.filter(({ name }) => program.inputs.some((input) => input.name === name));
    return this.#engine.run(this.#key, program, given, this.#options, exchange);
  }

  async #call({ call, part }: OpenCall): Promise<void> {
    await Promise.all(call.inputs.map(({ value }) => this.#there.get(value)!.promise));
    if (this.#failure !== undefined) throw this.#failure;
    const running = part.run({
      inputs: call.inputs.map(({ value, name }) => this.#host(value, name) ?? { ...this.#loose.get(value)!, name }),
      outputs: call.outputs.flatMap(({ value, name }) => this.#host(value, name) ?? []),
      loose: call.outputs.flatMap(({ value, name }) => (this.#places.has(value) ? [] : [name])),
    });
    this.#underWay.push(running);
    const loose = await running;
    for (const { value, name } of call.outputs) {
      const tensor = loose.find((each) => each.name === name);
      if (tensor !== undefined) this.#loose.set(value, { ...tensor, name: value });
      this.#there.get(value)!.resolve();
    }
  }

  #host(value: string, name: string): HostTensor | undefined {
    const at = this.#places.get(value);
    if (at === undefined) return undefined;
    const { datatype, shape, bytes } = this.#values.get(value)!;
    return { name, datatype, shape: shape!, address: this.#base + at, bytes };
  }

  #result(gpu: RunResult | undefined, view: Uint8Array, calledMs: number): RunResult {
    const outputs = this.#hybrid.outputs.map(({ name, datatype, shape, bytes }): Tensor => {
      const made = gpu?.outputs.find((output) => output.name === name);
      if (made !== undefined) return made;
      const at = this.#places.get(name);
      if (at !== undefined && shape !== undefined) return { name, datatype, shape, data: view.slice(at, at + bytes) };
      // `#loose` holds outputs that a core returned by value, and inputs that are outputs too.
      return this.#hybrid.fixed.find((fixed) => fixed.name === name) ?? this.#loose.get(name)!;
    });
    const facts = gpu ?? {
      start: 'warm',
      loadedBytes: 0,
      fromDisk: false,
      graph: false,
      timings: { waitMs: 0, gpuMs: 0 },
    };
    return { ...facts, outputs, timings: { ...facts.timings, totalMs: performance.now() - calledMs } };
  }
}
