/** Functions on disk: the model store, function.json, handlers and the validator. */
export { DiskModelStore } from './store.ts';
export type { DiskFigures, DiskUse } from './disk-use.ts';
export { boundToThisMachine } from './handlers.ts';
export { validationsAtOnce, Validator } from './validator.ts';
export type { StoreBroadcast } from './store-watch.ts';
export type { ModelStoreOptions } from './types.ts';
export type { ValidatedModel } from './validation.ts';
export { readFolderSettings, resolveSettings, type GivenSettings } from './settings.ts';
export { isFunctionName, notFunctionName } from './names.ts';
