/** SERF: the latency of a service under a load, and the best way to run it. */
export * from './configurations.ts';
export { capacityPerSecond, idleGapMs, predictService, type ServicePrediction } from './predict.ts';
