/** The model of one instance: loaded at once or at its first run, and run for one call or for several joined calls. */
import { heap } from '../../process/index.ts';
import {
  groupCalls,
  joinInputs,
  type NativeSession,
  rowsOf,
  splitOutputs,
  TensorError,
  type BatchCall,
  type Tensor,
} from '../../tensor/index.ts';
import { messageOf } from './handler-runner.ts';
import type { HandlerCall } from './handler.ts';
import type { CallHeader, LoadedLate, ResultHeader, SessionSettings } from './protocol.ts';
import { openSession } from './session.ts';
import { CpuError, type HandlerResponse } from '../types.ts';

/** One call on its way through the steps of an instance. */
export interface InstanceCall {
  readonly header: CallHeader;
  readonly request: HandlerCall | undefined;
  inputs: readonly Tensor[];
  outputs: readonly Tensor[];
  preprocessMs: number;
  loadMs: number;
  /** Start of the model's run that served it (performance.now()). */
  inferStartMs: number;
  inferEndMs: number;
  postprocessMs: number;
  batch: number;
  /** Rows of a run that calls shared. */
  batchRows: number | undefined;
  /** What the handler made of the outputs. */
  response: HandlerResponse | undefined;
  error: ResultHeader | undefined;
}

export class InstanceModel {
  readonly #path: string;
  readonly #settings: SessionSettings;
  readonly #inputNames: readonly string[] | undefined;
  #session: NativeSession | undefined;
  /** Set to false when the outputs of a joined run could not be split; calls then run one by one. */
  #joinable = true;

  constructor(path: string, settings: SessionSettings, inputNames: readonly string[] | undefined) {
    this.#path = path;
    this.#settings = settings;
    this.#inputNames = inputNames;
  }

  get isLoaded(): boolean {
    return this.#session !== undefined;
  }

  /** Undefined if the spec does not name them and the model is not loaded. */
  get inputNames(): readonly string[] | undefined {
    return this.#session?.inputNames ?? this.#inputNames;
  }

  /** Rejects with ONNX Runtime's own words. */
  async load(): Promise<LoadedLate> {
    const startMs = performance.now();
    const sharedProblem = await heap.forLoad(() => this.#open());
    const loadMs = performance.now() - startMs;
    return { loadMs, ...(sharedProblem === undefined ? {} : { sharedProblem }) };
  }

  release(): void {
    this.#session?.release();
    this.#session = undefined;
  }

  /** Returns the problem with the prepared model, if there was one and it could not be used. */
  async #open(): Promise<string | undefined> {
    const { sharedModelPath } = this.#settings;
    let sharedProblem: string | undefined;
    if (sharedModelPath !== undefined) {
      try {
        this.#session = await openSession(sharedModelPath, this.#settings, true);
        return undefined;
      } catch (error) {
        sharedProblem = messageOf(error);
      }
    }
    this.#session = await openSession(this.#path, this.#settings);
    return sharedProblem;
  }

  /** Runs the calls, in as few runs as they can share; each has its outputs afterwards, or its error. */
  run(calls: readonly InstanceCall[], join: boolean): void {
    if (calls.length === 1 || !join || !this.#joinable) {
      for (const call of calls) this.#runAlone(call);
      return;
    }
    const jobs = calls.map(({ inputs, header }) => ({ inputs, outputs: outputsAsked(header) }));
    for (const group of groupCalls(jobs)) {
      const members = group.map((index) => calls[index]!);
      const memberJobs = group.map((index) => jobs[index]!);
      if (members.length > 1 && this.#runTogether(members, memberJobs)) continue;
      for (const member of members) this.#runAlone(member);
    }
  }

  #runAlone(call: InstanceCall): void {
    call.inferStartMs = performance.now();
    try {
      if (this.#session !== undefined) call.outputs = this.#session.runTensors(call.inputs, outputsAsked(call.header));
    } catch (error) {
      call.error = failure(error);
    }
    call.inferEndMs = performance.now();
  }

  /** False when the calls must run alone after all: one spoils the joint run, or the outputs cannot be taken apart. */
  #runTogether(members: readonly InstanceCall[], jobs: readonly BatchCall[]): boolean {
    const inferStartMs = performance.now();
    let outputs: Tensor[];
    try {
      outputs = this.#session?.runTensors(joinInputs(jobs), jobs[0]?.outputs) ?? [];
    } catch {
      return false;
    }
    const rows = jobs.map((job) => rowsOf(job.inputs) ?? 0);
    const parts = splitOutputs(outputs, rows);
    if (parts === undefined) {
      this.#joinable = false;
      return false;
    }
    const inferEndMs = performance.now();
    const batchRows = rows.reduce((sum, count) => sum + count, 0);
    for (const [index, member] of members.entries()) {
      member.outputs = parts[index] ?? [];
      member.batch = members.length;
      member.batchRows = batchRows;
      member.inferStartMs = inferStartMs;
      member.inferEndMs = inferEndMs;
    }
    return true;
  }
}

const outputsAsked = (header: CallHeader): readonly string[] | undefined =>
  header.kind === 'tensors' ? header.outputs : undefined;

/** What went wrong in a step of a call, as the host is told. */
export function failure(error: unknown): ResultHeader & { readonly kind: 'error' } {
  if (error instanceof CpuError) {
    const { code, message, status } = error;
    return status === undefined ? { kind: 'error', code, message } : { kind: 'error', code, message, status };
  }
  const message = messageOf(error);
  if (error instanceof TensorError) return { kind: 'error', code: 'inference-input', message };
  // ONNX Runtime's messages for errors of the input; all others are the model's or the machine's fault.
  const input =
    /INVALID_ARGUMENT|Invalid (rank|dimension|feed)|out of (data )?bounds|out of range|invalid (input|expand|shape)|cannot be broadcast|mismatch|must (be|have) /i;
  return { kind: 'error', code: input.test(message) ? 'inference-input' : 'inference-failed', message };
}
