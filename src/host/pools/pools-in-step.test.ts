import pino from 'pino';
import { expect, test } from 'vitest';
import { FakePools } from '../../../test/host/fake-pools.ts';
import { FakeStore, functionVersion } from '../../../test/host/fake-store.ts';
import type { CpuPools, PoolLimits } from '../../cpu/index.ts';
import { loadConfig } from '../config/load-config.ts';
import { keepPoolsInStep } from './pools-in-step.ts';

const logger = pino({ level: 'silent' });

test('of a hundred versions only those are registered anew that have changed, or serve from then on or no longer', async () => {
  const store = new FakeStore();
  const told: [key: string, instancesMin: number][] = [];
  class ToldPools extends FakePools {
    override register({ key }: Parameters<CpuPools['register']>[0], { instancesMin }: PoolLimits): void {
      told.push([key, instancesMin]);
    }
  }
  const pools = new ToldPools();
  keepPoolsInStep(store, pools, loadConfig({ flags: {} }).config, logger);
  const { settings } = functionVersion('f');
  const versions = Array.from({ length: 101 }, (_, index) =>
    functionVersion('f', { version: String(index), settings: { ...settings, pinned: true } }),
  );
  for (const version of versions.slice(0, 100)) store.put(version);
  const toldBy = async (act: () => void | Promise<void>): Promise<typeof told> => {
    told.length = 0;
    await act();
    return [...told];
  };
  // The newest serves, and its pin keeps an instance.
  expect(await toldBy(() => store.put(versions[100]!))).toEqual([
    ['f@99', 0],
    ['f@100', 1],
  ]);
  const slower = { ...versions[7]!, settings: { ...settings, sloMs: 200 } };
  expect(await toldBy(() => store.put(slower))).toEqual([['f@7', 0]]);
  expect(await toldBy(() => store.remove('f', '100'))).toEqual([['f@99', 1]]);
});
