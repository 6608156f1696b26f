import { EventEmitter, once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { writeReluModel } from '../../../test/support/models.ts';
import { measuredOn, ProfileFiles } from '../../cpu/index.ts';
import { describeModel, readModel } from '../../onnx/index.ts';
import { createLogger } from '../records/logger.ts';
import { PoolsProfiler, type PoolsProfilerOptions } from './pools-profiler.ts';
import type { FunctionVersion, Registry, RegistryChange } from '../types.ts';

let folder: string;
let version: FunctionVersion;
let profiler: PoolsProfiler | undefined;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-profiler-'));
  const modelPath = await writeReluModel(folder);
  version = {
    key: 'f@1',
    name: 'f',
    version: '1',
    modelPath,
    modelSha256: 'ab',
    metadata: describeModel(await readModel(modelPath)),
    state: { status: 'ready' },
    settings: { batching: { batchMax: 2, delayMs: 0 } },
  } as unknown as FunctionVersion;
});
afterEach(() => profiler?.close());
afterAll(() => rm(folder, { recursive: true, force: true }));

/** A profiler that begins at once, its function, and the profiles as they appear. */
function start(
  dataDir: string,
  more: Partial<PoolsProfilerOptions> = {},
  profiling: PoolsProfilerOptions['cpu']['profiling'] = 'background',
): { known: EventEmitter; publish: () => void; change: (after: FunctionVersion) => void } {
  const known = new EventEmitter();
  let listener: ((change: RegistryChange) => void) | undefined;
  const registry: Registry = {
    names: () => ['f'],
    versions: () => [version],
    find: () => version,
    onChange: (given) => {
      listener = given;
    },
  };
  profiler = new PoolsProfiler({
    registry,
    dataDir: join(folder, dataDir),
    cpu: { cores: 1, profiling, profilingBudgetMs: 'auto' },
    quietMs: 0,
    otherLoadMax: Infinity,
    logger: createLogger({ level: 'silent', format: 'json' }),
    onProfile: () => known.emit('profile'),
    ...more,
  });
  return {
    known,
    publish: () => listener?.({ before: undefined, after: version }),
    change: (after) => listener?.({ before: version, after }),
  };
}

test('a function is measured while there are no calls, and its profile is there at once the next time', async () => {
  const { known, publish } = start('data');
  publish();
  await once(known, 'profile');
  const measured = profiler?.find('f@1');
  expect(measured?.pool.latency[0]?.[0]).toBeGreaterThan(0);
  await profiler?.close();

  const again = start('data', {}, 'off');
  again.publish();
  await once(again.known, 'profile');
  expect(profiler?.find('f@1')).toEqual(measured);
});

test('a profile that another process has written is picked up', async () => {
  const { known, publish } = start('elsewhere');
  publish();
  await once(known, 'profile');
  const measured = profiler?.find('f@1');
  await profiler?.close();

  const host = start('shared', { filesIntervalMs: 20 }, 'off');
  host.publish();
  const files = new ProfileFiles(join(folder, 'shared'));
  for (const measuredAt of ['2026-01-01T00:00:00.000Z', '2026-01-02T00:00:00.000Z']) {
    const news = once(host.known, 'profile');
    await files.keep({ ...measured!, measuredAt });
    await news;
    expect(profiler?.find('f@1')).toEqual({ ...measured, measuredAt });
  }
});

test('a function that may take larger batches than were measured is measured again', async () => {
  const { known, publish, change } = start('larger');
  publish();
  await once(known, 'profile');
  expect(profiler?.find('f@1')?.pool.batches).toEqual([1, 2]);
  const larger = { ...version, settings: { ...version.settings, batching: { batchMax: 4, delayMs: 0 } } };
  change(larger);
  // The old profile serves until then.
  expect(profiler?.find('f@1')?.pool.batches).toEqual([1, 2]);
  await once(known, 'profile');
  expect(profiler?.find('f@1')?.pool.batches).toEqual([1, 2, 4]);
});

test('nothing is measured while an invocation is in flight, and it is once that has ended', async () => {
  const { known, publish } = start('other');
  profiler?.arrived();
  publish();
  const early = await Promise.race([once(known, 'profile'), once(process, 'never', { signal: AbortSignal.timeout(2500) }).catch(() => 'none')]); // prettier-ignore
  expect(early).toBe('none');
  profiler?.ended();
  await once(known, 'profile');
  expect(profiler?.find('f@1')).toBeDefined();
});

test('a call interrupts a measurement, which goes on later with what it lacks, after a restart too', async () => {
  const { known, publish } = start('interrupted');
  const files = new ProfileFiles(join(folder, 'interrupted'));
  const where = { machine: measuredOn(1), modelSha256: version.modelSha256, dimensions: {} };
  const isKept = new Promise<string>((resolve) => {
    vi.spyOn(ProfileFiles.prototype, 'keep').mockImplementationOnce((...given) => {
      vi.restoreAllMocks();
      profiler?.arrived();
      const kept = files.keep(...given);
      resolve(kept);
      return kept;
    });
  });
  publish();
  await isKept;
  await profiler?.close();
  expect(profiler?.find('f@1')).toBeUndefined();
  const left = await files.find(where);
  expect(left?.ended).toBe('interrupted');

  const again = start('interrupted');
  again.publish();
  known.on('profile', () => expect.unreachable('the host that is closed has no profile'));
  await once(again.known, 'profile');
  const whole = profiler?.find('f@1');
  expect(whole).toMatchObject({ ended: 'whole' });
  expect(whole?.tookMs).toBeGreaterThan(left!.tookMs);
  // What was measured stays as it was, and nothing is missing.
  const stays = left!.pool.latency.flatMap((times, row) => times.map((ms, at) => ms ?? whole?.pool.latency[row]?.[at]));
  expect(whole?.pool.latency.flat()).toEqual(stays);
});

test('a profile of sessions that ran otherwise is measured again, and serves nobody meanwhile', async () => {
  const { known, publish } = start('source');
  publish();
  await once(known, 'profile');
  const measured = profiler!.find('f@1')!;
  await profiler?.close();
  const other = { ...measured, session: { ...measured.session, arena: !measured.session.arena }, measuredAt: 'before' };
  await new ProfileFiles(join(folder, 'otherwise')).keep(other);

  const later = start('otherwise');
  later.publish();
  await once(later.known, 'profile');
  expect(profiler?.find('f@1')?.session).toEqual(measured.session);
  expect(profiler?.find('f@1')?.measuredAt).not.toBe('before');
});
