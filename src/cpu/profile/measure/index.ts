/** Measures functions on this machine's cores, and keeps what was measured. */
export { batchMax } from '../../pool/configuration.ts';
export * from './fingerprint.ts';
export * from './inputs.ts';
export * from './measure.ts';
export * from './profile-files.ts';
export { reaches } from './reach.ts';
export { median, relativeSpread } from './samples.ts';
export { firstThatRunsAlone, trialRuns } from './trial-runs.ts';
export { poolSockets } from './sockets.ts';
