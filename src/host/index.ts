/** The host: configuration, registry and model store, HTTP, metrics, lifecycle. */
export { apiKeyEntry, newApiKey, scopes } from './access/api-keys.ts';
export { ConfigError } from './config/config-error.ts';
export { checkListen, isLoopback } from './config/listen.ts';
export { loadConfig, type ConfigInput, type LoadedConfig } from './config/load-config.ts';
export { allowedText, configOptions, packageRoot, type ConfigOption } from './config/options.ts';
export type { HostConfig } from './config/config.ts';
export { exampleCall } from './rollout/example-call.ts';
export { startHost, type RunningHost } from './host.ts';
export type { ListedFunction } from './http/describe.ts';
export { placementText, type InvocationRecord, type InvocationRecorder } from './calls/placement.ts';
export { HostError, toHostError, type ErrorCode } from './errors.ts';
export {
  Validator,
  isFunctionName,
  notFunctionName,
  readFolderSettings,
  resolveSettings,
  type GivenSettings,
} from './store/index.ts';
export { checkStore, newestUpload } from './store/fsck.ts';
export { collectStore } from './store/collect-store.ts';
export { importData } from './store/import-data.ts';
export { putFolder } from './store/put-folder.ts';
export type { FunctionSettings, ModelMetadata, TensorSpec } from './types.ts';
export { anatomyMode } from './dashboard/index.ts';
export type {
  FleetHostAnswer,
  FunctionRow,
  LogAnswer,
  LogLine,
  MachineAnswer,
  PlanReport,
  PlanTimeline,
  TroubleAnswer,
  PlacedVersion,
} from './dashboard/index.ts';
export { createLogger } from './records/logger.ts';
export { openFolder, TryError, type TriedFunction, type TriedTimes } from './try-folder.ts';
