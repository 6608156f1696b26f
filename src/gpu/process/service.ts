/** The GPU process's work: functions with their programs, by input shapes, on one engine. */
import { elementBytes, type Tensor } from '../../tensor/index.ts';
import { WithTensors, type Methods, type SharedMemory } from '../../process/index.ts';
import type { Cuda } from '../driver/types.ts';
import { Engine } from '../engine/engine.ts';
import type { HybridFunctions } from '../hybrid/index.ts';
import { measureLayers } from '../measure/layer-profile.ts';
import { measureTopology } from '../measure/topology.ts';
import { engineVersion } from '../program/engine-version.ts';
import { inputShape, shapesKey, shapesOf, sizingOf } from '../program/input-shapes.ts';
import type { InputShapes, Obstacle, Program, WeightLayout } from '../program/types.ts';
import { GpuError, type Capability, type RunResult } from '../types.ts';
import { disagreementOf, disagreementOfBoth, largestDifference, precisionOf, tolerances } from '../gate/compare.ts';
import { runPadded, type Padding } from '../padding/padded-run.ts';
import { CompileError, type Compiler } from './compiler.ts';
import {
  timingsTensor,
  type GpuApi,
  type GpuCheck,
  type GpuCoverage,
  type GpuFunctionSpec,
  type GpuLayer,
  type GpuProcessInfo,
  type GpuProcessSettings,
  type OnGpu,
  type ShapeCoverage,
  type ShapeOrder,
} from './protocol.ts';
import { KeptPlans } from './sent-plans.ts';
import { getOrMake, given, KeyedMutex } from '../../tools/index.ts';

interface ServedFunction {
  readonly spec: GpuFunctionSpec;
  /** For the whole model; null if the engine lacks an operator, so that only plans over GPU and CPU can run it. */
  readonly program: Program | null;
  /** By input shapes, the least recently run first. */
  readonly programs: Map<string, Promise<Program>>;
  /** Inputs whose values programs are made for. */
  readonly sizing: ReadonlySet<string>;
  /** By input shapes: how these run in the program of more rows. */
  readonly paddings: Map<string, Padding>;
  readonly plans: KeptPlans;
}

interface Registered {
  readonly program: Program;
  readonly spec: GpuFunctionSpec;
  /** Ids of its layers. */
  readonly ids: readonly string[];
}

interface Compiled {
  readonly program: Program;
  /** The shapes that it was made for. */
  readonly shapes: InputShapes;
}

/** An answer of a GPU that differs from ONNX Runtime's. */
interface Checked {
  readonly key: string;
  readonly gpu: number;
  readonly inputs: readonly Tensor[];
  readonly actual: readonly Tensor[];
  readonly expected: readonly Tensor[];
  readonly signal: AbortSignal;
  /** The verdict if it is right all the same, and if not. */
  readonly agreed: GpuCheck;
  readonly disagreed: Extract<GpuCheck, { kind: 'disagreed' }>;
}

/** The engine lacks something for a model in these shapes. */
class UncoveredError extends Error {
  readonly obstacles: readonly Obstacle[];
  readonly shapes: InputShapes;
  constructor(obstacles: readonly Obstacle[], shapes: InputShapes) {
    super('the engine lacks something');
    this.obstacles = obstacles;
    this.shapes = shapes;
  }
}

type OrderOf<Name extends keyof GpuApi> = Parameters<GpuApi[Name]>[0];

/** Of a GPU's memory, what weights may take: the rest is for activations and for rings. */
const codedShareMost = 0.85;

type ServiceCompiler = Pick<Compiler, 'make' | 'close'>;

export class GpuService {
  readonly #engine: Engine;
  readonly #compiler: ServiceCompiler;
  readonly #settings: GpuProcessSettings;
  /** Its code is loaded, and its threads start, with the first function that may have plans over GPU and CPU. */
  #hybrids: Promise<HybridFunctions> | undefined;
  readonly #shapesMax: number;
  readonly #functions = new Map<string, ServedFunction>();
  /** By GPU: a later run or load begins after the frees that were asked for before it. */
  readonly #frees = new KeyedMutex();
  /** By GPU: runs under way behind which the host orders the next ones already. */
  readonly #countedAsOver = new Map<number, Set<Promise<unknown>>>();
  readonly methods: Omit<Methods<GpuApi>, 'open' | 'close'> = {
    register: ({ spec }) => this.#register(spec),
    unregister: ({ key }) => this.#unregister(key),
    run: async ({ plan: placed, notes, ...order }, { tensors, signal, note }) => {
      const plan = this.#served(order.key).plans.of(placed);
      if (plan === undefined) throw new GpuError('invalid', `the GPU process was not sent plan ${placed.place}`);
      const running = this.run({ ...order, plan }, tensors, signal, notes ? note : undefined, true);
      if (!notes) this.#countAsOver(order, running);
      const { outputs, release, timings, ...answer } = await running;
      return new WithTensors(answer, [...outputs, timingsTensor(timings)], release);
    },
    load: async ({ key, gpu, plan }, { signal }) => {
      await this.#freed(gpu);
      return await this.#engine.load(key, { gpu, plan, signal });
    },
    trim: ({ key, gpu, layers }) => this.#free(gpu, () => this.#engine.trim(key, gpu, layers)),
    keep: ({ key, gpu, layers }) => this.#free(gpu, () => this.#engine.keep(key, gpu, new Set(layers))),
    release: ({ key, gpu, layers }) => this.#free(gpu, () => this.#engine.release(key, gpu, layers)),
    addPlan: async ({ key, plan }) => await (await this.#hybrid()).addPlan(key, plan),
    dropPlan: async ({ key, plan }) => await (await this.#hybrid()).dropPlan(key, plan),
    operators: async ({ key, options }, { signal }) => await (await this.#hybrid()).profile(key, options, signal),
    stage: ({ key, layers }) => this.#engine.stage(key, layers),
    drop: ({ key, layers, ofAll }) => this.#engine.drop(key, layers, ofAll),
    resizeHost: ({ hostBytes }) => this.#engine.resizeHost(hostBytes),
    state: () => ({
      memory: this.#engine.memory(),
      links: this.#engine.links(),
      layersRepaired: this.#engine.layersRepaired,
      host: this.#engine.hostState(),
      residencies: this.#engine.residencies(),
    }),
    measure: ({ key, options }) => measureLayers(this.#engine, key, this.#program(this.#served(key)), options),
    check: (order, { tensors, signal }) => this.#check(order, tensors, signal),
    prepare: ({ key, order }) => this.#prepare(key, order),
    topology: ({ copyBytes }) => measureTopology(this.#engine.cuda, copyBytes),
  };

  /** @throws CudaError */
  constructor(
    cuda: Cuda,
    compiler: ServiceCompiler,
    settings: GpuProcessSettings,
    without: ReadonlySet<Capability>,
    shared?: SharedMemory,
  ) {
    const { hostBytes, slabBytes, gpuBytes } = settings;
    this.#settings = settings;
    this.#engine = new Engine(cuda, { hostBytes, without, onSharedRefused, ...given({ slabBytes, gpuBytes, shared }) });
    this.#compiler = this.#codes(without) ? withCoding(compiler, this.#codedBytesMost()) : compiler;
    this.#shapesMax = settings.shapesMax ?? 16;
  }

  /** A kernel tells in pinned memory what it has found of a coded layer. */
  #codes(without: ReadonlySet<Capability>): boolean {
    return this.#settings.coding === 'auto' && !without.has('host-reads-by-kernels');
  }

  /** Of a larger function, layers would have to be executed from host memory. */
  #codedBytesMost(): number {
    return Math.floor(codedShareMost * Math.min(...this.#engine.memory().map(({ limitBytes }) => limitBytes)));
  }

  info(): GpuProcessInfo {
    const { cuda } = this.#engine;
    const memory = this.#engine.memory();
    return {
      driverVersion: cuda.driverVersion,
      isEmulated: cuda.isEmulated,
      compilerVersion: cuda.compiler.version,
      engineVersion: engineVersion(),
      devices: cuda.devices.map((device) => {
        const { index, name, uuid, pciBusId, computeCapability, multiprocessors, totalBytes } = device;
        const { limitBytes } = memory[index]!;
        return { index, name, uuid, pciBusId, computeCapability, multiprocessors, totalBytes, limitBytes };
      }),
    };
  }

  /** @throws GpuError */
  async run(
    order: OnGpu & { readonly trace: boolean },
    inputs: readonly Tensor[],
    signal: AbortSignal,
    onLaneFree?: () => void,
    lends = false,
  ): Promise<RunResult> {
    const { key, gpu, plan, trace, variant = wholePlan } = order;
    const options = { gpu, plan, trace, signal };
    await this.#freed(gpu);
    const served = this.#served(key);
    const run = async (taken: readonly Tensor[]): Promise<RunResult> =>
      variant === wholePlan
        ? await this.#engine.run(key, await this.#programFor(served, taken), taken, { ...options, onLaneFree, lends })
        : await (await this.#hybrid()).run(key, variant, taken, options);
    const padding = served.paddings.get(shapesKey(shapesOf(inputs, served.sizing)));
    const result = await (padding === undefined ? run(inputs) : runPadded(padding, inputs, run));
    const { precision = 'exact' } = served.spec.settings ?? {};
    return precision === 'exact' ? result : { ...result, precision };
  }

  /**
   * Runs a function on a GPU and in ONNX Runtime on the same inputs. ONNX Runtime goes first, in a low-priority
   * process, so that the GPU is held only for one run. @throws GpuError
   */
  async #check(order: OrderOf<'check'>, tensors: readonly Tensor[], signal: AbortSignal): Promise<GpuCheck> {
    const { key, gpu, plan, variant = wholePlan, isAnswered } = order;
    const { spec, program } = this.#served(key);
    const isDrawn = order.inputs === 'drawn';
    let inputs: readonly Tensor[] = order.inputs === 'drawn' ? [] : tensors.slice(0, order.inputs);
    let expected: readonly Tensor[];
    try {
      if (isDrawn) inputs = await this.#compiler.make('inputs', { modelPath: spec.modelPath, shapes: spec.shapes });
      expected = await this.#compiler.make('reference', { modelPath: spec.modelPath, inputs });
    } catch (error) {
      if (error instanceof CompileError) return { kind: 'undecided', why: error.message };
      throw error;
    }
    let actual = tensors.slice(inputs.length);
    if (!isAnswered) {
      actual = [...(await this.run({ key, gpu, plan, variant, trace: false }, inputs, signal)).outputs];
    }
    const checkedProgram = program ?? {
      layout: await this.#compiler.make('layout', { modelPath: spec.modelPath }, spec.settings),
    };
    const precision = precisionOf(checkedProgram.layout, [...inputs, ...expected], spec.settings?.precision === 'tf32');
    const found = disagreementOf(actual, expected, precision);
    if (found?.isFaint === true) return { kind: 'undecided', why: `output '${found.output}': ${found.why}` };
    const agreed: GpuCheck = {
      kind: 'agreed',
      inputs: isDrawn ? 'drawn' : 'given',
      precision,
      tolerance: tolerances[precision],
    };
    if (found === undefined) return { ...agreed, difference: largestDifference(actual, expected) };
    const disagreed = { kind: 'disagreed', output: found.output, why: found.why, precision } as const;
    return (await this.#throughJumps({ key, gpu, inputs, actual, expected, signal, agreed, disagreed })) ?? disagreed;
  }

  /**
   * A verdict on an answer that differs behind operators that jump, see gate/jumps.ts; undefined if it differs elsewhere.
   * @throws GpuError
   */
  async #throughJumps(checked: Checked): Promise<GpuCheck | undefined> {
    const { key, gpu, inputs, actual, expected, signal, agreed, disagreed } = checked;
    const { spec, program: served } = this.#served(key);
    const { modelPath, settings } = spec;
    const { precision } = disagreed;
    const outputs = expected.flatMap((each) =>
      disagreementOf(actual, [each], precision)?.isFaint === false ? [each.name] : [],
    );
    const undecided = (why: string): GpuCheck => ({
      kind: 'undecided',
      why: `${disagreed.output} differs behind an operator that jumps (Equal, ArgMax, Round), ${why}: ${disagreed.why}`,
    });
    try {
      const shapes = shapesOf(inputs, this.#served(key).sizing);
      const opened = await this.#compiler.make('opened', { modelPath, shapes, outputs }, settings);
      if (opened === null) return undefined;
      if (served === null) return undecided('and the engine does not run all of the model');
      const all = await this.#runFromHost(key, gpu, opened.program, inputs, signal);
      const values = all.filter(({ name }) => opened.values.includes(name));
      const right = await this.#compiler.make('openedReference', { modelPath, inputs, values });
      const wrong = disagreementOf(all, right, precision);
      if (wrong?.isFaint === false) return { kind: 'disagreed', output: wrong.output, why: wrong.why, precision };
      const found = disagreementOfBoth(actual, expected, all, precision);
      return found === undefined || found.isFaint ? agreed : undecided('where the values tie');
    } catch (error) {
      const isOfMemory = error instanceof GpuError && /memory/.test(error.code);
      const isOfModel = error instanceof CompileError || isOfMemory;
      if (!isOfModel) throw error;
      return undecided(`and what it reads cannot be compared (${error.message})`);
    }
  }

  /** One run that leaves no weights on the GPU which were not there. @throws GpuError */
  async #runFromHost(
    key: string,
    gpu: number,
    program: Program,
    inputs: readonly Tensor[],
    signal: AbortSignal,
  ): Promise<readonly Tensor[]> {
    const layers = program.layout.layers.map(({ name }) => ({ name, method: 'dha', link: null }) as const);
    const plan = { mode: 'dha', primary: gpu, secondaries: [], bytesGpu: 0, layers } as const;
    try {
      return (await this.#engine.run(key, program, inputs, { gpu, plan, trace: false, signal })).outputs;
    } finally {
      await this.#engine.unbind(key, program.key);
    }
  }

  /** Shapes that do not fit, or that the engine does not cover, are no verdict on the function. @throws GpuError */
  async #prepare(key: string, { shapes, program: taken = shapes, instead }: ShapeOrder): Promise<ShapeCoverage> {
    const served = this.#served(key);
    const { paddings, spec } = served;
    if (instead !== undefined) {
      await this.#dropProgram(served, shapesKey(instead));
      (await this.#hybrids)?.drop(key, instead);
    }
    try {
      const isOwn = shapesKey(taken) === shapesKey(shapes);
      const found = isOwn
        ? undefined
        : await this.#compiler.make('padding', { modelPath: spec.modelPath, shapes, program: taken });
      if (found?.kind === 'exact') return { covered: false, reason: found.reason, isExactOnly: true };
      if (served.program !== null) {
        const program = await this.#programOf(served, taken);
        await Promise.all(this.#engine.devices.map(({ index }) => this.#engine.bind(key, program, index)));
      }
      await (await this.#hybrids)?.prepare(key, taken);
      if (found === undefined) paddings.delete(shapesKey(shapes));
      else paddings.set(shapesKey(shapes), found.padding);
      return { covered: true };
    } catch (error) {
      if (!(error instanceof CompileError)) throw error;
      return { covered: false, reason: error.message, obstacles: error.obstacles };
    }
  }

  async close(): Promise<void> {
    await this.#compiler.close();
    await (await this.#hybrids)?.close();
    await this.#engine.close();
  }

  #freed(gpu: number): Promise<void> {
    return this.#frees.run(String(gpu), () => Promise.resolve());
  }

  /** Frees nothing that a run needs which the host counts as over, and which has not taken its turn yet. */
  #free(gpu: number, free: () => Promise<number>): Promise<number> {
    const runs = [...(this.#countedAsOver.get(gpu) ?? [])];
    return this.#frees.run(String(gpu), async () => {
      await Promise.all(runs);
      return await free();
    });
  }

  #countAsOver({ gpu }: { readonly gpu: number }, running: Promise<unknown>): void {
    const runs = getOrMake(this.#countedAsOver, gpu, () => new Set<Promise<unknown>>());
    const over: Promise<unknown> = running.then(
      () => runs.delete(over),
      () => runs.delete(over),
    );
    runs.add(over);
  }

  #hybrid(): Promise<HybridFunctions> {
    this.#hybrids ??= this.#loadHybrid();
    return this.#hybrids;
  }

  async #loadHybrid(): Promise<HybridFunctions> {
    const { HybridFunctions } = await import('../hybrid/index.ts');
    const { hybridCores: cores = 0, hybridCoreNumbers: coreNumbers } = this.#settings;
    return new HybridFunctions(this.#engine, this.#compiler, {
      cores,
      shapesMax: this.#shapesMax,
      ...given({ coreNumbers }),
    });
  }

  async #register(given: GpuFunctionSpec): Promise<GpuCoverage> {
    if (this.#functions.has(given.key) || this.#engine.hasFunction(given.key))
      throw new GpuError('invalid', `function '${given.key}' is registered already`);
    let registered: Registered;
    try {
      registered = await this.#compileAndBind(given);
    } catch (error) {
      if (error instanceof UncoveredError) return await this.#registerInPart({ ...given, shapes: error.shapes }, error);
      throw error;
    }
    const { program, spec, ids } = registered;
    const { programs } = this.#serve(spec, program);
    programs.set(shapesKey(spec.shapes), Promise.resolve(program));
    if (spec.hybrid !== undefined) (await this.#hybrid()).add(spec, program.layout);
    const { layout, launches } = program;
    const isOther = shapesKey(spec.shapes) !== shapesKey(given.shapes);
    return {
      covered: true,
      ...(isOther ? { shapes: spec.shapes } : {}),
      layers: layersOf(layout, ids),
      weightBytes: layout.bytes,
      launches: launches.length,
    };
  }

  /** Compiles and loads kernels now, so that no run waits for that, and errors show before a run. */
  async #compileAndBind(spec: GpuFunctionSpec): Promise<Registered> {
    const { key } = spec;
    const { program, shapes } = await this.#compileFirst(spec);
    const { layout } = program;
    const ids = await this.#compiler.make('ids', { layout });
    this.#engine.addFunction(key, layout, ids);
    try {
      await Promise.all(this.#engine.devices.map(({ index }) => this.#engine.bind(key, program, index)));
      return { program, spec: { ...spec, shapes }, ids };
    } catch (error) {
      await this.#engine.removeFunction(key);
      throw error;
    }
  }

  /**
   * For the first shapes for which ONNX Runtime accepts the graph and the engine has all that they need.
   * @throws UncoveredError for the first that ONNX Runtime accepts if the engine lacks something for all of them
   */
  async #compileFirst({ modelPath, shapes, alternatives = [], settings }: GpuFunctionSpec): Promise<Compiled> {
    let refusal: unknown;
    let uncovered: UncoveredError | undefined;
    /** What the engine lacked in the last trial: where it lacks the same in the next, sizes are not the cause. */
    let lacking: string | undefined;
    for (const tried of [shapes, ...alternatives]) {
      try {
        const program = await this.#compiler.make('program', { modelPath, shapes: tried }, settings);
        // Shapes may leave out inputs whose sizes the model fixes.
        const shapes = program.inputs.map(({ name, shape }) => inputShape(tried, name) ?? { name, shape });
        return { program, shapes };
      } catch (error) {
        if (!(error instanceof CompileError)) throw error;
        if (error.code === 'unsupported') {
          const isLast = error.obstacles.some(({ isAnySize }) => isAnySize === true) || error.message === lacking;
          lacking = error.message;
          uncovered ??= new UncoveredError(error.obstacles, tried);
          if (isLast) break;
        } else refusal ??= error;
      }
    }
    throw uncovered ?? refusal;
  }

  /** A model that the engine cannot run as a whole may still have plans that leave the missing operators to the CPU. */
  async #registerInPart(spec: GpuFunctionSpec, { obstacles }: UncoveredError): Promise<GpuCoverage> {
    if (sizingOf(spec.shapes).size === 0) {
      const sizing = await this.#compiler.make('sizing', { modelPath: spec.modelPath });
      if (sizing.length > 0) return { covered: false, obstacles, sizing };
    }
    if (spec.hybrid === undefined || (this.#settings.hybridCores ?? 0) === 0) return { covered: false, obstacles };
    const layout = await this.#compiler.make('layout', { modelPath: spec.modelPath }, spec.settings);
    this.#engine.addFunction(spec.key, layout);
    this.#serve(spec, null);
    (await this.#hybrid()).add(spec, layout);
    return { covered: false, obstacles, shapes: spec.shapes, layers: layersOf(layout) };
  }

  #serve(spec: GpuFunctionSpec, program: Program | null): ServedFunction {
    const served: ServedFunction = {
      spec,
      program,
      programs: new Map(),
      sizing: sizingOf(spec.shapes),
      paddings: new Map(),
      plans: new KeptPlans(),
    };
    this.#functions.set(spec.key, served);
    return served;
  }

  async #unregister(key: string): Promise<void> {
    this.#served(key);
    this.#functions.delete(key);
    await (await this.#hybrids)?.remove(key);
    await this.#engine.removeFunction(key);
  }

  #served(key: string): ServedFunction {
    const served = this.#functions.get(key);
    if (served === undefined) throw unknownFunction(key);
    return served;
  }

  #program({ program, spec }: ServedFunction): Program {
    if (program !== null) return program;
    throw new GpuError(
      'invalid',
      `the GPU engine cannot run all of function '${spec.key}': it takes a plan over GPU and CPU`,
    );
  }

  /** The program for these inputs' shapes, compiled if missing; over the limit the least recently run is freed. */
  async #programFor(served: ServedFunction, inputs: readonly Tensor[]): Promise<Program> {
    checkNames(this.#program(served), inputs);
    return await this.#programOf(served, shapesOf(inputs, served.sizing));
  }

  async #programOf(served: ServedFunction, shapes: InputShapes): Promise<Program> {
    const { spec, programs } = served;
    const key = shapesKey(shapes);
    let program = programs.get(key);
    if (program === undefined) {
      program = this.#compiler.make('program', { modelPath: spec.modelPath, shapes }, spec.settings);
      program.catch(() => programs.delete(key));
    }
    programs.delete(key);
    programs.set(key, program);
    const own = shapesKey(spec.shapes);
    for (const oldKey of programs.keys()) {
      // The registration's program is kept in addition.
      if (programs.size - 1 <= this.#shapesMax) break;
      if (oldKey !== own && oldKey !== key) await this.#dropProgram(served, oldKey);
    }
    const made = await program;
    // Meanwhile it may have been removed, and another model registered under its key: its weights are not for this program.
    if (this.#functions.get(spec.key) !== served) throw unknownFunction(spec.key);
    return made;
  }

  async #dropProgram({ spec, programs, paddings }: ServedFunction, key: string): Promise<void> {
    for (const [few, { program }] of paddings) if (shapesKey(program) === key) paddings.delete(few);
    const old = await programs.get(key)?.catch(() => undefined);
    programs.delete(key);
    if (old !== undefined) await this.#engine.unbind(spec.key, old.key);
  }
}

function onSharedRefused({ message }: Error): void {
  const what = 'memory that the GPU process shares with the host cannot be pinned';
  process.stderr.write(`${what} (${message}): large inputs and outputs of GPU calls are copied once more\n`);
}

const unknownFunction = (key: string): GpuError =>
  new GpuError('unknown-function', `the GPU process knows no function '${key}'`);

/** The planners' name for it; importing it would load all planners into this process. */
const wholePlan = 'gpu';

const layersOf = ({ layers }: WeightLayout, ids?: readonly string[]) =>
  layers.map((layer): GpuLayer => {
    const { index, name, kind, bytes, coded } = layer;
    return { name, kind, bytes, ...given({ codedBytes: coded?.codedBytes, id: ids?.[index] }) };
  });

/** Has the layers of models of at most so many bytes coded. */
const withCoding = (compiler: ServiceCompiler, coding: number): ServiceCompiler => ({
  make: (what, order, settings) => compiler.make(what, order, { precision: 'exact', ...settings, coding }),
  close: () => compiler.close(),
});

/** The compiler's message about a missing input is harder to understand. */
function checkNames({ inputs }: Program, given: readonly Tensor[]): void {
  const missing = inputs.find(({ name }) => !given.some((tensor) => tensor.name === name));
  if (missing !== undefined) throw new GpuError('invalid', `input '${missing.name}' is missing`);
  const unknown = given.find(({ name }) => !inputs.some((input) => input.name === name));
  if (unknown !== undefined) throw new GpuError('invalid', `'${unknown.name}' is not an input of the function`);
  const odd = given.find(({ datatype }) => elementBytes[datatype] === 0);
  if (odd !== undefined)
    throw new GpuError('invalid', `input '${odd.name}' is ${odd.datatype}, which no GPU program takes`);
}
