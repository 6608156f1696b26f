/**
 * Compiles a prepared graph and a plan to a hybrid program: the GPU's program with its gates, and the model files of
 * the cores' sub-graphs.
 */
import { dataTypeOf, tensorBytes } from '../../onnx/index.ts';
import { typedGraph } from '../../operators/index.ts';
import { packBytes, type DataType, type Tensor } from '../../tensor/index.ts';
import type { Operator } from '../operators/types.ts';
import { layoutOf } from '../program/assemble.ts';
import { writeNarrowed } from '../program/narrowed.ts';
import { compileProgram } from '../program/compile.ts';
import { keptProgram } from '../program/compile-model.ts';
import { bytesOf } from '../program/prepare.ts';
import type { PreparedGraph } from '../program/prepared.ts';
import type { Program, WeightLayout } from '../program/types.ts';
import { GpuError, type ProgramSettings } from '../types.ts';
import { deadlockOf, gatesOf, type Gates } from './gates.ts';
import { partition, type Partition } from './partition.ts';
import { relocate } from './relocate.ts';
import { initializersOf, partWriter } from './submodel.ts';
import type { HybridPlan } from './types.ts';

/** A value that is in host memory during a run. */
export interface HybridValue {
  readonly name: string;
  readonly datatype: DataType;
  /** Undefined if only the run knows it: then cores pass it on by value. */
  readonly shape: readonly number[] | undefined;
  readonly bytes: number;
}

export interface HybridCall {
  readonly core: number;
  readonly modelPath: string;
  /** `value`: the name in the graph; `name`: the name in the file. */
  readonly inputs: readonly { readonly value: string; readonly name: string }[];
  readonly outputs: readonly { readonly value: string; readonly name: string }[];
}

/** Plain data, which a message between threads can hold. */
export type HybridProgram = Awaited<ReturnType<typeof compileHybrid>>;

const noGates: Gates = { before: new Map(), after: new Map() };

/**
 * @param cacheFolder for programs, and for models of the cores' parts
 * @param layout the function's, if the prepared graph is an unrolled form of it
 * @throws GpuError 'invalid' for a plan that cannot be carried out; ProgramError 'unsupported' if it places operators
 *   on the GPU that the engine lacks
 */
export async function compileHybrid(
  prepared: PreparedGraph,
  plan: HybridPlan,
  operators: readonly Operator[],
  settings: ProgramSettings,
  cacheFolder: string,
  layout: WeightLayout = layoutOf(prepared.base, settings),
) {
  // Of an unrolled graph: parts of the function's weights are found by their bytes.
  await writeNarrowed(prepared.base, settings);
  const shares = partition(prepared, plan);
  const { program, gates } = await compileGpu(shares, plan, operators, settings, cacheFolder, layout);
  const write = partWriter(prepared, cacheFolder);
  const calls: HybridCall[] = [];
  for (const share of shares.cpu) {
    const { modelPath, names } = await write(share);
    const named = (value: string): { value: string; name: string } => ({ value, name: names.get(value) ?? value });
    calls.push({
      core: share.core,
      modelPath,
      inputs: share.inputs.map(named),
      outputs: share.outputs.map(named),
    });
  }
  const graph = typedGraph(prepared.model);
  const valueOf = (name: string): HybridValue => {
    const known = prepared.values.get(name);
    if (known !== undefined) return { name, ...known, bytes: bytesOf(known) };
    const datatype = dataTypeOf(graph.type(name)?.elementType ?? 0);
    if (datatype === undefined) throw new GpuError('invalid', `the element type of '${name}' is not known`);
    return { name, datatype, shape: undefined, bytes: 0 };
  };
  const layers = program?.layersRead ?? [];
  const names = new Set(calls.flatMap(({ inputs, outputs }) => [...inputs, ...outputs].map(({ value }) => value)));
  return {
    promise: {
      plan: plan.id,
      layers,
      weightBytes: layers.reduce((sum, layer) => sum + layout.layers[layer]!.bytes, 0),
      cores: calls.reduce((most, { core }) => Math.max(most, core), 0),
    },
    layout,
    /** The function's inputs, in its order. */
    inputs: prepared.inputs.map(valueOf),
    outputs: prepared.outputs.map(valueOf),
    /** Null when everything runs on the CPU. */
    program,
    gates,
    calls,
    /** All inputs and outputs of the cores' calls. */
    values: [...names].map(valueOf),
    /** Outputs that are weights or constants. */
    fixed: fixedOutputs(prepared),
  };
}

/**
 * A fused kernel makes the result of its first operator later than that operator alone would. If this causes a deadlock
 * with the CPU, the program is compiled without fusion.
 */
async function compileGpu(
  { gpu, toGpu, toCpu, cpu }: Partition,
  plan: HybridPlan,
  operators: readonly Operator[],
  settings: ProgramSettings,
  cacheFolder: string,
  layout: WeightLayout,
): Promise<{ readonly program: Program | null; readonly gates: Gates }> {
  if (gpu === null) return { program: null, gates: noGates };
  let missing: string | undefined;
  for (const fusion of [true, false]) {
    const { base, shapes } = gpu;
    const of = { base, shapes, operators, settings, fusion, part: [plan.order, plan.segments] };
    const cached = await keptProgram(of, cacheFolder, (key) =>
      compileProgram(gpu, operators, settings, { fusion, key }),
    );
    const compiled = relocate({ ...cached, layout: layoutOf(base, settings) }, layout);
    const layersRead = [...new Set(compiled.launches.flatMap(({ reads }) => reads))].sort((a, b) => a - b);
    const program = { ...compiled, layersRead };
    const gates = gatesOf(program, new Set(toGpu), new Set(toCpu));
    missing = deadlockOf(gates, program.launches.length, cpu);
    if (missing === undefined) return { program, gates };
  }
  throw new GpuError(
    'invalid',
    `plan '${plan.id}' cannot be carried out: the GPU waits for '${missing}', which waits for the GPU`,
  );
}

/**
 * Outputs that do not depend on the inputs: weights, and values that folding has made constants.
 *
 * @throws GpuError 'invalid' for an output whose element type has no datatype
 */
function fixedOutputs(prepared: PreparedGraph): Tensor[] {
  const initializers = initializersOf(prepared);
  const given = new Set(prepared.inputs);
  return prepared.outputs.flatMap((name): Tensor[] => {
    const tensor = given.has(name) ? undefined : initializers(name)?.tensor;
    if (tensor === undefined) return [];
    const datatype = dataTypeOf(tensor.dataType);
    if (datatype === undefined) throw new GpuError('invalid', `the element type of '${name}' is not known`);
    const data = datatype === 'BYTES' ? packBytes(tensor.stringData ?? []) : tensorBytes(tensor);
    return [{ name, datatype, shape: tensor.dims.map(Number), data }];
  });
}
