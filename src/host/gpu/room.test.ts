/** Functions that are prepared side by side on a GPU with room for one of them. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { functionVersion } from '../../../test/host/fake-store.ts';
import { gpuBench } from '../../../test/gpu/host/gpu-bench.ts';
import { GpuError, type GpuClient, type GpuCoverage } from '../../gpu/index.ts';

const layers = [{ name: 'layer', kind: 'linear' as const, bytes: 4096 }];
const coverage: GpuCoverage = {
  covered: true,
  layers,
  weightBytes: 4096,
  launches: 1,
};

/** Prepares functions of these models side by side, and resolves with what the GPU process did for them. */
async function prepared(models: readonly { readonly name: string; readonly modelSha256: string }[]): Promise<string[]> {
  let holder: string | undefined;
  const done: string[] = [];
  /** Takes the GPU's memory until the function is evicted, like the engine. */
  const bring = async <T>(key: string, what: string, answer: T): Promise<T> => {
    if (holder !== undefined && holder !== key)
      throw new GpuError('out-of-memory', `${holder} has the memory that ${key} needs`);
    holder = key;
    // Enough time for the others to try.
    for (let turn = 0; turn < 20; turn++) await setImmediate();
    done.push(`${what} ${key}`);
    return answer;
  };
  const client = {
    register: () => Promise.resolve(coverage),
    measure: (key: string) =>
      bring(key, 'measure', { unit: 'ms', layers: [{ ...layers[0]!, load: 1, exec: 1, dha: 2 }] }),
    evict: (key: string) => {
      if (holder === key) holder = undefined;
      return Promise.resolve(0);
    },
  } as unknown as GpuClient;
  const check = (key: string) =>
    bring(key, 'check', { kind: 'agreed', inputs: 'drawn', precision: 'fp32', tolerance: 1e-3 } as const);
  const dataDir = await mkdtemp(join(tmpdir(), 'turntable-room-'));
  const { functions, runtime, store, close } = gpuBench({ dataDir, client, functions: { check } });
  try {
    functions.up(runtime);
    const versions = models.map(({ name, modelSha256 }) => functionVersion(name, { modelSha256 }));
    for (const version of versions) store.put(version);
    await functions.settled();
    for (const { key } of versions) expect(functions.record(key)?.state).toEqual({ kind: 'planned' });
    return done;
  } finally {
    await close();
    await rm(dataDir, { recursive: true, force: true });
  }
}

const names = ['a', 'b', 'c', 'd'];

test('functions are compared and measured one after another if only one of them fits', async () => {
  const done = await prepared(names.map((name, index) => ({ name, modelSha256: String(index).repeat(64) })));
  // All have one structure, which is measured once; each is compared.
  expect(done.filter((each) => each.startsWith('measure'))).toHaveLength(1);
  expect(new Set(done.filter((each) => each.startsWith('check'))).size).toBe(names.length);
});

test('functions of one model are compared once, though all of them register at once', async () => {
  const done = await prepared(names.map((name) => ({ name, modelSha256: 'ab'.repeat(32) })));
  expect(done.filter((each) => each.startsWith('check'))).toHaveLength(1);
  expect(done.filter((each) => each.startsWith('measure'))).toHaveLength(1);
});
