/** The scheduler and the GPU process in the running host. */
export type { GpuHost, GpuHostOptions, GpuStatus } from './gpu-host.ts';
export type { GpuStanding } from './registrations.ts';
export { cpuOfferOf, openGpus, type OpenGpusOptions } from './open-gpus.ts';
export { SchedulerView, type SchedulerAnswer, type SheetAnswer } from './scheduler-view.ts';
export type { GpuShell } from './shell.ts';
export type { GpuOutcome, GpuRunner, GpuWish, ShellCounts, ShellEviction, ShellOptions } from './shell-types.ts';
export { gpuViews } from './views.ts';
