/** Prepares a function for the GPUs: registered, compared with ONNX Runtime, measured without other load, planned. */
import { join } from 'node:path';
import type { Logger } from 'pino';
import {
  GpuError,
  type GpuClient,
  shapesKey,
  sizingOf,
  type GpuCoverage,
  type GpuFunctionSpec,
  type GpuLayer,
  type InputShapes,
  type ProgramPrecision,
  type ProgramSettings,
} from '../../gpu/index.ts';
import { trialShapes } from '../../onnx/index.ts';
import type { Machine } from '../../hardware/index.ts';
import { layersAsTheyAre, parseGraphProfile, type LayerProfile } from '../../profile/index.ts';
import type { HostConfig } from '../config/config.ts';
import type { FunctionVersion } from '../types.ts';
import type { BatchTimes } from './batch-times.ts';
import type { Stage } from './function-state.ts';
import { Gate, variantsOf, wholeVariant, type GateOptions, type Passed } from './gate.ts';
import type { GpuFunction } from './gpu-function.ts';
import { emptyInputs } from './input-shapes.ts';
import { capacityBytesOf } from './machine.ts';
import { areOf, makePlans, ProfileStore, structureOf } from './plans.ts';
import type { FunctionPlans, LiveScheduler } from '../../live/index.ts';
import { Room } from './room.ts';
import type { ShippedPlans } from './shipped-plans.ts';
import type { VariantPlanner } from './variants/index.ts';
import type { Verdicts } from './verdicts.ts';

/** Exists once the GPU process is up for the first time. */
export interface GpuRuntime {
  readonly machine: Machine;
  /** That of the functions that this is for: what was found out in another one does not count. */
  readonly precision: ProgramPrecision;
  readonly inPrecision: (precision: ProgramPrecision) => GpuRuntime;
  /** Names the GPUs and the driver: measurements on others do not count here. */
  readonly machineName: string;
  /** Its times mean nothing. */
  readonly isEmulated: boolean;
  readonly profiles: ProfileStore<LayerProfile>;
  readonly verdicts: Verdicts;
  readonly batchTimes: BatchTimes;
  readonly scheduler: LiveScheduler;
}

/** Requests to the GPU process for a function that is to be planned. */
export type PreparingClient = Pick<
  GpuClient,
  'register' | 'unregister' | 'measure' | 'evict' | 'measureOperators' | 'addPlan' | 'dropPlan' | 'run'
>;

export interface PrepareOptions extends Pick<GateOptions, 'check'> {
  readonly client: PreparingClient;
  readonly logger: Logger;
  readonly dataDir: string;
  readonly settings: Pick<HostConfig['gpu'], 'mode' | 'profileIterations' | 'precision' | 'hybrid' | 'hybridCores'>;
  /** Resolves when no invocation runs on a GPU. */
  readonly whenIdle: () => Promise<void>;
  readonly shippedPlans: ShippedPlans;
}

type Covered = Extract<GpuCoverage, { covered: true }>;

/** The preparation of one function, as its caller follows it. */
export interface Preparation {
  /** Rejects with {@link StaleError} if the work was overtaken. */
  readonly stage: (stage: Stage, isInHand: boolean) => Promise<void>;
  /** The GPU process knows it. Throws {@link StaleError} as well. */
  registered(layers: readonly GpuLayer[]): void;
  /** It is going to be registered again. Throws {@link StaleError} as well. */
  unregistered(): void;
  /** This plan can serve it already. */
  estimated(prepared: PreparedPlans, source: string): Promise<void>;
  /** Waits for its turn: measurements are made one at a time. */
  readonly measuring: <T>(work: () => Promise<T>) => Promise<T>;
}

export interface PreparedPlans {
  readonly plans: FunctionPlans;
  /** The shapes of its program. */
  readonly shapes: InputShapes;
}

export type Prepared =
  /** `difference`: see {@link Verdict}. */
  | (PreparedPlans & { readonly kind: 'planned'; readonly difference: number | undefined })
  /** The inputs of a call decide. */
  | (PreparedPlans & { readonly kind: 'undecided'; readonly reason: string })
  /** There is no program for these sizes. `inputs`: those whose values decide about sizes. */
  | { readonly kind: 'unsized'; readonly inputs: readonly string[]; readonly reason: string }
  | { readonly kind: 'disagreed'; readonly reason: string }
  /** Whatever the sizes. */
  | { readonly kind: 'unfit'; readonly reason: string };

/** Shapes for a function's first program: the first that ONNX Runtime accepts counts. */
export type Trials = readonly [InputShapes, ...InputShapes[]];

/** The work was overtaken: the process ended, or the function has changed. */
export class StaleError extends Error {
  override readonly name = 'StaleError';
}

/**
 * Parts of the longest recurrent operator when unrolled: two halves of a network then wait a twelfth of a run for each
 * other.
 */
const cells = 12;

export class Preparer {
  readonly #options: PrepareOptions;
  #planner: VariantPlanner | undefined;
  readonly #room: Room;
  readonly gate: Gate;

  constructor(options: PrepareOptions) {
    this.#options = options;
    this.#room = new Room(options.client);
    this.gate = new Gate({ check: options.check, room: this.#room });
  }

  /** @param trials see {@link trialsOf} @throws GpuError, StaleError */
  async prepare(
    version: FunctionVersion,
    runtime: GpuRuntime,
    [wanted, ...alternatives]: Trials,
    following: Preparation,
  ): Promise<Prepared> {
    const { key, metadata, modelPath } = version;
    if (metadata === undefined) return { kind: 'unfit', reason: 'its inputs are not known' };
    const known = await runtime.verdicts.find(version, 'any');
    if (known?.kind === 'disagreed') return known;
    await following.stage('registering', true);
    const hybrid = this.#hasVariants ? { hybrid: { cells } } : {};
    const settings = { precision: runtime.precision };
    const spec = { key, modelPath, shapes: wanted, alternatives, settings, ...hybrid };
    let coverage = await this.#register(spec);
    if (coverage.layers !== undefined) following.registered(coverage.layers);
    if (!coverage.covered && coverage.sizing !== undefined)
      return { kind: 'unsized', inputs: coverage.sizing, reason: whyNot(coverage) };
    const shapes = coverage.shapes ?? wanted;
    let passed: Passed = { kind: 'agreed' };
    if (coverage.covered) {
      const whole = wholeVariant(coverage.layers, capacityBytesOf(runtime.machine));
      passed = await this.gate.pass(version, runtime, [whole], { shapes }, following);
      if (passed.kind === 'disagreed') return passed;
      if (passed.kind === 'agreed') await this.#estimate(coverage, shapes, runtime, following);
    }
    if (coverage.covered) coverage = await this.#inChosenForms(spec, version, coverage, shapes, runtime, following);
    const plans = await this.#plansFor(version, coverage, shapes, runtime, following);
    if (plans === undefined) {
      const reason = coverage.covered ? 'no plan runs it' : whyNot(coverage);
      const isAnySize = coverage.covered || coverage.obstacles.some((obstacle) => obstacle.isAnySize === true);
      return isAnySize ? { kind: 'unfit', reason } : { kind: 'unsized', inputs: [], reason };
    }
    if (passed.kind === 'agreed')
      passed = await this.gate.pass(version, runtime, variantsOf(plans), { shapes }, following);
    switch (passed.kind) {
      case 'agreed':
        return { kind: 'planned', plans, shapes, difference: passed.difference };
      case 'undecided':
        return { kind: 'undecided', plans, shapes, reason: passed.reason };
      case 'disagreed':
        return passed;
    }
  }

  /**
   * Shapes in the order of the trials: a call's, which tell more than a guess, or guesses. A guess that was right on
   * this machine before comes first: what was measured with it is there.
   */
  async trialsOf(
    { version, called, isGuessInVain }: Pick<GpuFunction, 'version' | 'called' | 'isGuessInVain'>,
    { verdicts }: GpuRuntime,
  ): Promise<Trials> {
    const guesses = trialShapes(version.metadata?.inputs ?? []);
    if (called === undefined) return guesses;
    if (isGuessInVain) return [called];
    const isCalled = shapesKey(called) === shapesKey(guesses[0]);
    if (isCalled || sizingOf(called).size > 0) return [called];
    const known = await verdicts.find(version, { shapes: guesses[0] });
    return known?.kind === 'agreed' ? guesses : [called];
  }

  /** A refusal by ONNX Runtime for one call's values says nothing about those of another. @throws GpuError */
  async #register(spec: GpuFunctionSpec): Promise<GpuCoverage> {
    const sizing = [...sizingOf(spec.shapes)];
    try {
      const coverage = await this.#options.client.register(spec);
      const isRefused = !coverage.covered && coverage.layers === undefined && sizing.length > 0;
      return isRefused ? { ...coverage, sizing } : coverage;
    } catch (error) {
      if (!(error instanceof GpuError) || error.code !== 'invalid' || sizing.length === 0) throw error;
      const obstacle = { node: sizing.join(', '), operator: 'input', reason: error.message };
      return { covered: false, obstacles: [obstacle], sizing };
    }
  }

  /**
   * Layers are registered coded where that saves bytes. Once they were measured, those that are decoded too slowly are
   * registered as they are: then that is what host memory holds, and what plans are made of.
   *
   * @throws GpuError, StaleError
   */
  async #inChosenForms(
    spec: GpuFunctionSpec & { readonly settings: ProgramSettings },
    version: FunctionVersion,
    coverage: Covered,
    shapes: InputShapes,
    runtime: GpuRuntime,
    following: Preparation,
  ): Promise<Covered> {
    // The times of an emulated GPU mean nothing.
    if (runtime.isEmulated || coverage.layers.every(({ codedBytes }) => codedBytes === undefined)) return coverage;
    const asTheyAre = layersAsTheyAre(await this.#profile(version, coverage, shapes, runtime, following));
    if (asTheyAre.length === 0) return coverage;
    await following.stage('registering', true);
    following.unregistered();
    await this.#options.client.unregister(spec.key);
    const chosen = await this.#register({ ...spec, shapes, settings: { ...spec.settings, asTheyAre } });
    if (!chosen.covered) throw new GpuError('misuse', `function '${spec.key}' is not covered a second time`);
    following.registered(chosen.layers);
    return chosen;
  }

  get #hasVariants(): boolean {
    const { hybrid, hybridCores } = this.#options.settings;
    return hybrid !== 'off' && hybridCores > 0;
  }

  /** A plan that ships with the project serves a function that has not been measured on this machine yet. */
  async #estimate(
    coverage: Covered,
    shapes: InputShapes,
    { machine, profiles }: GpuRuntime,
    following: Preparation,
  ): Promise<void> {
    const { settings, shippedPlans } = this.#options;
    const { mode } = settings;
    if ((await profiles.find(structureOf(coverage, shapes), areOf(coverage.layers))) !== undefined) return;
    const names = machine.gpus.map(({ model }) => model);
    const found = await shippedPlans(coverage.layers, names);
    if (found === undefined) return;
    const plans = makePlans(found.profile, machine, mode, found.methodsOf(mode));
    await following.estimated({ plans, shapes }, found.source);
  }

  /** Undefined for a function that no plan can run here. */
  async #plansFor(
    version: FunctionVersion,
    coverage: GpuCoverage,
    shapes: InputShapes,
    runtime: GpuRuntime,
    following: Preparation,
  ): Promise<FunctionPlans | undefined> {
    const { client, logger, dataDir } = this.#options;
    const { mode, hybrid, hybridCores, profileIterations } = this.#options.settings;
    const { machine, machineName, isEmulated, scheduler } = runtime;
    // The GPU process has not kept it.
    if (coverage.layers === undefined) return undefined;
    const profile = coverage.covered ? await this.#profile(version, coverage, shapes, runtime, following) : undefined;
    const plans = profile && makePlans(profile, machine, mode);
    // Its operators cannot be timed if they do not fit together.
    if (!this.#hasVariants || plans?.isTooLarge === true) return plans;
    const { makeVariants, parseVariantTimes, VariantPlanner: Planner } = await import('./variants/index.ts');
    this.#planner ??= new Planner();
    const { key, name, settings, metadata } = version;
    const inputs = metadata === undefined ? [] : emptyInputs(metadata, shapes);
    const subject = { key, name, coverage, shapes, inputs, profile, plans, machine, mode, sloMs: settings.sloMs };
    const [folder, identity] = [join(dataDir, 'plans', 'profiles'), `${machineName}; ${hybridCores} cores`];
    const options = {
      client,
      planner: this.#planner,
      logger,
      profiles: new ProfileStore(folder, identity, parseGraphProfile),
      times: isEmulated ? undefined : new ProfileStore(folder, identity, parseVariantTimes),
      kind: hybrid,
      cores: hybridCores,
      iterations: profileIterations,
      measure: <T>(work: () => Promise<T>): Promise<T> =>
        following.measuring(() => this.#whenAlone(key, coverage.layers ?? [], scheduler, following, work)),
    };
    try {
      return (await makeVariants(options, subject)) ?? plans;
    } catch (error) {
      // A function that runs whole on the GPU then runs without variants.
      const isFatal = error instanceof StaleError || (error instanceof GpuError && error.retriable);
      if (plans === undefined || isFatal) throw error;
      await following.stage('measuring', true);
      logger.warn({ function: key, err: error }, 'no plans over GPU and CPU');
      return plans;
    }
  }

  async #profile(
    { key, name }: FunctionVersion,
    coverage: Covered,
    shapes: InputShapes,
    { profiles, scheduler, machine }: GpuRuntime,
    following: Preparation,
  ): Promise<LayerProfile> {
    const bytesMax = capacityBytesOf(machine);
    const { client, settings } = this.#options;
    const { unit, layers } = await profiles.findOrMake(structureOf(coverage, shapes), name, {
      fits: areOf(coverage.layers),
      inTurn: (work) => following.measuring(work),
      make: async () => {
        const { unit, layers } = await this.#whenAlone(key, coverage.layers, scheduler, following, () =>
          client.measure(key, { gpu: 0, iterations: settings.profileIterations, bytesMax }),
        );
        return { unit, layers };
      },
    });
    // It may have been measured with weights that take a little more or less.
    return {
      unit,
      layers: layers.map((layer, index) => {
        const { codedBytes: bytes } = coverage.layers[index]!;
        const { coded } = layer;
        if (coded === undefined || bytes === undefined) return layer;
        return Object.assign({}, layer, { coded: { bytes, decode: coded.decode } });
      }),
    };
  }

  /**
   * Measures while no invocation runs on a GPU and all of the function's weights have room, with staging for layers
   * timed from host memory, and for what coded layers become. The memory is freed afterwards.
   */
  async #whenAlone<T>(
    key: string,
    layers: readonly Pick<GpuLayer, 'bytes' | 'codedBytes'>[],
    scheduler: LiveScheduler,
    following: Preparation,
    work: () => Promise<T>,
  ): Promise<T> {
    const largest = (of: typeof layers): number => Math.max(0, ...of.map((layer) => layer.bytes));
    const coded = layers.filter(({ codedBytes }) => codedBytes !== undefined);
    const bytes = layers.reduce((sum, layer) => sum + layer.bytes, largest(layers) + largest(coded));
    const ready = async (): Promise<void> => {
      // Measuring beside other work would measure both.
      await following.stage('measuring', false);
      await this.#options.whenIdle();
    };
    return await this.#room.use(
      { key, bytes, scheduler, ready, begin: () => following.stage('measuring', true) },
      work,
    );
  }
}

function whyNot({ obstacles }: Extract<GpuCoverage, { covered: false }>): string {
  const [first, ...others] = obstacles;
  if (first === undefined) return 'it is not covered';
  const more = others.length > 0 ? `, and ${others.length} more` : '';
  return `${first.operator} (${first.node}): ${first.reason}${more}`;
}
