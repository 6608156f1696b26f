/** The host: configuration, registry and model store, HTTP, metrics, lifecycle. */
export { apiKeyEntry, newApiKey, scopes } from './access/api-keys.ts';
export { readCertificateEnds } from './config/certificate-files.ts';
export { certificateTrouble } from './dependencies.ts';
export { checkFleet } from './fleet-member/index.ts';
export { checkListen } from './config/listen.ts';
export { loadConfig, type ConfigInput } from './config/load-config.ts';
export { configOptions, packageRoot, type ConfigOption } from './config/options.ts';
export type { HostConfig } from './config/config.ts';
export { ConfigError } from './config/config-error.ts';
export { HostError } from './errors.ts';
export { exampleCall } from './rollout/example-call.ts';
export { startHost, type HostOptions, type RunningHost } from './host.ts';
export type { OtherPlace, RanThere } from './calls/other-place.ts';
export type { ListedFunction } from './http/describe.ts';
export { placementText, type InvocationRecord, type InvocationRecorder } from './calls/placement.ts';
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
export type { FunctionSettings } from './types.ts';
export { plannedColdStart } from './dashboard/index.ts';
export type { FunctionRow, MachineAnswer, PlanReport, PlanTimeline, TroubleAnswer } from './dashboard/index.ts';
export type { FleetHostAnswer } from './http/fleet-routes.ts';
export type { LogLine } from './records/function-log.ts';
export { createLogger } from './records/logger.ts';
export { openFolder, TryError, type TriedFunction, type TriedTimes } from './try-folder.ts';
