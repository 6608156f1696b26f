/** The scheduler and the GPU process in the running host. */
export { GpuHost, type GpuHostOptions, type GpuStanding, type GpuStatus } from './gpu-host.ts';
export { openGpus, type OpenGpusOptions } from './open-gpus.ts';
export { GpuShell } from './shell.ts';
export type { GpuOutcome, GpuRunner, ShellCounts, ShellEviction, ShellOptions } from './shell-types.ts';
export { gpuViews } from './views.ts';
