/**
 * Two publishers change one function at the same instant, on each kind of store: one is told that it was first, the
 * other that it was not, and no version of either is lost. `TURNTABLE_STORE_ROUNDS` sets how often; the suite does
 * fewer rounds than the bench of 10,000.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { Bucket } from '../../src/store/bucket.ts';
import { ChangedElsewhere, FolderStore, StoreAway, type Store, type StoredEntry } from '../../src/store/index.ts';
import { S3Server, s3Keys, type S3Fault } from '../support/s3-server.ts';

const rounds = Number(process.env.TURNTABLE_STORE_ROUNDS ?? 300);
const minutes = 60_000;

/** The same numbers in each run. */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1_664_525 + 1_013_904_223) % 2 ** 32;
    return state / 2 ** 32;
  };
}

const versionsOf = (entry: StoredEntry | undefined): readonly string[] =>
  (entry?.envelope.body?.versions ?? []) as readonly string[];

/** One try on the entry as it is now. @returns the verdict */
async function publish(
  store: Store,
  name: string,
  version: string,
  before: StoredEntry | undefined,
): Promise<201 | 409 | 503> {
  try {
    const entry = await store.write(name, { versions: [...versionsOf(before), version] }, before);
    expect(versionsOf(entry)).toContain(version);
    return 201;
  } catch (error) {
    if (error instanceof ChangedElsewhere) return 409;
    if (error instanceof StoreAway) return 503;
    throw error;
  }
}

/** Every round, both publish on the same entry. Checks the verdicts against what the store has then. */
async function race(one: Store, other: Store): Promise<Map<string, number>> {
  const verdicts = new Map<string, number>();
  for (let round = 0; round < rounds; round++) {
    // Now and then a new name, so that an entry does not grow without bound.
    const name = `bert-${Math.floor(round / 50)}`;
    const base = await one.read(name);
    const known = [...versionsOf(base)];
    const [mine, theirs] = [`${round}a`, `${round}b`];
    const outcome = await Promise.all([publish(one, name, mine, base), publish(other, name, theirs, base)]);
    const pair = outcome.toSorted().join(' ');
    verdicts.set(pair, (verdicts.get(pair) ?? 0) + 1);
    const found = versionsOf(await other.read(name));
    for (const [at, version] of [mine, theirs].entries()) {
      const verdict = outcome[at];
      if (verdict === 201) known.push(version);
      // Unknown: either is right. Refused: it must not be there.
      else if (verdict === 503 && found.includes(version)) known.push(version);
    }
    expect(found.toSorted()).toEqual(known.toSorted());
    expect(pair).not.toBe('201 201');
  }
  return verdicts;
}

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-publishers-'));
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

describe('two publishers at the same instant', () => {
  let s3: S3Server;
  beforeEach(async () => {
    s3 = await S3Server.start();
  });
  afterEach(async () => {
    await s3[Symbol.asyncDispose]();
  });
  const bucket = (): Bucket => new Bucket({ url: s3.url, region: 'us-east-1', ...s3Keys, retryMs: 0.01 });

  test('in a folder, one gets 201 and the other 409, and no version is lost', { timeout: 30 * minutes }, async () => {
    const place = join(folder, 'plain');
    const verdicts = await race(new FolderStore(place), new FolderStore(place));
    expect([...verdicts]).toEqual([['201 409', rounds]]);
  });

  test('in a bucket, one gets 201 and the other 409, and no version is lost', { timeout: 30 * minutes }, async () => {
    const verdicts = await race(bucket(), bucket());
    expect([...verdicts]).toEqual([['201 409', rounds]]);
  });

  test('in a bucket that fails every third write, the verdicts are right', { timeout: 30 * minutes }, async () => {
    const random = randomOf(1);
    const faults: readonly S3Fault[] = ['lost-request', 'lost-reply', 'late', 'conflict', 'precondition', 'busy'];
    s3.faultOf = (key) =>
      key.startsWith('entries/') && random() < 1 / 3 ? faults[Math.floor(random() * faults.length)] : undefined;
    const verdicts = await race(bucket(), bucket());
    expect(verdicts.get('201 409') ?? 0).toBeGreaterThan(rounds / 2);
  });
});
