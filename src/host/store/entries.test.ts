/** Entries as a damaged disk has them. */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { metadata, sha256 } from '../../../test/host/store-fixtures.ts';
import { silentLog } from '../../../test/support/silent-log.ts';
import { FolderStore } from '../../store/index.ts';
import { allTo } from '../rollout/traffic.ts';
import { Entries } from './entries.ts';
import type { FunctionEntry } from './version-record.ts';

/** Each member of a JSON value, and each of theirs. */
function* placesIn(value: unknown, place: readonly string[] = []): Generator<readonly string[]> {
  if (typeof value !== 'object' || value === null) return;
  for (const [key, member] of Object.entries(value)) {
    const inner = [...place, key];
    yield inner;
    yield* placesIn(member, inner);
  }
}

/** A copy with another value at a place; undefined: without one. */
function withValue(value: unknown, [key = '', ...rest]: readonly string[], other: unknown): unknown {
  const members = Object.entries(value as object).map(([name, member]: [string, unknown]): [string, unknown] =>
    name === key ? [name, rest.length === 0 ? other : withValue(member, rest, other)] : [name, member],
  );
  return Array.isArray(value) ? members.map(([, member]) => member) : Object.fromEntries(members);
}

const entry: FunctionEntry = {
  versions: [
    {
      format: 1,
      name: 'echo',
      version: '1',
      sequence: 1,
      publishedAtMs: 1,
      settings: { slo: '40ms' },
      files: [{ name: 'model.onnx', sha256: sha256('model'), bytes: 5 }],
      metadata,
    },
  ],
  settings: { 1: { slo: '50ms' } },
  traffic: allTo('1'),
  unreadable: ['2'],
};

test('a member of an entry that is another value, or missing, ends no start and hides no version', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'turntable-entries-'));
  try {
    const store = new FolderStore(folder);
    await store.write('echo', { ...entry }, undefined);
    await store.write('other', { ...entry }, undefined);
    const path = join(folder, 'entries', 'echo', '1.json');
    const sound: unknown = JSON.parse(await readFile(path, 'utf8'));
    const wrong: string[] = [];
    for (const place of placesIn(sound)) {
      for (const value of [null, 5, 'x', [], {}, [null], undefined]) {
        const as = `${place.join('.')} ${JSON.stringify(value)}`;
        // Sound as well: the function was removed, has other versions, or is of a newer release.
        if (/^(body null|format 5|body\.versions \[\]|body\.versions\.0\.version "x")$/.test(as)) continue;
        await writeFile(path, JSON.stringify(withValue(sound, place, value)));
        const entries = new Entries(store, silentLog);
        try {
          await entries.start();
        } catch (error) {
          wrong.push(`${as}: ${String(error)}`);
          continue;
        }
        expect(entries.get('other').versions).toHaveLength(1);
        const { versions, unreadable = [] } = entries.get('echo');
        // Files of versions that a readable entry does not name are taken for leftovers, and removed.
        if (entries.isReadable('echo') && ![...versions.map(({ version }) => version), ...unreadable].includes('1'))
          wrong.push(`${as}: version 1 is hidden`);
      }
    }
    expect(wrong).toEqual([]);
  } finally {
    await rm(folder, { recursive: true });
  }
});
