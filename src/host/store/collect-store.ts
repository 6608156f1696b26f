/** Removes from a store what no entry names any more. */
import type { Store } from '../../store/index.ts';
import { Entries } from './entries.ts';

export interface CollectReport {
  readonly files: number;
  readonly bytes: number;
}

const ignore = (): void => undefined;

/**
 * @param graceMs content that was put more recently stays: its entry may be about to be written
 * @throws StoreAway; Error with a sentence where an entry cannot be read, since its files are then unknown
 */
export async function collectStore(store: Store, graceMs: number): Promise<CollectReport> {
  // Before the entries: what a publisher puts after this is not in the list.
  const contents = await store.contents();
  const unread: string[] = [];
  const entries = new Entries(store, {
    info: ignore,
    warn: ignore,
    error: (fields) => void unread.push(String((fields as { function?: unknown }).function)),
  });
  await entries.start();
  if (unread.length > 0) {
    throw new Error(`nothing was removed: the entries of these functions cannot be read: ${unread.join(', ')}`);
  }
  const named = new Set(
    entries
      .names()
      .flatMap((name) => entries.get(name).versions.flatMap(({ files }) => files.map((file) => file.sha256))),
  );
  let [files, bytes] = [0, 0];
  for (const content of contents) {
    if (named.has(content.sha256) || content.ageMs < graceMs) continue;
    await store.discard(content.sha256);
    files++;
    bytes += content.bytes;
  }
  return { files, bytes };
}
