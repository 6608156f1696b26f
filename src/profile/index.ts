/** What a function costs on a machine: the forms of profiles, the same in files and in memory. */
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
export { ProfileError } from './profile-error.ts';
export { parseServiceProfile, type ServiceConfiguration, type ServiceProfile } from './service.ts';
