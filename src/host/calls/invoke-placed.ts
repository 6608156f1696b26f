/**
 * Takes one invocation to the place that the scheduler chose, and to the next one if that place could not run it: a
 * GPU, this machine's CPU pool, or another place. A handler's two halves run in an instance of the CPU pool, and its model
 * wherever the scheduler says.
 */
import { givesOptional, type CpuPools, type InvokeOptions, type PoolInput, type PoolResult } from '../../cpu/index.ts';
import type { OverflowOptions } from '../../queue/index.ts';
import type { Join, Observation, SideId } from '../../schedule/index.ts';
import { narrowed, widened, type Tensor } from '../../tensor/index.ts';
import { HostError } from '../errors.ts';
import { leaseAgain, LentLease } from './lent-lease.ts';
import {
  msText,
  observationOf,
  overflowOf,
  waited,
  type InvocationTerms,
  type LiveScheduler,
  type OtherLease,
  type Placed,
  type RanOnGpu,
  type Why,
  type WhyNot,
} from '../../live/index.ts';
import type { OtherPlace } from './other-place.ts';
import { nowhere } from './out-of-service.ts';
import type { Placement, Ran } from './placement.ts';
import type { FunctionVersion } from '../types.ts';

/** The GPUs' interface for invocations, besides being a place of the scheduler. */
export interface InvocationGpus {
  /** Why this version may not use a GPU now; undefined if it may. */
  whyNot(key: string): WhyNot | undefined;
  /** Why its next GPU start will be cold. */
  coldCauseOf(key: string): string | undefined;
  /** Called after each run on a GPU, which took `observedMs` from arrival to answer. */
  ran(version: FunctionVersion, ran: RanOnGpu, inputs: readonly Tensor[]): void;
  /** Why these inputs must not go to a GPU. If possible, programs for them are prepared in the background. */
  keepsOff(key: string, inputs: readonly Tensor[]): WhyNot | undefined;
  /** Which calls may share a GPU run with these inputs; undefined: none. */
  joinOf(key: string, inputs: readonly Tensor[]): Join | undefined;
  /** Whether {@link keepsOff} wants the inputs of calls although no GPU may be used. */
  wantsInputs(key: string): boolean;
  /** Resolves to false if no GPU can take it now. */
  load(version: FunctionVersion): Promise<boolean>;
  readonly pid: number;
}

/** A call is taken back so much before its own run would have to begin: timers are late, and Redis is asked first. */
const takeBackAheadMs = 5;

export interface PlacedInvokerOptions {
  readonly live: LiveScheduler;
  readonly pools: CpuPools;
  readonly others: readonly OtherPlace[];
  readonly gpus: InvocationGpus | undefined;
}

/** A place refused; ask for the next one. */
interface Refused {
  readonly placed: Placed;
  readonly failure: unknown;
}

type CpuLease = Extract<Placed, { readonly kind: 'cpu' }>;

export class PlacedInvoker {
  readonly #options: PlacedInvokerOptions;
  readonly #others: ReadonlyMap<SideId, OtherPlace>;
  /** Versions whose handlers have invoked other functions, which only a host has: they stay off the other places. */
  readonly #invoking = new Set<string>();

  constructor(options: PlacedInvokerOptions) {
    this.#options = options;
    this.#others = new Map(options.others.map((place) => [place.id, place]));
  }

  /** @throws HostError, CpuError */
  async run(version: FunctionVersion, input: PoolInput, terms: InvocationTerms, options: InvokeOptions): Promise<Ran> {
    // The model's input is known only after the first half of its handler.
    if (input.kind === 'request' && this.#placesModel(version.key))
      return await this.#withHandler(version, input, terms, options);
    const tensors = input.kind === 'tensors' ? input.tensors : undefined;
    let placed = await this.#submit(version, tensors, terms);
    let failure: unknown;
    for (let refused = 0; ; refused++) {
      switch (placed.kind) {
        case 'gpu':
          return { ...this.#fromGpu(version, input, placed), inputsAreSpent: refused === 0 };
        case 'cpu': {
          const ran = await this.#onCpu(version, input, terms, options, placed);
          return { result: ran.result, placement: ran.placement, inputsAreSpent: refused === 0 };
        }
        case 'other': {
          const outcome = await this.#there(version, input, terms, options, placed);
          if ('result' in outcome)
            return { result: outcome.result, placement: outcome.placement, inputsAreSpent: refused === 0 };
          ({ placed, failure } = outcome);
          break;
        }
        case 'shed':
          throw shed(placed, version);
        case 'nowhere':
          throw failure ?? nowhere(version, placed.refusals.at(-1));
      }
    }
  }

  /** Whether its model may run without its handler. */
  #placesModel(key: string): boolean {
    const { live, gpus, others } = this.#options;
    if (live.has(key) || gpus?.wantsInputs(key) === true) return true;
    return others.some((place) => !place.runsHandlers && place.offer(key, undefined) !== null);
  }

  #submit(version: FunctionVersion, tensors: readonly Tensor[] | undefined, terms: InvocationTerms): Promise<Placed> {
    const { live, gpus } = this.#options;
    if (tensors === undefined || gpus === undefined) return live.submit(version, tensors, terms);
    const { opening } = version.metadata ?? {};
    if (opening !== undefined && givesOptional(tensors, opening))
      return live.submit(version, tensors, { ...terms, keptOff });
    const inputs = forProgram(tensors, version);
    const whyNot = gpus.keepsOff(version.key, inputs);
    const join = whyNot === undefined ? gpus.joinOf(version.key, inputs) : undefined;
    // V8 takes microseconds for a copy of these fields.
    const isPlain = whyNot === undefined && join === undefined;
    return live.submit(version, inputs, isPlain ? terms : { ...terms, keptOff: whyNot, join });
  }

  async #onCpu(
    version: FunctionVersion,
    input: PoolInput,
    terms: InvocationTerms,
    options: InvokeOptions,
    placed: CpuLease,
  ): Promise<Ran> {
    const startedMs = performance.now();
    const whyNot = this.#whyNotOnGpus(version);
    // Without a handler no call waits for other functions.
    const lent = options.invokeOthers && new LentLease(placed);
    const lease = lent ?? placed;
    const lending = lent === undefined ? options : this.#lending(version, terms, options, lent);
    try {
      const result = await this.#options.pools.invoke(version.key, input, lending);
      const awayMs = lent?.awayMs ?? 0;
      lease.done(observationOf(result, performance.now() - startedMs, awayMs));
      return ranOf(withTimes(result, placed), placed, whyNot);
    } catch (error) {
      lease.done();
      throw error;
    }
  }

  /** At a place beside GPUs and CPU; where that could not, the next one. */
  async #there(
    version: FunctionVersion,
    input: PoolInput,
    terms: InvocationTerms,
    options: InvokeOptions,
    placed: OtherLease,
  ): Promise<Ran | Refused> {
    const { key } = version;
    const there = this.#others.get(placed.place)!;
    const refusal = input.kind === 'request' ? this.#whyNoHandler(key, there) : undefined;
    if (refusal !== undefined) return { placed: await placed.elsewhere(refusal), failure: undefined };
    const startedMs = performance.now();
    const whyNot = this.#whyNotOnGpus(version);
    options.stages?.enter('away');
    const { sinceMs = startedMs, sloMs = version.settings.sloMs } = terms;
    const dueMs = sinceMs + sloMs;
    try {
      const { result, where } = await there.run(key, input, {
        ...options,
        dueMs,
        takeBack: this.#takeBack(key, dueMs),
      });
      placed.done({ runMs: observationOf(result, performance.now() - startedMs).coreMs });
      return ranOf(withTimes(result, placed), placed, whyNot, { where, countedAs: there.countedAs });
    } catch (failure) {
      const refused = there.refusalOf(failure);
      if (refused !== undefined) return { placed: await placed.elsewhere(refused), failure };
      placed.done();
      throw failure;
    }
  }

  #whyNoHandler(key: string, { id, runsHandlers }: OtherPlace): string | undefined {
    if (!runsHandlers) return `${id}: it runs no handlers`;
    return this.#invoking.has(key) ? `${id}: its handler invokes other functions, which only a host has` : undefined;
  }

  /** A call at another place without an answer runs here while that is still in time, if the CPU is free then. */
  #takeBack(key: string, dueMs: number): OverflowOptions['takeBack'] {
    const { live } = this.#options;
    const { cpu: runMs } = live.runMsOf(key);
    if (runMs === undefined || runMs === Infinity) return undefined;
    const atMs = dueMs - takeBackAheadMs - runMs;
    return { atMs, wouldBeInTime: () => performance.now() + live.predictMs(key, ['cpu']) <= dueMs };
  }

  /** Lends the handler's cores to others while it waits for other functions. */
  #lending(version: FunctionVersion, terms: InvocationTerms, options: InvokeOptions, lent: LentLease): InvokeOptions {
    const { invokeOthers } = options;
    if (invokeOthers === undefined) return options;
    const lending = lent.lending(invokeOthers, () => leaseAgain(this.#options.live, version, terms));
    return {
      ...options,
      invokeOthers: (calls) => {
        this.#invoking.add(version.key);
        return lending(calls);
      },
    };
  }

  /** When a call has its place: the GPUs may be back before a cold start elsewhere is over. Null: there are none. */
  #whyNotOnGpus({ key }: FunctionVersion): WhyNot | undefined | null {
    const { gpus } = this.#options;
    return gpus === undefined ? null : gpus.whyNot(key);
  }

  #fromGpu(version: FunctionVersion, input: PoolInput, ran: RanOnGpu): Ran {
    const gpus = this.#options.gpus!;
    const asked = input.kind === 'tensors' ? input.outputs : undefined;
    const outputs = asPublished(inOrder(ran.result.outputs, version), version);
    const tensors = asked === undefined ? outputs : outputs.filter(({ name }) => asked.includes(name));
    const placement = this.#onGpu(version, ran, input.kind === 'tensors' ? input.tensors : [], false);
    const { queueMs, loadMs, inferMs } = ran;
    return {
      result: {
        output: { kind: 'tensors', tensors },
        timings: { queueMs, loadMs, preprocessMs: 0, inferMs, postprocessMs: 0 },
        coldStart: ran.start !== 'warm',
        batchSize: ran.batchSize,
        batchRows: ran.batchRows,
        instancePid: gpus.pid,
      },
      placement,
    };
  }

  #onGpu(version: FunctionVersion, ran: RanOnGpu, inputs: readonly Tensor[], isHandlerCold: boolean): Placement {
    const gpus = this.#options.gpus!;
    gpus.ran(version, ran, forProgram(inputs, version));
    const { gpu, start, mode, variant, why } = ran;
    const { precision } = ran.result;
    return {
      kind: 'gpu',
      gpu,
      start,
      mode: mode.mode,
      whyMode: mode.why,
      predictedMs: why.predictedMs,
      variant,
      precision,
      coldCause: start === 'warm' ? undefined : gpus.coldCauseOf(version.key),
      isHandlerCold,
      isBringing: isBringing(why),
    };
  }

  /** Both halves of the handler run in one instance of the CPU pool, the model where the scheduler says. */
  async #withHandler(
    version: FunctionVersion,
    input: PoolInput & { kind: 'request' },
    terms: InvocationTerms,
    options: InvokeOptions,
  ): Promise<Ran> {
    const { pools } = this.#options;
    let attempts = 0;
    let isOver = false;
    let model: RanOnGpu | Ran | CpuLease | undefined;
    let whyNot: WhyNot | undefined | null;
    let inputs: readonly Tensor[] = [];
    let observedThere: Observation | undefined;
    const lent = new LentLease();
    try {
      const result = await pools.invoke(version.key, input, {
        ...this.#lending(version, terms, options, lent),
        runModel: async (tensors) => {
          const attempt = ++attempts;
          await options.runModel?.(tensors);
          const ran = await this.#model(version, tensors, terms, options);
          // The instance has died meanwhile, and another one has the call.
          const isStale = isOver || attempt !== attempts;
          if (isStale && 'kind' in ran && ran.kind === 'cpu') ran.done();
          if (!isStale) {
            model = ran;
            whyNot = this.#whyNotOnGpus(version);
            inputs = tensors;
            lent.lease?.done();
            lent.lease = 'kind' in ran && ran.kind === 'cpu' ? ran : undefined;
          }
          if ('placement' in ran) return ran.result.output.kind === 'tensors' ? ran.result.output.tensors : undefined;
          return ran.kind === 'gpu' ? asPublished(ran.result.outputs, version) : undefined;
        },
      });
      observedThere = observationOf(result, result.timings.inferMs + lent.awayMs, lent.awayMs);
      if (model === undefined) return { result, placement: { kind: 'cpu-pool', coldStart: result.coldStart } };
      if ('placement' in model) return { result: withTimes(result, model.result.timings), placement: model.placement };
      if (model.kind === 'gpu') {
        return {
          result: withTimes(result, model, model.start !== 'warm'),
          placement: this.#onGpu(version, model, inputs, result.coldStart),
        };
      }
      return ranOf(withTimes(result, model), model, whyNot);
    } finally {
      isOver = true;
      lent.done(observedThere);
    }
  }

  /**
   * Where a handler's model runs: it has run already on a GPU or at another place, or its instance must run it on the CPU.
   */
  async #model(
    version: FunctionVersion,
    tensors: readonly Tensor[],
    terms: InvocationTerms,
    options: InvokeOptions,
  ): Promise<RanOnGpu | Ran | CpuLease> {
    let placed = await this.#submit(version, tensors, terms);
    for (;;) {
      switch (placed.kind) {
        case 'gpu':
        case 'cpu':
          return placed;
        case 'other': {
          const outcome = await this.#there(version, { kind: 'tensors', tensors }, terms, options, placed);
          if ('result' in outcome) return outcome;
          ({ placed } = outcome);
          break;
        }
        case 'shed':
          throw shed(placed, version);
        case 'nowhere':
          throw nowhere(version, placed.refusals.at(-1));
      }
    }
  }
}

/** @param there left out: on the CPU pool */
function ranOf(
  result: PoolResult,
  { why }: CpuLease | OtherLease,
  whyNot: WhyNot | undefined | null,
  there?: { readonly where: string; readonly countedAs: string },
): Ran {
  const overflow = overflowOf(why, there?.countedAs ?? 'cpu', whyNot);
  const { coldStart } = result;
  const { predictedMs } = why;
  const placement: Placement =
    there === undefined
      ? { kind: 'cpu-pool', coldStart, overflow, predictedMs, isBringing: isBringing(why) }
      : { kind: 'other', where: there.where, coldStart, overflow, predictedMs };
  return { result, placement };
}

const isBringing = ({ reason }: Why): true | undefined => (reason === 'bringing' ? true : undefined);

/** Orders the outputs as the model does. */
function inOrder(outputs: readonly Tensor[], { metadata }: FunctionVersion): readonly Tensor[] {
  if (metadata === undefined || isInOrder(outputs, metadata.outputs)) return outputs;
  const byName = new Map(outputs.map((output) => [output.name, output]));
  return metadata.outputs.flatMap(({ name }) => byName.get(name) ?? []);
}

const isInOrder = (outputs: readonly Tensor[], described: readonly { readonly name: string }[]): boolean =>
  outputs.length === described.length && outputs.every(({ name }, at) => name === described[at]!.name);

/** A program has FP32 in place of BF16. */
const forProgram = (inputs: readonly Tensor[], { metadata }: FunctionVersion): readonly Tensor[] =>
  metadata?.opening === undefined ? inputs : inputs.map(widened);

/** The outputs with the datatypes of the model's file. */
function asPublished(outputs: readonly Tensor[], { metadata }: FunctionVersion): readonly Tensor[] {
  const narrow = metadata?.opening?.bfloat16Outputs ?? [];
  if (narrow.length === 0) return outputs;
  return outputs.map((output) => (narrow.includes(output.name) ? narrowed(output) : output));
}

const keptOff: WhyNot = { reason: 'optional-input', words: 'its program has no room for optional inputs' };

/** `inferMs`, `batchSize` and `batchRows` are absent if the instance itself ran the model. */
type TimesThere = Pick<RanOnGpu, 'queueMs' | 'loadMs'> & Partial<Pick<RanOnGpu, 'inferMs' | 'batchSize' | 'batchRows'>>;

/**
 * The time that an instance waited for a run of its model elsewhere was spent on the queue there, the weights and the
 * run itself.
 */
function withTimes(result: PoolResult, there: TimesThere, isCold = false): PoolResult {
  const { queueMs, loadMs, inferMs, batchSize = result.batchSize, batchRows = result.batchRows } = there;
  if (inferMs === undefined) return waited(result, there);
  const { timings, coldStart } = result;
  return {
    ...result,
    timings: { ...timings, queueMs: timings.queueMs + queueMs, loadMs: timings.loadMs + loadMs, inferMs },
    coldStart: coldStart || isCold,
    batchSize,
    batchRows,
  };
}

function shed(
  { predictedMs, sloMs, retryMs }: Extract<Placed, { kind: 'shed' }>,
  { name }: FunctionVersion,
): HostError {
  const retryAfterS = Math.max(1, Math.ceil(retryMs / 1000));
  const sentence =
    `function '${name}' would answer in ${msText(predictedMs)}, after its SLO of ` +
    `${msText(sloMs)}, and sheds what would be late`;
  return new HostError('shed', sentence, { retryAfterS });
}
