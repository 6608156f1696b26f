/** The scheduler in a running host or worker: every invocation asks it for a place. */
export { LiveCpu, observationOf, waited, type CpuNeed, type LiveCpuOptions, type MakesRoom } from './live-cpu.ts';
export type { HostRunner } from './host-place.ts';
export { LiveScheduler } from './live-scheduler.ts';
export {
  toSchedulerPriority,
  type FunctionPlans,
  type GpuEviction,
  type GpuReport,
  type GpuResident,
  type GpuRunner,
  type InvocationTerms,
  type JoinedSizes,
  type LivePlace,
  type LiveSchedulerOptions,
  type OtherLease,
  type Placed,
  type RanOnGpu,
  type ScheduledSettings,
  type Why,
  type WhyNot,
} from './types.ts';
export { evictionWords, msText, overflowOf, type Overflow } from './words.ts';
