import { expect, test } from 'vitest';
import { silentLog } from '../../../test/support/silent-log.ts';
import { ChangedElsewhere, FolderStore } from '../../store/index.ts';
import { KeyedMutex } from '../../tools/index.ts';
import { Changes } from './changes.ts';
import { Entries } from './entries.ts';
import type { FleetFunction, FleetStore } from './fleet-store.ts';

/** Nothing is committed here. */
const entries = new Entries(new FolderStore('/not there'), silentLog);
const done = async (): Promise<void> => undefined;

/** A fleet that stores what is committed for function 'f'. */
function fleetOf(): FleetStore & { body: FleetFunction | undefined } {
  return {
    body: { versions: [] },
    load: done,
    names: () => ['f'],
    get() {
      return this.body;
    },
    ready: done,
    secure: done,
    commit: done,
    sync: done,
    want: () => undefined,
  };
}

test("a change applies to the fleet's latest state, even if that arrived while the change waited for the lock", async () => {
  const fleet = fleetOf();
  const taken: unknown[] = [];
  const mutex = new KeyedMutex();
  const changes = new Changes({ fleet, entries, mutex, take: async (_name, wanted) => void taken.push(wanted) });
  const seen: unknown[] = [];
  const work = async (): Promise<void> => void seen.push(taken.at(-1), fleet.get('f'));
  await changes.run('f', work);
  const gates: (() => void)[] = [];
  const gate = new Promise<void>((resolve) => gates.push(resolve));
  const holding = mutex.run('f', async () => await gate);
  const waiting = changes.run('f', work);
  // As the registry does: its copy has it at once, and the store must adopt it under the lock.
  const newer: FleetFunction = { versions: [] };
  fleet.body = newer;
  gates[0]!();
  await Promise.all([holding, waiting]);
  expect(seen[1]).toBe(seen[0]);
  expect(seen[2]).toBe(newer);
  expect(seen[3]).toBe(newer);
  expect(taken).toHaveLength(2);
});

test("a change that lost to another host's is retried a few times", async () => {
  const fleet = fleetOf();
  const changes = new Changes({ fleet, entries, mutex: new KeyedMutex(), take: done });
  let tries = 0;
  const often = changes.run('f', async () => {
    tries++;
    throw new ChangedElsewhere('it was changed at another host');
  });
  await expect(often).rejects.toThrow('it was changed at another host, 8 times in a row');
  expect(tries).toBe(8);
});

test("a change whose work awaited while another host's came is made again on that, and overwrites nothing", async () => {
  const fleet = fleetOf();
  const committed: unknown[] = [];
  fleet.commit = async (_name, next) => void committed.push([fleet.body, next]);
  const changes = new Changes({ fleet, entries, mutex: new KeyedMutex(), take: done });
  const newer: FleetFunction = { versions: [] };
  let tries = 0;
  await changes.run('f', async () => {
    if (tries++ === 0) {
      await Promise.resolve();
      fleet.body = newer;
    }
    await changes.commit('f', { versions: [], settings: {} });
  });
  expect([tries, committed]).toEqual([2, [[newer, undefined]]]);
});
