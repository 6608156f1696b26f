/** Functions that are prepared side by side on a GPU with room for one of them. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { functionVersion } from '../../../test/host/fake-store.ts';
import { gpuBench } from '../../../test/host/gpu-bench.ts';
import { GpuError, type GpuClient, type GpuCoverage } from '../../gpu/index.ts';

const layers = [{ name: 'layer', kind: 'linear' as const, bytes: 4096 }];
const coverage: GpuCoverage = {
  covered: true,
  layers,
  weightBytes: 4096,
  launches: 1,
};

test('functions are compared and measured one after another if only one of them fits', async () => {
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
    const versions = ['a', 'b', 'c', 'd'].map((name) => functionVersion(name));
    for (const version of versions) store.put(version);
    await functions.settled();
    for (const { key } of versions) expect(functions.record(key)?.state).toEqual({ kind: 'planned' });
    // All have one structure, which is measured once; each is compared.
    expect(done.filter((each) => each.startsWith('measure'))).toHaveLength(1);
    expect(new Set(done.filter((each) => each.startsWith('check'))).size).toBe(versions.length);
  } finally {
    await close();
    await rm(dataDir, { recursive: true, force: true });
  }
});
