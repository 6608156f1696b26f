/** Measures functions on this machine's cores, and keeps what was measured. */
export { batchMax } from '../../pool/configuration.ts';
export { fingerprint, measuredOn } from './fingerprint.ts';
export { batchDimension, defaultSize, makeInputs, resolveSizes, type BatchDimension } from './inputs.ts';
export { measureCpu, type MeasureOptions, type MeasureProgress } from './measure.ts';
export { ProfileFiles, type ProfileKey } from './profile-files.ts';
export { reaches } from './reach.ts';
export { median, relativeSpread } from './samples.ts';
export { poolSockets } from './sockets.ts';
