/** SERF: what latency a service has under a load, and which way to run it is best. */
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
