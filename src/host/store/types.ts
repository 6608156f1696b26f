/** The model store's options. Types only. */
import type { Store } from '../../store/index.ts';
import type { Log } from '../../tools/index.ts';
import type { HostConfig } from '../config/config.ts';
import type { CheckRows } from './row-checks.ts';
import type { StoreBroadcast } from './store-watch.ts';
import type { ValidateModel } from './validation.ts';
import type { InTurn } from './validator.ts';

export interface SharedStore {
  readonly store: Store;
  /** What files of the store may take on this disk; undefined: any amount. */
  readonly cacheBytes: number | undefined;
  /** Time since the latest call of a version (`name@version`) here; Infinity if there was none. */
  readonly idleMs: (key: string) => number;
  readonly broadcast?: StoreBroadcast | undefined;
}

export interface ModelStoreOptions {
  /** Everything that survives a restart; one host at a time. Created if missing. */
  readonly dataDir: string;
  /** Where an earlier version kept it; moved to `dataDir` at start. */
  readonly dataDirBefore?: string | undefined;
  /** One folder for each function that ships as a folder; may be missing. */
  readonly functionsDir: string;
  /** Where functions live that other machines have as well; undefined: in the data folder alone. */
  readonly shared?: SharedStore | undefined;
  readonly defaults: HostConfig['defaults'];
  readonly limits: Pick<HostConfig['limits'], 'uploadBytesMax'>;
  readonly validate: ValidateModel;
  /** For checks of rows, which take turns with validations. */
  readonly inTurn: InTurn;
  /** Default: in a process. */
  readonly checkRows?: CheckRows;
  /** Why no place could ever run a model of this size; undefined if one might. Asked before it is published. */
  readonly whyNowhere?: ((name: string, modelBytes: number) => string | undefined) | undefined;
  readonly logger: Log;
}
