/** The host: configuration, registry and model store, HTTP, metrics, lifecycle. */
export { apiKeyEntry, newApiKey, scopes } from './api-keys.ts';
export { ConfigError } from './config-error.ts';
export { checkListen, isLoopback } from './config-listen.ts';
export { loadConfig, type ConfigInput, type LoadedConfig } from './config-load.ts';
export { allowedText, configOptions, packageRoot, type ConfigOption } from './config-options.ts';
export type { HostConfig } from './config.ts';
export { exampleCall } from './example-call.ts';
export { startHost, type RunningHost } from './host.ts';
export type { ListedFunction } from './http/describe.ts';
export { placementText, type InvocationRecord, type InvocationRecorder } from './placement.ts';
export { HostError, toHostError, type ErrorCode } from './errors.ts';
export {
  Validator,
  isFunctionName,
  notFunctionName,
  readFolderSettings,
  resolveSettings,
  type GivenSettings,
} from './store/index.ts';
export { checkStore } from './store/fsck.ts';
export { loadRecord } from './store/version-record.ts';
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
export { createLogger } from './logger.ts';
export { openFolder, TryError, type TriedFunction, type TriedTimes } from './try-folder.ts';
