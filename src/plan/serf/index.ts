/** SERF: the latency of a service under a load, and the best way to run it. */
export {
  evenLoadLevels,
  leastResources,
  serfTable,
  type ConfigurationPrediction,
  type LeastResourcesOptions,
  type LoadLevel,
  type ResourceChoice,
  type SerfOptions,
} from './configurations.ts';
export { capacityPerSecond, predictService, type ServicePrediction } from './predict.ts';
