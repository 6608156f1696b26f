/** Odd models, served and in plain onnxruntime-node: the same verdict, and the same values. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import fc from 'fast-check';
import { InferenceSession } from 'onnxruntime-node';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ModelSession } from '../../src/cpu/instance/session.ts';
import { ElementType, type ValueInfoProto } from '../../src/onnx/index.ts';
import { checkModelFile } from '../../src/host/store/model-check.ts';
import { fromOnnxRuntime, toOnnxRuntime, widened, type Tensor } from '../../src/tensor/index.ts';
import { draws } from '../support/draws.ts';
import { modelOf, OddModel, oddPlans, singlePlans, writeOdd, type OddPlan } from '../support/odd-models.ts';

let folder: string;
let made = 0;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-odd-'));
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

const place = (): string => join(folder, String(made++));

type Outcome =
  /** `signature`: what the reason has of ONNX Runtime's source. */
  | { readonly kind: 'refused'; readonly signature: string | undefined }
  | {
      readonly kind: 'ran';
      readonly outputs: unknown;
      readonly narrow: readonly string[];
      readonly notServed: readonly string[];
    };

/** As the host does it: the validator's checks, then a session of an instance. */
async function served(model: OddModel): Promise<Outcome> {
  const path = await writeOdd(model, place());
  const reply = await checkModelFile({ modelPath: path });
  if (reply.outcome === 'refused') {
    return { kind: 'refused', signature: /onnxruntime_src|\.cc:\d|\(const |::/.exec(reply.reason)?.[0] };
  }
  const { outputs: described, opening, remarks = [] } = reply.metadata;
  const session = await ModelSession.open(path, { threads: 1, spinning: false, isAlone: false }, opening);
  const outputs = session.runTensors(model.given);
  session.release();
  if (typesOf(outputs) !== typesOf(described))
    throw new Error(`${typesOf(outputs)} are said to be ${typesOf(described)}`);
  const notServed = remarks.flatMap((remark) => /^the output '(.*)' .*; it is not served$/.exec(remark)?.[1] ?? []);
  const narrow = outputs.filter(({ datatype }) => datatype === 'BF16').map(({ name }) => name);
  return { kind: 'ran', outputs: valuesOf(outputs), narrow, notServed };
}

const typesOf = (tensors: readonly Pick<Tensor, 'name' | 'datatype'>[]): string =>
  tensors.map(({ name, datatype }) => `${name} ${datatype}`).join();

/** In plain onnxruntime-node, from the same file. */
async function plain(model: OddModel, odd: OddModel): Promise<Outcome> {
  const path = await writeOdd(model, place());
  const options = { logSeverityLevel: 4, intraOpNumThreads: 1 } as const;
  const session = await InferenceSession.create(path, options).catch(() => undefined);
  if (session === undefined) return { kind: 'refused', signature: undefined };
  const feeds = Object.fromEntries(model.given.map((tensor) => [tensor.name, toOnnxRuntime(tensor)]));
  const results = await session.run(feeds, model.served);
  await session.release();
  const outputs = model.served.map((name) => fromOnnxRuntime({ name, value: results[name]! }));
  const named = (test: (output: ValueInfoProto) => boolean): string[] =>
    odd.outputs.filter(test).map(({ name }) => name);
  return {
    kind: 'ran',
    outputs: valuesOf(outputs),
    narrow: named(({ type }) => type?.tensorType?.elemType === ElementType.BFLOAT16),
    notServed: named(({ name }) => !odd.served.includes(name)),
  };
}

const valuesOf = (outputs: readonly Tensor[]) =>
  outputs.map((output) => {
    const { name, shape, data } = widened(output);
    return { name, shape, data: Buffer.from(data).toString('hex') };
  });

/** Where the binding has a gap, the twin of the model is the reference. */
async function reference(plan: OddPlan): Promise<Outcome> {
  const odd = modelOf(plan, true);
  return await plain(odd.gaps.size > 0 ? modelOf(plan, false) : odd, odd);
}

test.each(singlePlans)('%s: served as in onnxruntime-node', async (_, plan) => {
  expect(await served(modelOf(plan, true))).toEqual(await reference(plan));
});

/** ONNX Runtime takes the first of these, whose meaning depends on the name of the model's folder. */
test.each([
  ['that leaves the folder and returns to it', (folder: string) => `../${folder}/w.bin`, /contains '\.\.'/],
  ['outside of the folder', () => '../w.bin', /contains '\.\.'/],
  ['that is absolute', () => join(tmpdir(), 'w.bin'), /is absolute/],
  [
    'in the memory of the process',
    () => '*/_ORT_MEM_ADDR_/*',
    /is none of a file: ONNX Runtime takes what begins with/,
  ],
])('external data at a location %s is refused', async (_, locationIn, reason) => {
  const model = new OddModel(true);
  const at = place();
  const entries = [
    { key: 'location', value: locationIn(basename(at)) },
    { key: 'length', value: '4' },
  ];
  model.weight({ name: 'w', dims: [1n], dataType: 1, dataLocation: 1, externalData: entries });
  model.add('Add', ['x', 'w'], {}, '', ['y']);
  model.output('y', undefined);
  model.files.set('w.bin', new Uint8Array(4));
  expect(await checkModelFile({ modelPath: await writeOdd(model, at) })).toEqual({
    outcome: 'refused',
    reason: expect.stringMatching(reason),
  });
});

const mixtures = draws(100);

test('mixtures of them get the verdict and the values of onnxruntime-node', async () => {
  const counts = { refused: 0, ran: 0 };
  await fc.assert(
    fc.asyncProperty(oddPlans, async (plan) => {
      const outcome = await served(modelOf(plan, true));
      counts[outcome.kind]++;
      expect(outcome).toEqual(await reference(plan));
    }),
    { numRuns: mixtures },
  );
  expect(counts.refused).toBeGreaterThan(mixtures / 15);
  expect(counts.ran).toBeGreaterThan(mixtures / 2);
}, 240_000);
