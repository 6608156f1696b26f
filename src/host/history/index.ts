/** The host's traffic of the last day in bounded memory, as shown by the dashboard and its API. */
export { History, type HistoryCounts, type TrafficTotals } from './history.ts';
export { EventLog, ofHost, type HostEvent } from './event-log.ts';
export { boundMs, type HistorySpan } from './ring.ts';
export { busyShare, fullShare, heldBackShare, Usage, type LinkBytes, type UsageNow } from './usage.ts';
