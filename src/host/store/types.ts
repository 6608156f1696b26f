/** The seam around the model store: what it is given. Nothing here runs. */
import type { HostConfig } from '../config.ts';
import type { ModelStore } from '../types.ts';
import type { ValidateModel } from './validation.ts';

/** The part of a pino logger that the store writes to. */
export interface StoreLogger {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

export interface ModelStoreOptions {
  /** Everything that survives a restart; one host at a time. Created when missing. */
  readonly dataDir: string;
  /** One folder for each function that ships as a folder; may be missing. */
  readonly functionsDir: string;
  readonly defaults: HostConfig['defaults'];
  readonly limits: Pick<HostConfig['limits'], 'uploadBytesMax'>;
  readonly validate: ValidateModel;
  readonly logger: StoreLogger;
}

/** A model store that holds its data folder until it is closed. */
export interface DiskModelStore extends ModelStore {
  /** Lets another host use the data folder. Uploads under way must be over. */
  close(): Promise<void>;
}
