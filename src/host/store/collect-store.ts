/** Removes from a store what no entry names any more. */
import { fetchText, type Store } from '../../store/index.ts';
import { inParallel } from '../../tools/index.ts';
import { Entries } from './entries.ts';
import { storedFiles, type VersionRecord } from './version-record.ts';

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
  const named = await namedBy(
    entries.names().flatMap((name) => entries.get(name).versions),
    store,
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

/** The hashes of all that versions consist of. @throws Error with a sentence where a list of chunks cannot be read */
async function namedBy(versions: readonly VersionRecord[], store: Store): Promise<ReadonlySet<string>> {
  const named = new Set<string>();
  const source = store.source(new AbortController().signal);
  await inParallel(versions, async (record) => {
    const { name, version, files, chunks } = record;
    if (chunks === undefined) return files.forEach(({ sha256 }) => named.add(sha256));
    if (named.has(chunks.sha256)) return;
    try {
      for (const { sha256 } of storedFiles(record, await fetchText(source, chunks))) named.add(sha256);
    } catch (error) {
      const { message } = error as Error;
      throw new Error(`nothing was removed: the chunks of ${name}@${version} are not known: ${message}`, {
        cause: error,
      });
    }
  });
  return named;
}
