/** The host's side of overflow and asynchronous calls. */
export { FunctionFiles } from './function-files.ts';
export { createQueueing, reachable, type Queueing, type QueueingOptions } from './queueing.ts';
export { WorkersWatch } from './workers-watch.ts';
