/** The host's traffic of the last day in bounded memory, as shown by the dashboard and its API. */
export { History, type HistoryColumns, type LatencyDistribution } from './history.ts';
export { EventLog, type HostEvent, type NewHostEvent } from './event-log.ts';
export {
  countNames,
  type CountName,
  boundMs,
  bucketOf,
  coarseScale,
  fineScale,
  quantileMs,
  type HistorySpan,
  type LatencyScale,
} from './ring.ts';
export { busyShare, Usage, type LinkBytes, type UsageNow } from './usage.ts';
