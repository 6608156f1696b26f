/** A model with BF16 edges and an optional input on a GPU of the emulated driver. */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { ElementType, nodeProto, serializeModel, type ModelProto } from '../../../src/onnx/index.ts';
import { bf16ToNumber, bytesOfNumbers, numberToBf16 } from '../../../src/tensor/index.ts';
import { emulateGpus } from '../../support/emulate-gpus.ts';
import { emulatorMissing } from '../../support/emulated-cuda.ts';
import { OddModel } from '../../support/odd-models.ts';
import { startReluHost, type ReluHost } from '../../support/relu-host.ts';

const { BFLOAT16, FLOAT } = ElementType;
const width = 8;

const typed = (name: string, elemType: number, ...sizes: readonly (number | string)[]) => ({
  name,
  type: {
    tensorType: {
      elemType,
      shape: { dim: sizes.map((size) => (typeof size === 'number' ? { dimValue: BigInt(size) } : { dimParam: size })) },
    },
  },
});

/** y = tanh(x · m + b) with x and y in BF16, an unnamed half of a Split on the way, and b an optional input. */
function narrow(): ModelProto {
  const model = new OddModel(true);
  model.inputs.splice(0, 1, typed('x', BFLOAT16, 'batch', width), typed('b', FLOAT, width));
  const product = Array.from({ length: width * 2 * width }, (_, at) => Math.fround(Math.sin(at * 1.3) / 3));
  const dims = [BigInt(width), BigInt(2 * width)];
  model.weight({ name: 'm', dims, dataType: FLOAT, rawData: bytesOfNumbers('FP32', product) });
  model.weight({ name: 'b', dims: [BigInt(width)], dataType: FLOAT, rawData: bytesOfNumbers('FP32', Array<number>(width).fill(0.5)) }); // prettier-ignore
  const both = model.add('MatMul', [model.add('Cast', ['x'], { to: FLOAT }), 'm']);
  model.nodes.push(nodeProto('Split', [both], ['', 'half'], { axis: 1 }));
  model.add('Cast', [model.add('Tanh', [model.add('Add', ['half', 'b'])])], { to: BFLOAT16 }, '', ['y']);
  model.output('y', typed('y', BFLOAT16, 'batch', width).type);
  return model.build();
}

function expected(x: readonly number[], b: number): number[] {
  return Array.from({ length: width }, (_, column) => {
    const at = (row: number): number => Math.fround(Math.sin((row * 2 * width + width + column) * 1.3) / 3);
    return Math.tanh(x.reduce((sum, value, row) => sum + value * at(row), b));
  });
}

let host: ReluHost;

async function infer(x: readonly number[], b?: number) {
  const inputs = [
    { name: 'x', datatype: 'BF16', shape: [1, width], data: x },
    ...(b === undefined ? [] : [{ name: 'b', datatype: 'FP32', shape: [width], data: Array<number>(width).fill(b) }]),
  ];
  const reply = await fetch(`${host.url}/v2/models/narrow/infer`, { method: 'POST', body: JSON.stringify({ inputs }) });
  const body = (await reply.json()) as {
    readonly outputs: readonly { readonly datatype: string; readonly data: number[] }[];
  };
  return { status: reply.status, placement: reply.headers.get('x-turntable-placement'), output: body.outputs?.[0] };
}

describe.skipIf(emulatorMissing)('a model with BF16 edges', () => {
  beforeAll(async () => {
    await emulateGpus([{ memoryBytes: 64 * 2 ** 20 }]);
    host = await startReluHost([], {
      flags: {
        'cpu.profiling': 'off',
        'gpu.hostMemory': '64MiB',
        'gpu.profileIterations': '1',
        'gpu.hybrid': 'off',
        'gpu.recheckEvery': '1',
      },
      prepare: async (functions) => {
        await mkdir(join(functions, 'narrow'), { recursive: true });
        await writeFile(join(functions, 'narrow', 'model.onnx'), serializeModel(narrow()));
        await writeFile(
          join(functions, 'narrow', 'function.json'),
          JSON.stringify({ slo: '60s', batching: { max: 4 } }),
        );
      },
    });
    await host.gpus!.settled();
  }, 300_000);
  afterAll(async () => {
    await host?.[Symbol.asyncDispose]();
  });

  const x = Array.from({ length: width }, (_, at) => bf16ToNumber(numberToBf16(Math.cos(at))));

  test('a model with BF16 edges answers in BF16 from a GPU, checked against ONNX Runtime', async () => {
    let last = await infer(x);
    await vi.waitUntil(
      async () => {
        last = await infer(x);
        return last.placement?.startsWith('gpu') === true;
      },
      { timeout: 90_000 },
    );
    expect(last).toMatchObject({ status: 200, output: { datatype: 'BF16' } });
    expect(last.output!.data.map((value) => bf16ToNumber(numberToBf16(value)))).toEqual(last.output!.data);
    for (const [at, value] of expected(x, 0.5).entries()) expect(last.output!.data[at]).toBeCloseTo(value, 2);
  }, 120_000);

  test('a model with BF16 edges runs on the CPU when a call gives its optional input, beside calls that do not', async () => {
    const given = await infer(x, -2);
    expect(given).toMatchObject({ status: 200, output: { datatype: 'BF16' } });
    expect(given.placement).toMatch(/^cpu/);
    for (const [at, value] of expected(x, -2).entries()) expect(given.output!.data[at]).toBeCloseTo(value, 2);
    const calls = await Promise.all(Array.from({ length: 12 }, (_, call) => infer(x, call % 2 === 0 ? -1 : undefined)));
    for (const [call, { output, placement }] of calls.entries()) {
      const isGiven = call % 2 === 0;
      // Of the others some may go to the CPU as well, when the GPU has a queue.
      expect(isGiven && placement?.startsWith('gpu')).toBe(false);
      const wanted = expected(x, isGiven ? -1 : 0.5);
      for (const [at, value] of wanted.entries()) expect(output!.data[at]).toBeCloseTo(value, 2);
    }
  }, 60_000);
});
