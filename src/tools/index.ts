/** Small tools that every folder may use. */
export { asCalled, calledAs } from './called-as/index.ts';
export { CallerWatch } from './caller-watch.ts';
export { Cancellation, type CancelSignal } from './cancellation.ts';
export { coreWaitMs } from './core-wait.ts';
export {
  closedSynced,
  hasCode,
  ifThere,
  namesInFolder,
  readTextIfThere,
  synced,
  syncNames,
  unlinkIfThere,
  writeDurably,
} from './disk-files.ts';
export { exampleBody, exampleCount, nestedExample } from './example-body.ts';
export { given } from './given.ts';
export { inParallel } from './in-parallel.ts';
export { jsonAs } from './json.ts';
export {
  controlGroupFolders,
  listFolder,
  parseKernelList,
  readInteger,
  readText,
  statusBytes,
} from './kernel-files.ts';
export type { Log } from './log.ts';
export { KeyedMutex, Semaphore } from './semaphore.ts';
export { formatBytes, formatDuration, formatMs, missingUnit, parseDurationMs, parseSizeBytes } from './units.ts';
export {
  exists,
  hashFile,
  replaceFile,
  temporaryFile,
  temporaryPath,
  writeWhole,
  type StreamedBytes,
} from './whole-files.ts';
export { makeFolders } from './make-folders.ts';
export * from './maps.ts';
export { mix32, randomOf } from './mix.ts';
export { inNetworks, isNetwork, networkOf } from './networks.ts';
export { once } from './once.ts';
export { quoted } from './quoted.ts';
export { smoothed } from './smoothed.ts';
export { removeUnused } from './unused.ts';
export { backoffMs, doneWithin, timerMsMax } from './within.ts';
