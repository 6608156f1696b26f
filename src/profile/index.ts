/** The cost of a function on a machine: the forms of profiles, the same in files and in memory. */
export {
  parseGraphProfile,
  resolveEdges,
  type GraphProfile,
  type OperatorBytes,
  type OperatorEdge,
  type OperatorProfile,
  type ResolvedEdge,
} from './graph.ts';
export { parsePoolProfile, type PoolProfile } from './pool.ts';
export { profileCheck, ProfileError } from './profile-error.ts';
export { parseServiceProfile, type ServiceConfiguration, type ServiceProfile } from './service.ts';
export { comesCoded, layersAsTheyAre } from './forms.ts';
export { linkBytes, parseLayerProfile, type LayerCost, type LayerProfile, type ProfileLayer } from './layers.ts';
export { estimateLayers } from './analytic/estimate.ts';
export type { WeightBits } from './analytic/coding.ts';
export { estimateOperators, type OperatorsEstimate } from './analytic/operators.ts';
export { modelNames, namedModel, type NamedModel } from './named-models.ts';
