/** The scheduler in the running host: every invocation asks it for a place. */
export { LiveScheduler } from './live-scheduler.ts';
export {
  LeftError,
  QueueFullError,
  toSchedulerPriority,
  type FunctionPlans,
  type GpuEviction,
  type GpuNews,
  type GpuResident,
  type GpuRunner,
  type InvocationWish,
  type JoinedSizes,
  type LiveSchedulerOptions,
  type Placed,
  type RanOnGpu,
  type ScheduledSettings,
  type Why,
  type WhyNot,
} from './types.ts';
export { cpuRefusal, evictionWords, msText, overflowOf, type Overflow } from './words.ts';
