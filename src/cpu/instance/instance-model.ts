/** The model of one instance: loaded at once or at its first run, and run for one call or for several joined calls. */
import { heap } from '../../process/index.ts';
import type { ModelOpening } from '../../onnx/index.ts';
import {
  groupCalls,
  joinInputs,
  rowParts,
  rowsOf,
  splitOutputs,
  type BatchCall,
  type Tensor,
} from '../../tensor/index.ts';
import { rowDifference } from '../../rows/index.ts';
import { failure } from './failure.ts';
import { messageOf } from './handler-runner.ts';
import type { HandlerCall } from './handler.ts';
import type { CallHeader, Joining, LoadedLate, ResultHeader, SessionSettings, ToInstance } from './protocol.ts';
import { givesOptional } from './optional-inputs.ts';
import { ModelSession } from './session.ts';
import type { HandlerResponse } from '../types.ts';

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
  /** The host has had its model run, and given the outputs. */
  isElsewhere: boolean;
}

type ModelOrder = Pick<ToInstance & { op: 'load' }, 'modelPath' | 'settings' | 'inputNames' | 'opening'>;

export class InstanceModel {
  readonly #path: string;
  readonly #settings: SessionSettings;
  readonly #inputNames: readonly string[] | undefined;
  readonly #opening: ModelOpening | undefined;
  #session: ModelSession | undefined;
  /** How a joined run has given a call something else than its run alone; calls then run one by one. */
  #mixing: string | undefined;
  /** It has answered a call, so that it can be run. */
  #hasAnswered = false;

  constructor({ modelPath, settings, inputNames, opening }: ModelOrder) {
    this.#path = modelPath;
    this.#settings = settings;
    this.#inputNames = inputNames;
    this.#opening = opening;
  }

  get isLoaded(): boolean {
    return this.#session !== undefined;
  }

  /** Undefined if the spec does not name them and the model is not loaded. */
  get inputNames(): readonly string[] | undefined {
    return this.#session?.inputNames ?? this.#inputNames;
  }

  /** Inputs that a call may leave out. */
  get optionalInputs(): readonly string[] {
    return this.#opening?.optionalInputs ?? [];
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
        this.#session = await ModelSession.open(this.#path, this.#settings, this.#opening, sharedModelPath);
        return undefined;
      } catch (error) {
        sharedProblem = messageOf(error);
      }
    }
    this.#session = await ModelSession.open(this.#path, this.#settings, this.#opening);
    return sharedProblem;
  }

  /**
   * Runs the calls, in as few runs as they can share; each has its outputs afterwards, or its error. Returns how a joined
   * run gave a call something else than its run alone; all calls of that run have the answers of runs alone.
   */
  run(calls: readonly InstanceCall[], join: Joining): string | undefined {
    if (calls.length === 1 || join === 'no' || this.#mixing !== undefined) {
      for (const call of calls) this.#runAlone(call);
      return this.#mixing;
    }
    const jobs = calls.map(({ inputs, header }) => ({ inputs, outputs: outputsAsked(header) }));
    for (const group of groupCalls(jobs)) {
      const members = group.map((index) => calls[index]!);
      const memberJobs = group.map((index) => jobs[index]!);
      const isAlone = members.length === 1 || givesOptional(members[0]!.inputs, this.#opening);
      if (!isAlone && this.#runTogether(members, memberJobs, join === 'compared')) continue;
      for (const member of members) this.#runAlone(member);
    }
    return this.#mixing;
  }

  #runAlone(call: InstanceCall): void {
    call.inferStartMs = performance.now();
    try {
      if (this.#session !== undefined) call.outputs = this.#session.runTensors(call.inputs, outputsAsked(call.header));
      this.#hasAnswered = true;
    } catch (error) {
      call.error = failure(error, { hasAnswered: this.#hasAnswered, hasInputs: call.inputs.length > 0 });
    }
    call.inferEndMs = performance.now();
  }

  /** False when the calls must run alone after all: one spoils the joint run, or the outputs cannot be taken apart. */
  #runTogether(members: readonly InstanceCall[], jobs: readonly BatchCall[], isCompared: boolean): boolean {
    const inferStartMs = performance.now();
    let outputs: Tensor[];
    try {
      outputs = this.#session?.runTensors(joinInputs(jobs), jobs[0]?.outputs) ?? [];
    } catch {
      return false;
    }
    const rows = jobs.map((job) => rowsOf(job.inputs) ?? 0);
    const parts = splitOutputs(outputs, rows);
    this.#mixing =
      parts === undefined ? notOneEach(outputs, rows) : isCompared ? this.#mixingOf(jobs, parts) : undefined;
    if (parts === undefined || this.#mixing !== undefined) return false;
    this.#hasAnswered = true;
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

  /** Runs each call alone too. What another number of rows rounds otherwise is not held against the model. */
  #mixingOf(jobs: readonly BatchCall[], parts: readonly (readonly Tensor[])[]): string | undefined {
    for (const [at, job] of jobs.entries()) {
      let alone: Tensor[];
      try {
        alone = this.#session?.runTensors(job.inputs, job.outputs) ?? [];
      } catch (error) {
        return `a call ran beside others, but does not run alone: ${messageOf(error)}`;
      }
      if (rowDifference(parts[at]!, alone, 'alone') === undefined) continue;
      // The same place in a run of the same size, beside copies of itself: only its neighbours are others.
      const copies = jobs.map((other) => (other === job ? job : { ...job, inputs: repeatedRow(job, other) }));
      const beside = splitOutputs(
        this.#session?.runTensors(joinInputs(copies), job.outputs) ?? [],
        copies.map(({ inputs }) => rowsOf(inputs) ?? 0),
      );
      const difference = rowDifference(parts[at]!, beside?.[at] ?? [], 'beside others');
      if (difference !== undefined) {
        return `a call's output '${difference.output}' depended on the calls that shared its run: ${difference.why}`;
      }
    }
    return undefined;
  }
}

/** The first row of a call, as often as another call has rows. */
function repeatedRow(job: BatchCall, other: BatchCall): Tensor[] {
  const row = job.inputs.map((input) => rowParts(input, [1])[0]!);
  return joinInputs(Array.from({ length: rowsOf(other.inputs) ?? 1 }, () => ({ ...job, inputs: row })));
}

/** An output of a joined run that has not one row for each row of its calls. */
function notOneEach(outputs: readonly Tensor[], rows: readonly number[]): string {
  const total = rows.reduce((sum, count) => sum + count, 0);
  const other = outputs.find(({ shape }) => shape[0] !== total);
  return `output '${other?.name}' had the shape [${other?.shape.join(',')}] for ${total} rows`;
}

const outputsAsked = (header: CallHeader): readonly string[] | undefined =>
  header.kind === 'tensors' ? header.outputs : undefined;
