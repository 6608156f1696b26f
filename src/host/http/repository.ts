/** Loading and unloading as in Triton's repository extension, for every protocol. */
import { HostError } from '../errors.ts';
import type { FunctionVersion, Publisher } from '../types.ts';
import { versionNamed, type HostContext } from './host-context.ts';
import type { LoadFile, LoadRequest } from './load-body.ts';

export type RepositoryContext = Pick<HostContext, 'store' | 'invoker' | 'pools' | 'lifecycle'>;

/**
 * Reads the function's folder, which may be new or changed, then makes sure that an instance is ready. A `config` holds
 * until the function is loaded without one. Files are published like an upload, and stay.
 */
export async function loadFunction(
  context: RepositoryContext,
  name: string,
  { override, files }: LoadRequest,
  publisher: Publisher,
): Promise<{ readonly version: FunctionVersion; readonly loadMs: number }> {
  try {
    if (files.length > 0) await publishFiles(context, name, files, publisher);
    await context.store.reload(name, override);
  } catch (error) {
    // Triton's clients look for these words.
    if (!(error instanceof HostError)) throw error;
    throw new HostError(error.code, `failed to load '${name.slice(0, 80)}': ${error.message}`, { cause: error });
  }
  const version = await context.invoker.ready(versionNamed(context, name, undefined));
  const loadMs = await context.invoker.load(version);
  for (const other of context.store.versions(name)) context.invoker.outOfService.load(other);
  return { version, loadMs };
}

/** Under the version of their folder; under the next one if another model has that. */
async function publishFiles(
  { store }: RepositoryContext,
  name: string,
  files: readonly LoadFile[],
  publisher: Publisher,
): Promise<void> {
  const [first] = files;
  const number = first?.version;
  if (number === undefined || files.some(({ version }) => version !== number)) {
    throw new HostError('bad-request', 'the files are of several versions, of which one at a time can be loaded');
  }
  const publish = async (version: string | undefined): Promise<void> => {
    const publication = await store.beginPublish(name, version, publisher);
    try {
      for (const file of files) await publication.writeFile(file.path, file.content());
      await publication.commit({});
    } catch (error) {
      await publication.abort();
      throw error;
    }
  };
  try {
    await publish(number);
  } catch (error) {
    const isTaken = error instanceof HostError && (error.code === 'version-exists' || error.code === 'folder-function');
    if (!isTaken) throw error;
    await publish(undefined);
  }
}

/**
 * Releases the instances of every version. They are not ready until they are loaded again, by a request or by the next
 * call. Returns the versions that had instances.
 */
export async function unloadFunction(context: RepositoryContext, name: string): Promise<readonly FunctionVersion[]> {
  versionNamed(context, name, undefined);
  const versions = context.store.versions(name);
  for (const version of versions) context.invoker.outOfService.unload(version);
  const held = versions.filter(({ key }) => context.pools.state(key) !== undefined);
  await Promise.all(held.map((version) => context.invoker.unload(version)));
  return held;
}
