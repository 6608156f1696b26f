/** The host's side of overflow and asynchronous calls. */
export { FunctionFiles } from './function-files.ts';
export { LocalEstimate } from './local-estimate.ts';
export { createQueueing, type Queueing, type QueueingOptions } from './queueing.ts';
export { Placer, type Placed, type PlacerOptions } from './placer.ts';
