/** What functions cost on the GPUs at hand, and how these are joined. */
export { loadAllPlan, measureLayers } from './layer-profile.ts';
export { measureTopology, type TopologyOptions } from './topology.ts';
export type { MeasuredTopology } from './types.ts';
