import { expect, test, vi } from 'vitest';
import type { FunctionOffer, Member, Membership } from '../fleet/index.ts';
import { sealManifest, type FunctionManifest } from './manifest.ts';
import type { RedisLink } from './redis-link.ts';
import { WorkerChoice } from './worker-choice.ts';

const manifestOf = (name: string): FunctionManifest =>
  sealManifest({
    key: `${name}@1`,
    files: [{ name: 'model.onnx', sha256: name.repeat(64), bytes: 1 }],
    limits: { batchMax: 1, batchDelayMs: 0, handlerTimeoutMs: 1, loadTimeoutMs: 1, inferTimeoutMs: 1 },
  });
const [cold, warm] = [manifestOf('a'), manifestOf('b')];
const loaded: FunctionOffer = { ms: 5, isHeld: true, load: 0, callMs: 5, startMs: 0, lanes: 1 };
const unloaded: FunctionOffer = { ...loaded, ms: undefined, startMs: 60 };

type Follower = Parameters<Membership['follow']>[0];
/** By worker. */
type Reports = Record<string, { backlogMs: number; offers: Record<string, FunctionOffer> }>;

/** Workers that report these; a report that is changed is heard again by `hear`. */
function choiceOf(reports: Reports) {
  const followers: Follower[] = [];
  const find = (name: string): Member => ({ kind: 'worker', name, cores: 1, ...reports[name] }) as unknown as Member;
  const membership = {
    follow: (follower: Follower) => void followers.push(follower),
    find,
    offers: {
      of: (revision: string) =>
        new Map(
          Object.entries(reports).flatMap(([name, { offers }]) =>
            offers[revision] === undefined ? [] : [[name, offers[revision]] as const],
          ),
        ),
    },
  };
  const choice = new WorkerChoice({} as RedisLink, membership as unknown as Membership);
  const best = (manifest: FunctionManifest): string => {
    const { worker, ms } = choice.best(manifest, new Set(), 0)!;
    return `${worker.name} ${Math.round(ms)}`;
  };
  return { choice, best, find, hear: (name: string) => followers[0]!.heard!(find(name)) };
}

const idle = (): Reports[string] => ({
  backlogMs: 0,
  offers: { [cold.revision]: unloaded, [warm.revision]: loaded },
});

test('calls follow a function to the worker that starts it, until that worker reports otherwise', () => {
  const clock = vi.spyOn(performance, 'now').mockReturnValue(0);
  const reports: Reports = { first: idle(), second: idle() };
  const { choice, best, find, hear } = choiceOf(reports);
  const [home, other] = best(cold) === 'first 65' ? ['first', 'second'] : ['second', 'first'];
  expect(best(cold)).toBe(`${home} 65`);
  choice.lengthen(find(home), cold, 1);
  // The other could answer in 65 ms, and its calls would wait for that start.
  expect(best(cold)).toBe(`${home} 70`);
  expect(best(warm)).toBe(`${other} 5`);

  // A report that was written before the call came knows nothing of it.
  hear(home);
  expect(best(cold)).toBe(`${home} 65`);
  choice.lengthen(find(home), cold, 1);
  choice.lengthen(find(home), cold, -1);
  expect(best(cold)).toBe(`${home} 5`);
  // It has been evicted there since, and one worker is as good as the other.
  clock.mockReturnValue(5000);
  hear(home);
  reports[home]!.backlogMs = 100;
  expect(best(cold)).toBe(`${other} 65`);
  clock.mockRestore();
});

test('calls leave a worker whose calls of the function wait longer than two starts elsewhere take', () => {
  const { choice, best, find } = choiceOf({
    first: { backlogMs: 0, offers: { [cold.revision]: loaded } },
    second: { backlogMs: 0, offers: { [cold.revision]: unloaded } },
  });
  const served: string[] = [];
  for (let call = 0; call < 60; call++) {
    const [name] = best(cold).split(' ');
    served.push(name!);
    choice.lengthen(find(name!), cold, 1);
  }
  const stayed = served.indexOf('second');
  expect(stayed).toBeGreaterThan(60 / 5);
  expect(stayed).toBeLessThan(served.length);
});

test('functions that no worker has loaded are divided over the workers, and each stays at its own', () => {
  const reports: Reports = {};
  const manifests = Array.from({ length: 60 }, (_, index) => manifestOf(String.fromCharCode(0x100 + index)));
  for (const name of ['first', 'second', 'third']) {
    reports[name] = { backlogMs: 0, offers: Object.fromEntries(manifests.map((each) => [each.revision, unloaded])) };
  }
  const { best } = choiceOf(reports);
  const homes = manifests.map(best);
  expect(manifests.map(best)).toEqual(homes);
  for (const name of Object.keys(reports)) {
    expect(homes.filter((home) => home.startsWith(name)).length).toBeGreaterThan(10);
  }
  // A worker that leaves moves its own functions alone.
  delete reports['third'];
  expect(manifests.map(best).filter((home, index) => home !== homes[index])).toHaveLength(
    homes.filter((home) => home.startsWith('third')).length,
  );
});
