/** Records the launches that an operator emits for a case, without a model. */
import { attributeReader, elementTypeOf, GraphBuilder, type GraphNode } from '../../../src/onnx/index.ts';
import { elementBytes, elementCount, type DataType, type Tensor } from '../../../src/tensor/index.ts';
import { requiredFrom } from '../../../src/gpu/operators/common/element.ts';
import { emitElementwise } from '../../../src/gpu/operators/elementwise/kernel.ts';
import { Recorder, type DraftLaunch } from '../../../src/gpu/program/recorder.ts';
import { Unsupported, type Buffer, type Emitter, type Operator, type Value } from '../../../src/gpu/operators/types.ts';
import { describeCase, tensor, type Case } from './case.ts';
import { numbersIn, operatorName } from './reference.ts';

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
    name: proto!.name,
    uses: names.filter((name) => name !== ''),
    outputs: outputs.filter((name) => name !== ''),
    constant: false,
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

  #store(bytes: number, content?: Uint8Array): Buffer {
    this.storages.push({ bytes, content });
    return { id: this.storages.length - 1, byteOffset: 0, bytes };
  }

  /** @throws Unsupported, with the case, when the operator does not cover it */
  add(one: Case, operator: Operator, expected: readonly Tensor[]): void {
    const node = nodeOf(one);
    const inputs = one.inputs.map((input, index): Value | undefined => {
      if (input === undefined) return undefined;
      const { datatype, shape } = input.tensor;
      const kept: DataType = one.kept[index] ?? datatype;
      const { data } = kept === datatype ? input.tensor : tensor(kept, shape, numbersIn(input.tensor));
      const buffer = this.#store(data.byteLength, data);
      return {
        name: `input${index}`,
        datatype,
        shape,
        elements: elementCount(shape),
        buffer,
        constant: input.constant,
        kept,
      };
    });
    let taken = 0;
    const outputs = one.outputs.map((datatype, index): Value | undefined => {
      if (datatype === undefined) return undefined;
      const { shape } = expected[taken++]!;
      const elements = elementCount(shape);
      const buffer = this.#store(elements * elementBytes[datatype]);
      return { name: `output${index}`, datatype, shape, elements, buffer, constant: false, kept: datatype };
    });
    const emitter = this.#emitter(one, node, inputs, outputs);
    const before = this.#recorder.launches.length;
    let viewed: number | undefined;
    try {
      viewed = operator.viewOf?.(emitter);
      if (viewed !== undefined) outputs[0] = inputs[viewed];
      else if (outputs[0]?.elements === 0) operator.emit(emitter);
      else if (!this.#emitAlone(one, operator, emitter, [...inputs, outputs[0]])) operator.emit(emitter);
    } catch (error) {
      if (!(error instanceof Unsupported)) throw error;
      throw new Unsupported(`${describeCase(one)}: ${error.message}`);
    }
    const buffers = outputs.flatMap((output) => (output === undefined ? [] : [output.buffer]));
    this.cases.push({
      one,
      launches: this.#recorder.launches.slice(before),
      outputs: expected.map((of, index) => ({ expected: of, buffer: buffers[index]! })),
    });
  }

  /** Emits an elementwise node as the compiler does for a node alone; returns false for other nodes. */
  #emitAlone(one: Case, { elementwise }: Operator, emitter: Emitter, values: readonly (Value | undefined)[]): boolean {
    const given = one.inputs.map((input, index) => (input === undefined ? '' : `input${index}`));
    if (elementwise?.(emitter, given) === undefined) return false;
    const output = values.at(-1)!;
    const found = (name: string): Value => values.find((value) => value?.name === name)!;
    emitElementwise({
      steps: [
        {
          inputs: given,
          name: output.name,
          output: output.datatype,
          expression: (names) => elementwise(emitter, names)!,
        },
      ],
      value: found,
      scalar: (name) => {
        const input = one.inputs[Number(name.replace('input', ''))];
        return input?.constant === true && found(name).elements === 1 ? { name, ...input.tensor } : undefined;
      },
      recorder: this.#recorder,
    });
    return true;
  }

  #emitter(
    one: Case,
    node: GraphNode,
    inputs: readonly (Value | undefined)[],
    outputs: (Value | undefined)[],
  ): Emitter {
    const recorder = this.#recorder;
    recorder.at(0, describeCase(one));
    return {
      settings: { precision: 'exact' },
      node,
      opset: one.opset,
      input: (index) => inputs[index],
      required: requiredFrom((index) => inputs[index]),
      constant: (index) => {
        const input = one.inputs[index];
        return input?.constant === true ? { name: `input${index}`, ...input.tensor } : undefined;
      },
      output: (index) => outputs[index],
      attribute: attributeReader(node.proto),
      scratch: (bytes) => this.#store(bytes),
      part: ({ id, byteOffset: start }, byteOffset, bytes) => ({ id, byteOffset: start + byteOffset, bytes }),
      weightsTogether: (places) => {
        const parts = places.map((place) => this.storages[inputs[place]!.buffer.id]!.content!);
        const stepBytes = Math.ceil(parts[0]!.byteLength / 256) * 256;
        const content = new Uint8Array(stepBytes * parts.length);
        for (const [index, part] of parts.entries()) content.set(part, index * stepBytes);
        return { buffer: this.#store(content.byteLength, content), stepBytes };
      },
      outputsTogether: () => {
        const { bytes } = outputs[0]!.buffer;
        const stepBytes = Math.ceil(bytes / 256) * 256;
        const buffer = this.#store(stepBytes * outputs.length);
        for (const [index, output] of outputs.entries()) {
          outputs[index] = { ...output!, buffer: { id: buffer.id, byteOffset: index * stepBytes, bytes } };
        }
        return { buffer, stepBytes };
      },
      kernel: (hint, source) => recorder.kernel(hint, source),
      launch: (launch) => recorder.launch(launch),
      matmul: (description, operands) =>
        recorder.matmul({ ...description, tf32: false, workspaceBytesMax: 2 ** 20 }, operands),
      copy: (from, to, bytes) => recorder.copy(from, to, bytes),
      fill: (to, byteValue, bytes) => recorder.fill(to, byteValue, bytes),
    };
  }
}
