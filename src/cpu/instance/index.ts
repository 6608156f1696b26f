/** Instance processes, and the sessions in them. */
export { currentCore, handOverOrder } from './affinity.ts';
export * from './handler.ts';
export { Instance } from './instance.ts';
export type { MeasureProcess } from './ledger.ts';
export { proportionalBytes } from './process-memory.ts';
export { givesOptional } from './optional-inputs.ts';
export { bodyIn, bodyTensor, type Joining } from './protocol.ts';
export { Replica, type ReplicaEnd } from './replica.ts';
export { heldUpMs, Processes, tooLargeText, type Reservation } from './processes.ts';
export { LoadGate, needOfLoad } from './load-gate.ts';
export { measuredSession, sessionOptions, type MeasuredSession } from './session-options.ts';
export type { Crash, InstanceLog, OrderedCall, RunDone, RunOrder, RunOutcome } from './tasks.ts';
export type { DiskRead } from './wait-meter.ts';
export { LoadTimeout } from './watchdog.ts';
export { WeightsCache } from './weights.ts';
