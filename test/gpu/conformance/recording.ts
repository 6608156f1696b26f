/** Records the launches that the compiler emits for a case: a graph of one node. */
import { Unsupported } from '../../../src/operators/index.ts';
import { elementTypeOf, GraphBuilder, type GraphNode } from '../../../src/onnx/index.ts';
import type { DataType, Tensor } from '../../../src/tensor/index.ts';
import type { Buffer, Operator } from '../../../src/gpu/operators/types.ts';
import { alignUp } from '../../../src/gpu/program/arena.ts';
import type { BaseWeight, FunctionBase } from '../../../src/gpu/program/base.ts';
import { emitAll } from '../../../src/gpu/program/compile.ts';
import type { PreparedGraph, PreparedValue } from '../../../src/gpu/program/prepared.ts';
import { Recorder, type DraftLaunch } from '../../../src/gpu/program/recorder.ts';
import { withOperands } from '../../../src/gpu/work.ts';
import { describeCase, operatorName, tensor, type Case } from '../../support/operator-cases/case.ts';
import { numbersIn } from './reference.ts';

/** Separate device memory for a tensor, so that accesses outside of it are detected. */
export interface Storage {
  readonly bytes: number;
  /** Its bytes before the case runs. */
  readonly content: Uint8Array | undefined;
}

export interface RecordedCase {
  readonly one: Case;
  readonly launches: readonly DraftLaunch[];
  /** Buffers of the used outputs, in order. */
  readonly outputs: readonly { readonly expected: Tensor; readonly buffer: Buffer }[];
}

function nodeOf(one: Case): GraphNode {
  const graph = new GraphBuilder('case', { opset: one.opset });
  const names = one.inputs.map((input, index) =>
    input === undefined ? '' : graph.input(`input${index}`, elementTypeOf(input.tensor.datatype), input.tensor.shape),
  );
  const outputs = one.outputs.map((datatype, index) => (datatype === undefined ? '' : `output${index}`));
  const { domain, name } = operatorName(one.operator);
  graph.node(name, names, one.attributes, { domain, outputs });
  for (const [index, datatype] of one.outputs.entries()) {
    if (datatype !== undefined) graph.output(outputs[index]!, elementTypeOf(datatype), []);
  }
  const [proto] = graph.build().graph.node;
  return {
    proto: proto!,
    name: describeCase(one),
    uses: names.filter((name) => name !== ''),
    outputs: outputs.filter((name) => name !== ''),
    constant: false,
  };
}

/** Weights that are kept in 16 bits, or that a joint product reads together: their bytes by name. */
function weightsOf(one: Case): Map<string, Uint8Array> {
  const isJoint = one.operator === 'turntable.JointProduct';
  return new Map(
    one.inputs.flatMap((input, index): [string, Uint8Array][] => {
      const kept = one.kept[index];
      if (input === undefined || (kept === undefined && !(isJoint && index > 0))) return [];
      const { shape, data } = input.tensor;
      return [[`input${index}`, kept === undefined ? data : tensor(kept, shape, numbersIn(input.tensor)).data]];
    }),
  );
}

function preparedOf(one: Case, expected: readonly Tensor[], weights: ReadonlyMap<string, Uint8Array>): PreparedGraph {
  const node = nodeOf(one);
  const values = new Map<string, PreparedValue>();
  const constants = new Map<string, Tensor>();
  const base: BaseWeight[] = [];
  for (const [index, input] of one.inputs.entries()) {
    if (input === undefined) continue;
    const name = `input${index}`;
    const { datatype, shape } = input.tensor;
    values.set(name, { datatype, shape });
    const source = { path: '', byteOffset: 0 };
    if (weights.has(name))
      base.push({ name, datatype, shape, layer: 0, source, narrowable: one.kept[index] !== undefined });
    else if (input.constant) constants.set(name, { name, ...input.tensor });
  }
  for (const [index, { shape }] of expected.entries()) {
    const name = node.outputs[index]!;
    values.set(name, { datatype: one.outputs[Number(name.replace('output', ''))]!, shape });
  }
  return {
    base: { weights: base } as unknown as FunctionBase,
    shapes: [],
    model: undefined as never,
    opset: one.opset,
    nodes: [{ ...node, layer: 0 }],
    inputs: [...values.keys()].filter((name) => name.startsWith('input') && !constants.has(name) && !weights.has(name)),
    outputs: node.outputs,
    values,
    constants,
    weights: new Map(base.map(({ name }, place) => [name, place])),
    obstacles: [],
  };
}

/** Cases that share one translation unit. */
export class Recording {
  readonly storages: Storage[] = [];
  readonly cases: RecordedCase[] = [];
  readonly #recorder = new Recorder();

  get source(): string {
    const launched = this.cases.flatMap(({ launches }) =>
      launches.flatMap((launch) => (launch.kind === 'kernel' ? [launch.kernel] : [])),
    );
    return this.#recorder.source(new Set(launched));
  }

  /** @throws Unsupported, with the case, when an operator does not cover it */
  add(one: Case, operators: readonly Operator[], expected: readonly Tensor[]): void {
    const weights = weightsOf(one);
    const prepared = preparedOf(one, expected, weights);
    const [kept] = Object.values<DataType>(one.kept);
    const precision = kept === 'FP16' ? 'fp16' : kept === 'BF16' ? 'bf16' : 'exact';
    const before = this.#recorder.launches.length;
    const emission = emitAll(prepared, operators, { precision }, { fusion: false, recorder: this.#recorder });
    const [obstacle] = emission.obstacles;
    if (obstacle !== undefined) throw new Unsupported(`${describeCase(one)}: ${obstacle.reason}`);
    const inputs = new Map(prepared.inputs.map((name) => [emission.buffer(name).id, name]));
    const ids = new Map<number, number>();
    const place = ({ id, byteOffset, bytes }: Buffer): Buffer => {
      const known = ids.get(id);
      if (known !== undefined) return { id: known, byteOffset, bytes };
      const storage = emission.storages.of({ id });
      const name = inputs.get(id);
      const content =
        storage.kind === 'constant'
          ? storage.data
          : storage.kind === 'weight'
            ? together([...weights.values()].slice(storage.weight), storage.bytes)
            : name === undefined
              ? undefined
              : one.inputs[Number(name.replace('input', ''))]!.tensor.data;
      ids.set(id, this.storages.push({ bytes: storage.bytes, content }) - 1);
      return place({ id, byteOffset, bytes });
    };
    const launches = this.#recorder.launches
      .slice(before)
      .map((launch) => Object.assign({}, launch, withOperands(launch, place), { inPlaceOf: [] }));
    const outputs = prepared.outputs.map((name, index) => ({
      expected: expected[index]!,
      buffer: place(emission.buffer(name)),
    }));
    this.cases.push({ one, launches, outputs });
  }
}

/** Weights side by side, as in a layer. */
function together(parts: readonly Uint8Array[], bytes: number): Uint8Array {
  const content = new Uint8Array(bytes);
  let at = 0;
  for (const part of parts) {
    if (at >= bytes) break;
    content.set(part.subarray(0, bytes - at), at);
    at = alignUp(at + part.byteLength);
  }
  return content;
}
