/** The GPU process's service, with a compiler whose answers the test holds back. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { GpuService } from '../../../src/gpu/process/service.ts';
import type { Program } from '../../../src/gpu/program/types.ts';
import { makeChain, planFor, wordsOf } from './chains.ts';
import { ModelCuda } from './model-cuda.ts';

/** What runs and registrations ask of the compiler. */
interface Order {
  readonly modelPath: string;
  readonly shapes: readonly { readonly shape: readonly number[] }[];
}

function serviceWith(program: (order: Order) => Promise<Program>): GpuService {
  // Without names of layers none is shared.
  const make = async (what: string, order: unknown): Promise<Program | undefined> =>
    what === 'ids' ? undefined : await program(order as Order);
  const compiler = { make: make as never, close: () => Promise.resolve() };
  const settings = { hostBytes: 2 ** 20, slabBytes: 64 * 1024, gpuBytes: 256 * 1024, cacheFolder: '' };
  return new GpuService(new ModelCuda({ devices: 1, deviceBytes: 2 ** 20 }), compiler, settings, new Set());
}

test('a run never gets the weights of another model that took its key while its program was compiled', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'turntable-service-'));
  const ours = makeChain({ folder, name: 'ours', layerWords: [64, 300] });
  const longer = makeChain({ folder, name: 'ours', layerWords: [64, 300], width: 64 });
  const others = makeChain({ folder, name: 'others', layerWords: [64, 300] });
  let finishCompiling: ((program: Program) => void) | undefined;
  const compiled = new Promise<Program>((resolve) => {
    finishCompiling = resolve;
  });
  const service = serviceWith(({ modelPath, shapes }) =>
    shapes[0]!.shape[0] === 64
      ? compiled
      : Promise.resolve(modelPath === 'others.onnx' ? others.program : ours.program),
  );
  const { signal } = new AbortController();
  const context = { tensors: [], signal, note: () => undefined };
  const register = async (modelPath: string): Promise<void> => {
    await service.methods.register({ spec: { key: 'f@1', modelPath, shapes: [{ name: 'x', shape: [32] }] } }, context);
    await service.methods.stage({ key: 'f@1' }, context);
  };
  const plan = planFor(ours, { mode: 'pipeswitch' });
  const run = { key: 'f@1', gpu: 0, plan, trace: false } as const;

  await register('ours.onnx');
  const waiting = service.run(run, [longer.input], signal);
  const refusal = waiting.catch((error: unknown) => error);
  await service.methods.unregister({ key: 'f@1' }, context);
  await register('others.onnx');
  finishCompiling?.(longer.program);
  expect(await refusal).toMatchObject({ code: 'unknown-function' });
  expect(wordsOf((await service.run(run, [others.input], signal)).outputs)).toEqual(others.expected);
  await service.close();
  rmSync(folder, { recursive: true });
});

test('a run that is asked for right behind an eviction finds its room', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'turntable-service-'));
  const [one, other] = ['one', 'other'].map((name) => makeChain({ folder, name, layerWords: [64, 40_000] }));
  const service = serviceWith(({ modelPath }) =>
    Promise.resolve(modelPath === 'one.onnx' ? one!.program : other!.program),
  );
  const { signal } = new AbortController();
  const context = { tensors: [], signal, note: () => undefined };
  for (const name of ['one', 'other']) {
    const spec = { key: name, modelPath: `${name}.onnx`, shapes: [{ name: 'x', shape: [32] }] };
    await service.methods.register({ spec }, context);
    await service.methods.stage({ key: name }, context);
  }
  const run = (key: string, chain: typeof one) =>
    service.run({ key, gpu: 0, plan: planFor(chain!, { mode: 'pipeswitch' }), trace: false }, [chain!.input], signal);
  await run('one', one);
  // Both do not fit.
  await expect(run('other', other)).rejects.toMatchObject({ code: 'out-of-memory' });
  const evicted = service.methods.trim({ key: 'one', gpu: 0, layers: 0 }, context);
  const ran = run('other', other);
  expect(await evicted).toBeGreaterThan(0);
  expect(wordsOf((await ran).outputs)).toEqual(other!.expected);
  await service.close();
  rmSync(folder, { recursive: true });
});

test.each(['trim', 'keep', 'release'] as const)(
  'what %s takes away, a run has still found that was asked for before and counts as over',
  async (method) => {
    const folder = mkdtempSync(join(tmpdir(), 'turntable-service-'));
    const chain = makeChain({ folder, name: 'chain', layerWords: [64, 300] });
    const service = serviceWith(() => Promise.resolve(chain.program));
    const { signal } = new AbortController();
    const context = { tensors: [chain.input], signal, note: () => undefined };
    const spec = { key: 'f@1', modelPath: 'f.onnx', shapes: [{ name: 'x', shape: [32] }] };
    await service.methods.register({ spec }, context);
    await service.methods.stage({ key: 'f@1' }, context);
    const plan = { place: 0, plan: planFor(chain, { mode: 'pipeswitch' }) };
    const run = { key: 'f@1', gpu: 0, plan, trace: false } as const;
    await service.methods.run({ ...run, notes: true }, context);
    const running = [1, 2, 3].map(() => service.methods.run({ ...run, notes: false }, context));
    const of = { key: 'f@1', gpu: 0 };
    const freed =
      method === 'trim'
        ? service.methods.trim({ ...of, layers: 0 }, context)
        : method === 'keep'
          ? service.methods.keep({ ...of, layers: [] }, context)
          : service.methods.release({ ...of, layers: [0, 1] }, context);
    const after = service.methods.run({ ...run, notes: true }, context);
    const starts = (await Promise.all([...running, after])).map(({ answer }) => answer.start);
    expect(starts).toEqual(['warm', 'warm', 'warm', 'cold']);
    expect(await freed).toBeGreaterThan(0);
    await service.close();
    rmSync(folder, { recursive: true });
  },
);
