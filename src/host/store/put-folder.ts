/** Publishes a function's folder, with its handler, into a store; whoever holds the store's keys does it, never HTTP. */
import { createReadStream } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { externalFiles, readModel } from '../../onnx/index.ts';
import type { Store } from '../../store/index.ts';
import type { HostConfig } from '../config/config.ts';
import { HostError } from '../errors.ts';
import { FolderFunctions } from './folder-functions.ts';
import { boundToThisMachine } from './handlers.ts';
import { checkFunctionName, uploadedModel } from './names.ts';
import type { Published } from './publication.ts';
import { DiskModelStore } from './store.ts';
import type { ModelStoreOptions } from './types.ts';
import { Validations } from './validation.ts';
import type { Validator } from './validator.ts';

export interface PutFolderOptions {
  readonly store: Store;
  /** Default: as the folder is called. */
  readonly name: string | undefined;
  readonly config: Pick<HostConfig, 'defaults' | 'limits'>;
  readonly validator: Pick<Validator, 'validate' | 'inTurn'>;
  readonly logger: ModelStoreOptions['logger'];
}

/**
 * Its versions count as those of uploads; the newest serves.
 *
 * @throws HostError with a sentence: the folder holds no function, its model or handler is refused, or the store is away
 */
export async function putFolder(path: string, options: PutFolderOptions): Promise<Published> {
  const { store, config, validator, logger } = options;
  const folder = resolve(path);
  const name = options.name ?? basename(folder);
  checkFunctionName(name);
  const temporary = await mkdtemp(join(tmpdir(), 'turntable-put-'));
  const own = new DiskModelStore({
    ...config,
    dataDir: join(temporary, 'data'),
    functionsDir: join(temporary, 'functions'),
    shared: { store, cacheBytes: undefined, idleMs: () => Infinity },
    validate: validator.validate,
    inTurn: validator.inTurn,
    logger,
  });
  try {
    await own.start();
    const folders = new FolderFunctions({
      functionsDir: dirname(folder),
      handlersDir: join(temporary, 'data', 'handlers'),
      defaults: config.defaults,
      validations: new Validations(join(temporary, 'data', 'validated'), validator.validate),
      logger,
    });
    const read = await folders.read(basename(folder));
    if (read === undefined) throw new HostError('bad-request', `${folder} holds no function: it has no function.json`);
    const { state, handlerPath, modelPath } = read.version;
    if (state.status === 'unavailable') throw new HostError('bad-request', `${folder}: ${state.reason}`);
    const reason = handlerPath === undefined ? undefined : boundToThisMachine(await readFile(handlerPath, 'utf8'));
    if (reason !== undefined) throw new HostError('bad-request', `${folder}: ${reason}, which other machines lack`);
    const publication = await own.beginPublish(name, undefined);
    try {
      await publication.writeFile(uploadedModel, createReadStream(modelPath));
      for (const each of externalFiles(await readModel(modelPath))) {
        await publication.writeFile(each, createReadStream(join(dirname(modelPath), each)));
      }
      if (handlerPath !== undefined) await publication.useHandler(handlerPath);
      const { model: _model, handler: _handler, $schema: _schema, example, ...settings } = read.given;
      // An example in a file stays with the folder.
      const published = example === undefined || example.startsWith('@') ? settings : { ...settings, example };
      return await publication.commit(published);
    } finally {
      await publication.abort();
    }
  } finally {
    await own.close();
    await rm(temporary, { recursive: true, force: true });
  }
}
