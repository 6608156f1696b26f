/** The host's side of overflow and asynchronous calls. */
export { createQueueing, type Queueing } from './queueing.ts';
