/** What the GPU process does: functions with their programs, by input shapes, on one engine. */
import { elementBytes, type Tensor } from '../../tensor/index.ts';
import type { Cuda } from '../driver/types.ts';
import { Engine } from '../engine/index.ts';
import { measureLayers } from '../measure/layer-profile.ts';
import { measureTopology } from '../measure/topology.ts';
import { defaultSettings } from '../program/compile.ts';
import type { Program, WeightLayout } from '../program/types.ts';
import { GpuError, type RunResult } from '../types.ts';
import { joinRequests, rowsOf, splitOutputs } from './batch.ts';
import { CompileError, type Compiler } from './compiler.ts';
import { HybridFunctions } from './hybrid-functions.ts';
import type {
  GpuAnswers,
  GpuCoverage,
  GpuFunctionSpec,
  GpuProcessInfo,
  GpuProcessSettings,
  GpuRequest,
} from './protocol.ts';
import { shapesKey, shapesOf } from './shapes.ts';

interface ServedFunction {
  readonly spec: GpuFunctionSpec;
  /** Of all of it; null where the engine lacks an operator, so that only plans over GPU and CPU can run it. */
  readonly program: Program | null;
  /** By input shapes, the least recently run first. */
  readonly programs: Map<string, Promise<Program>>;
}

export interface RunAnswer {
  readonly answer: GpuAnswers['run'];
  readonly tensors: readonly Tensor[];
}

export class GpuService {
  readonly #engine: Engine;
  readonly #compiler: Compiler;
  readonly #hybrids: HybridFunctions;
  readonly #shapesMax: number;
  readonly #functions = new Map<string, ServedFunction>();

  /** @throws CudaError */
  constructor(cuda: Cuda, compiler: Compiler, settings: GpuProcessSettings) {
    const { hostBytes, slabBytes, gpuBytes, graphs } = settings;
    this.#engine = new Engine(cuda, {
      hostBytes,
      ...(slabBytes === undefined ? {} : { slabBytes }),
      ...(gpuBytes === undefined ? {} : { gpuBytes }),
      ...(graphs === undefined ? {} : { graphs }),
    });
    this.#compiler = compiler;
    this.#shapesMax = settings.shapesMax ?? 8;
    const { hybridCores: cores = 0, hybridCoreNumbers: coreNumbers } = settings;
    this.#hybrids = new HybridFunctions(this.#engine, compiler, {
      cores,
      shapesMax: this.#shapesMax,
      ...(coreNumbers === undefined ? {} : { coreNumbers }),
    });
  }

  info(): GpuProcessInfo {
    const { cuda } = this.#engine;
    const memory = this.#engine.memory();
    return {
      driverVersion: cuda.driverVersion,
      isEmulated: cuda.isEmulated,
      compilerVersion: cuda.compiler.version,
      devices: cuda.devices.map((device) => {
        const { index, name, uuid, pciBusId, computeCapability, multiprocessors, totalBytes } = device;
        const { limitBytes } = memory[index]!;
        return { index, name, uuid, pciBusId, computeCapability, multiprocessors, totalBytes, limitBytes };
      }),
    };
  }

  /** Everything but a run, whose answer has tensors. @throws GpuError */
  async answer(
    request: Exclude<GpuRequest, { op: 'open' | 'run' | 'ping' | 'close' }>,
    signal: AbortSignal,
  ): Promise<unknown> {
    const engine = this.#engine;
    switch (request.op) {
      case 'register':
        return this.#register(request.spec);
      case 'unregister':
        return this.#unregister(request.key);
      case 'load': {
        const { key, gpu, plan, prefix } = request;
        const options = { gpu, plan, signal, ...(prefix === undefined ? {} : { prefix }) };
        return { loadedBytes: await engine.load(key, options) } satisfies GpuAnswers['load'];
      }
      case 'trim':
        return {
          freedBytes: await engine.trim(request.key, request.gpu, request.layers),
        } satisfies GpuAnswers['trim'];
      case 'keep': {
        const { key, gpu, rung } = request;
        const freedBytes = rung === wholePlan ? 0 : await this.#hybrids.keep(key, gpu, rung);
        return { freedBytes } satisfies GpuAnswers['keep'];
      }
      case 'add-plan':
        return (await this.#hybrids.addPlan(request.key, request.plan)) satisfies GpuAnswers['add-plan'];
      case 'drop-plan':
        await this.#hybrids.dropPlan(request.key, request.plan);
        return null;
      case 'operators':
        return (await this.#hybrids.profile(request.key, request.options, signal)) satisfies GpuAnswers['operators'];
      case 'prefetch':
        await engine.prefetch(request.key, signal);
        return null;
      case 'tier':
        return engine.hostTier(request.key);
      case 'state':
        return {
          memory: engine.memory(),
          host: engine.hostState(),
          residencies: engine.residencies(),
        } satisfies GpuAnswers['state'];
      case 'measure': {
        const program = this.#program(this.#served(request.key));
        return await measureLayers(engine, request.key, program, request.options);
      }
      case 'topology':
        return await measureTopology(engine.cuda, request.bytes === undefined ? {} : { copyBytes: request.bytes });
    }
  }

  /** One run for one request or several. @throws GpuError */
  async run(request: GpuRequest & { op: 'run' }, tensors: readonly Tensor[], signal: AbortSignal): Promise<RunAnswer> {
    const { key, gpu, plan, trace, counts, rung = wholePlan } = request;
    let at = 0;
    const requests = counts.map((count) => tensors.slice(at, (at += count)));
    const inputs = joinRequests(requests);
    if (rung !== wholePlan) {
      const result = await this.#hybrids.run(key, rung, inputs, { gpu, plan, trace, signal });
      return this.#toAnswer(result, requests);
    }
    const program = await this.#programFor(this.#served(key), inputs);
    const result = await this.#engine.run(key, program, inputs, { gpu, plan, trace, signal });
    return this.#toAnswer(result, requests);
  }

  #toAnswer({ outputs, ...answer }: RunResult, requests: readonly (readonly Tensor[])[]): RunAnswer {
    const split = splitOutputs(
      outputs,
      requests.map((request) => rowsOf(request) ?? 0),
    );
    return { answer: { ...answer, counts: split.map(({ length }) => length) }, tensors: split.flat() };
  }

  async close(): Promise<void> {
    await this.#compiler.close();
    await this.#hybrids.close();
    await this.#engine.close();
  }

  async #register(given: GpuFunctionSpec): Promise<GpuCoverage> {
    if (this.#functions.has(given.key) || this.#engine.hasFunction(given.key))
      throw new GpuError('invalid', `function '${given.key}' is registered already`);
    let registered: { readonly program: Program; readonly spec: GpuFunctionSpec };
    try {
      registered = await this.#compileAndBind(given);
    } catch (error) {
      if (error instanceof CompileError && error.code === 'unsupported')
        return await this.#registerInPart(given, error);
      throw error;
    }
    const { program, spec } = registered;
    const programs = new Map([[shapesKey(shapesOf(program.inputs)), Promise.resolve(program)]]);
    this.#functions.set(spec.key, { spec, program, programs });
    if (spec.hybrid !== undefined) this.#hybrids.add(spec, program.layout);
    const { layout, arenaBytes, workspaceBytes, launches } = program;
    return {
      covered: true,
      layers: layersOf(layout),
      weightBytes: layout.bytes,
      arenaBytes,
      workspaceBytes,
      launches: launches.length,
    };
  }

  /** Kernels are compiled and loaded now, so that no run waits for that, and an error shows before one. */
  async #compileAndBind(spec: GpuFunctionSpec): Promise<{ readonly program: Program; readonly spec: GpuFunctionSpec }> {
    const { key, modelPath, shapes, settings } = spec;
    const program = await this.#compiler.compile(modelPath, shapes, settings);
    this.#engine.addFunction(key, program.layout);
    try {
      await Promise.all(this.#engine.devices.map(({ index }) => this.#engine.bind(key, program, index)));
      return { program, spec };
    } catch (error) {
      await this.#engine.removeFunction(key);
      const isRefused = error instanceof GpuError && error.code === 'unsupported';
      if (!isRefused || settings?.products === 'own') throw error;
      // The library has no algorithm for one of its products: the engine's own kernel is slower, and takes them all.
      return await this.#compileAndBind({ ...spec, settings: { ...defaultSettings, ...settings, products: 'own' } });
    }
  }

  /** What the engine cannot run as a whole can still have plans that leave to the CPU what it lacks. */
  async #registerInPart(spec: GpuFunctionSpec, { obstacles }: CompileError): Promise<GpuCoverage> {
    if (spec.hybrid === undefined || this.#hybrids.cores.count === 0) return { covered: false, obstacles };
    const layout = await this.#compiler.layout(spec.modelPath, spec.settings);
    this.#engine.addFunction(spec.key, layout);
    this.#functions.set(spec.key, { spec, program: null, programs: new Map() });
    this.#hybrids.add(spec, layout);
    return { covered: false, obstacles, layers: layersOf(layout) };
  }

  async #unregister(key: string): Promise<null> {
    this.#served(key);
    this.#functions.delete(key);
    await this.#hybrids.remove(key);
    await this.#engine.removeFunction(key);
    return null;
  }

  #served(key: string): ServedFunction {
    const served = this.#functions.get(key);
    if (served === undefined) throw new GpuError('unknown-function', `the GPU process knows no function '${key}'`);
    return served;
  }

  #program({ program, spec }: ServedFunction): Program {
    if (program !== null) return program;
    throw new GpuError(
      'invalid',
      `the GPU engine cannot run all of function '${spec.key}': it takes a plan over GPU and CPU`,
    );
  }

  /** The program for these inputs' shapes, compiled where it is not there; beyond the bound the least recently run goes. */
  async #programFor(served: ServedFunction, inputs: readonly Tensor[]): Promise<Program> {
    const { spec, programs } = served;
    const own = this.#program(served);
    checkNames(own, inputs);
    const shapes = shapesOf(inputs);
    const key = shapesKey(shapes);
    let program = programs.get(key);
    if (program === undefined) {
      program = this.#compiler.compile(spec.modelPath, shapes, spec.settings);
      program.catch(() => programs.delete(key));
    }
    programs.delete(key);
    programs.set(key, program);
    for (const [oldKey, old] of programs) {
      if (programs.size <= this.#shapesMax) break;
      const oldProgram = await old.catch(() => undefined);
      if (oldProgram === own || oldKey === key) continue;
      programs.delete(oldKey);
      if (oldProgram !== undefined) await this.#engine.unbind(spec.key, oldProgram.key);
    }
    return await program;
  }
}

/** Everything on the GPU. */
const wholePlan = 'gpu';

const layersOf = ({ layers }: WeightLayout) => layers.map(({ name, kind, bytes }) => ({ name, kind, bytes }));

/** What the compiler would say of a missing input is harder to understand. */
function checkNames({ inputs }: Program, given: readonly Tensor[]): void {
  const missing = inputs.find(({ name }) => !given.some((tensor) => tensor.name === name));
  if (missing !== undefined) throw new GpuError('invalid', `input '${missing.name}' is missing`);
  const unknown = given.find(({ name }) => !inputs.some((input) => input.name === name));
  if (unknown !== undefined) throw new GpuError('invalid', `'${unknown.name}' is not an input of the function`);
  const odd = given.find(({ datatype }) => elementBytes[datatype] === 0);
  if (odd !== undefined)
    throw new GpuError('invalid', `input '${odd.name}' is ${odd.datatype}, which no GPU program takes`);
}
