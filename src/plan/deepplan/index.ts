/** DeepPlan: the fastest start for a function that is not on the GPU. */
export { deepPlan, initialApproach, loadAll, pipelineSteps, type LayerMethod, type PipelineStep } from './algorithm.ts';
export type { Span } from './link-clock.ts';
export { planColdStart, type PlanOptions } from './plan.ts';
export { latencyKeeping, residencyOf, withPrefix, type Residency, type ResidencyPoint } from './residency.ts';
export { renderColdStart } from './svg.ts';
export { simulate, type TimelineOptions } from './timeline.ts';
export { linkSpeeds, partitionByLoadedBytes, secondaryGpus, type LinkSpeed } from './transmission.ts';
export { methodsWithin } from './within.ts';
export {
  coldStartModes,
  type ColdStartMode,
  type ColdStartPlan,
  type LayerPlan,
  type LayerTimes,
  type Timeline,
} from './types.ts';
