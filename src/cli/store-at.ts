import { loadConfig } from '../host/index.ts';
import { openStore, type Store } from '../store/index.ts';
import { usage } from './error.ts';

/** The store at a place; by default the one that a host on this machine has. @throws CliError */
export async function storeAt(place: string | undefined): Promise<Store> {
  const { store, dataDir } = loadConfig({ flags: {} }).config;
  try {
    return await openStore(place ?? store.place ?? dataDir, process.env);
  } catch (error) {
    throw usage((error as Error).message);
  }
}
