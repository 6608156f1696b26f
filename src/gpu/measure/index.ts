/** Measures functions on this machine's GPUs, and the links between them. */
export { loadAllPlan, measureLayers } from './layer-profile.ts';
export { measureTopology, type TopologyOptions } from './topology.ts';
export type { MeasuredTopology } from './types.ts';
