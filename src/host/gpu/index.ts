/** The scheduler and the GPU process in the running host. */
export { GpuHost, type GpuHostOptions, type GpuStanding, type GpuStatus } from './gpu-host.ts';
export { openGpus, type OpenGpusOptions } from './open-gpus.ts';
export { GpuShell, type GpuOutcome, type GpuRunner, type ShellEviction, type ShellOptions } from './shell.ts';
export { gpuViews } from './views.ts';
