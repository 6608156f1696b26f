/** Runs programs in the simplest way: one stream, every weight on the device, launches in sequence. */
import type * as OrtModule from 'onnxruntime-node';
import type { Cuda, CudaDevice, DeviceMemory, Releasable } from '../../src/gpu/driver/types.ts';
import { WeightReader } from '../../src/gpu/program/weight-reader.ts';
import { operators as allOperators } from '../../src/gpu/operators/index.ts';
import type { Operator } from '../../src/gpu/operators/types.ts';
import { compileModel, type CompileModelOptions } from '../../src/gpu/program/index.ts';
import { ownProductOf } from '../../src/gpu/program/own-product.ts';
import type { Launch, Operand, Program } from '../../src/gpu/program/types.ts';
import {
  byteCount,
  elements,
  loadOnnxRuntime,
  type ArrayOf,
  type DataType,
  type Tensor,
  bf16ToNumber,
  fp16ToNumber,
} from '../../src/tensor/index.ts';
import { shapesOf } from '../../src/gpu/program/input-shapes.ts';

const ort = loadOnnxRuntime();

/** Zero bytes cannot be allocated. */
const allocate = (device: CudaDevice, bytes: number): DeviceMemory => device.allocate(Math.max(256, bytes));

class Execution {
  readonly #held: Releasable[] = [];
  readonly #cuda: Cuda;
  readonly #program: Program;

  constructor(cuda: Cuda, program: Program) {
    this.#cuda = cuda;
    this.#program = program;
  }

  #hold<Held extends Releasable>(held: Held): Held {
    this.#held.push(held);
    return held;
  }

  async run(inputs: readonly Tensor[]): Promise<Tensor[]> {
    const program = this.#program;
    const device = this.#cuda.devices[0]!;
    const stream = this.#hold(device.createStream());
    const image = program.source === '' ? undefined : await this.#cuda.compiler.compile(program.source, device);
    const module = image === undefined ? undefined : this.#hold(device.loadModule(image));
    const arena = this.#hold(allocate(device, program.arenaBytes)).address;
    const workspace = this.#hold(allocate(device, program.workspaceBytes)).address;
    const constants = this.#hold(allocate(device, program.constants.byteLength)).address;
    const host = this.#hold(
      this.#cuda.allocateHost(Math.max(256, program.layout.bytes, program.arenaBytes, program.constants.byteLength)),
    );
    const put = (bytes: Uint8Array, address: number): void => {
      if (bytes.byteLength === 0) return;
      host.view(0, bytes.byteLength).set(bytes);
      stream.copy(address, host.address, bytes.byteLength);
      stream.synchronize();
    };
    put(program.constants, constants);

    const layers = program.layout.layers.map(({ bytes }) => this.#hold(allocate(device, bytes)).address);
    await using reader = new WeightReader();
    for (const weight of program.layout.weights) {
      const bytes = new Uint8Array(weight.bytes);
      await reader.read(weight, 0, bytes);
      put(bytes, layers[weight.layer]! + weight.byteOffset);
    }
    for (const { name, byteOffset, bytes } of program.inputs) {
      const given = inputs.find((input) => input.name === name);
      if (given?.data.byteLength !== bytes) throw new Error(`the input '${name}' does not have ${bytes} bytes`);
      put(given.data, arena + byteOffset);
    }

    const addressOf = (operand: Operand): number => {
      if (operand.space === 'arena') return arena + operand.byteOffset;
      if (operand.space === 'constant') return constants + operand.byteOffset;
      const weight = program.layout.weights[operand.weight]!;
      return layers[weight.layer]! + weight.byteOffset + operand.byteOffset;
    };
    const submit = (launch: Launch): void => {
      switch (launch.kind) {
        case 'kernel': {
          const prepared = this.#hold(
            module!.kernel(launch.kernel).prepare(
              launch,
              launch.arguments.map(({ type }) => type),
            ),
          );
          for (const [index, argument] of launch.arguments.entries()) {
            prepared.set(index, argument.type === 'pointer' ? addressOf(argument.operand) : argument.value);
          }
          stream.launch(prepared);
          return;
        }
        case 'matmul':
          stream.matmul(this.#hold(device.createMatmul(launch.description)), {
            a: addressOf(launch.a),
            b: addressOf(launch.b),
            d: addressOf(launch.d),
            bias: launch.bias === null ? 0 : addressOf(launch.bias),
            workspace,
          });
          return;
        case 'copy':
          stream.copy(addressOf(launch.to), addressOf(launch.from), launch.bytes);
          return;
        case 'fill':
          stream.fill(addressOf(launch.to), launch.byteValue, launch.bytes);
      }
    };
    for (const launch of program.launches) {
      try {
        submit(launch);
      } catch (error) {
        throw new Error(`${launch.label}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
      }
    }
    stream.synchronize();
    const outputs: Tensor[] = [];
    for (const { name, datatype, shape, byteOffset, bytes } of program.outputs) {
      if (bytes > 0) stream.copy(host.address, arena + byteOffset, bytes);
      stream.synchronize();
      outputs.push({ name, datatype, shape, data: host.view(0, bytes).slice() });
    }
    return outputs;
  }

  release(): void {
    for (const held of this.#held.toReversed()) held.release();
  }
}

/** Runs a program once on the first device, and leaves nothing behind. */
export async function runProgram(cuda: Cuda, program: Program, inputs: readonly Tensor[]): Promise<Tensor[]> {
  const execution = new Execution(cuda, program);
  try {
    return await execution.run(inputs);
  } finally {
    execution.release();
  }
}

/** The program with the engine's own kernel for each matrix product, as where the library is not used. */
export function withOwnProducts(program: Program): Program {
  const sources = [program.source];
  const launches = program.launches.map((launch, index): Launch => {
    if (launch.kind !== 'matmul') return launch;
    const { source, grid, block, operands } = ownProductOf(launch.description);
    const kernel = `own_product_${index}`;
    sources.push(source.replaceAll(/\bNAME\b/g, kernel));
    const { layer, label, reads } = launch;
    return {
      kind: 'kernel',
      kernel,
      grid,
      block,
      arguments: operands.map((name) => ({
        type: 'pointer',
        operand: launch[name]!,
        access: name === 'd' ? 'read-write' : 'read',
        bytes: 1,
      })),
      layer,
      label,
      reads,
    };
  });
  return { ...program, source: sources.join('\n'), launches };
}

export interface RunModelOptions extends CompileModelOptions {
  /** Changes the program before it runs. */
  readonly program?: (program: Program) => Program;
  /** Default: all of them. */
  readonly operators?: readonly Operator[];
}

/** Compiles a model for its inputs' shapes and runs it once. */
export async function runModel(
  cuda: Cuda,
  modelPath: string,
  inputs: readonly Tensor[],
  options: RunModelOptions,
): Promise<Tensor[]> {
  const shapes = shapesOf(inputs);
  const { program: change = (each: Program): Program => each, ...compiling } = options;
  const program = await compileModel(modelPath, shapes, options.operators ?? allOperators, compiling);
  return runProgram(cuda, change(program), inputs);
}

const ortTypes: Partial<Record<DataType, OrtModule.Tensor.Type>> = {
  BOOL: 'bool',
  UINT8: 'uint8',
  INT8: 'int8',
  UINT16: 'uint16',
  INT16: 'int16',
  UINT32: 'uint32',
  INT32: 'int32',
  UINT64: 'uint64',
  INT64: 'int64',
  FP16: 'float16',
  FP32: 'float32',
  FP64: 'float64',
};

/** ONNX Runtime's answer to the same inputs on the CPU, by default without its own optimisations. */
export async function runOnnxRuntime(
  modelPath: string,
  inputs: readonly Tensor[],
  graphOptimizationLevel: 'disabled' | 'extended' | 'all' = 'disabled',
): Promise<Tensor[]> {
  const session = await ort.InferenceSession.create(modelPath, {
    executionProviders: ['cpu'],
    graphOptimizationLevel,
    intraOpNumThreads: 1,
    logSeverityLevel: 3,
  });
  const feeds: Record<string, OrtModule.Tensor> = {};
  for (const input of inputs) {
    const values = elements(input) as OrtModule.Tensor.DataType;
    feeds[input.name] = new ort.Tensor(ortTypes[input.datatype]!, values, input.shape);
  }
  const results = await session.run(feeds);
  const outputs = Object.entries(results).map(([name, { type, dims, data }]): Tensor => {
    const datatype = Object.entries(ortTypes).find(([, each]) => each === type)![0] as DataType;
    const values = data as ArrayOf<'FP32'>;
    return {
      name,
      datatype,
      shape: dims,
      data: new Uint8Array(values.buffer, values.byteOffset, values.byteLength).slice(),
    };
  });
  await session.release();
  return outputs;
}

/**
 * The largest difference of floating point outputs, relative to the largest expected magnitude; infinite if whole
 * numbers differ at all, if shapes or datatypes differ, or if only one side is NaN or infinite.
 */
export function relativeError(actual: Tensor, expected: Tensor): number {
  const same =
    actual.datatype === expected.datatype &&
    actual.shape.length === expected.shape.length &&
    actual.shape.every((size, axis) => size === expected.shape[axis]) &&
    actual.data.byteLength === byteCount(expected.datatype, expected.shape);
  if (!same) return Number.POSITIVE_INFINITY;
  const [found, wanted] = [numbersOf(actual), numbersOf(expected)];
  if (!expected.datatype.startsWith('FP') && expected.datatype !== 'BF16') {
    return found.every((value, index) => value === wanted[index]) ? 0 : Number.POSITIVE_INFINITY;
  }
  let most = 0;
  let difference = 0;
  for (const [index, value] of found.entries()) {
    const other = Number(wanted[index]);
    if (Object.is(Number(value), other) || Number(value) === other) {
      if (Number.isFinite(other)) most = Math.max(most, Math.abs(other));
      continue;
    }
    if (!Number.isFinite(Number(value)) || !Number.isFinite(other)) return Number.POSITIVE_INFINITY;
    most = Math.max(most, Math.abs(other));
    difference = Math.max(difference, Math.abs(Number(value) - other));
  }
  return difference === 0 ? 0 : difference / Math.max(most, Number.MIN_VALUE);
}

/** Elements as numbers (whole ones of 64 bits as bigints); 16-bit floats by their values. */
export function numbersOf(tensor: Tensor): (number | bigint)[] {
  const values: (number | bigint)[] = Array.from<number | bigint>(elements(tensor) as Iterable<number | bigint>);
  if (tensor.datatype === 'FP16') return values.map((bits) => fp16ToNumber(Number(bits)));
  if (tensor.datatype === 'BF16') return values.map((bits) => bf16ToNumber(Number(bits)));
  return values;
}
