/** SERF: what latency a service has under a load, and which way to run it is best. */
export * from './configurations.ts';
export { capacityPerSecond, predictService, type ServicePrediction } from './predict.ts';
