/** The GPU process in the running host, and the functions on it. */
export type { GpuFunctionState } from './function-state.ts';
export type { GpuHost } from './gpu-host.ts';
export { openGpus } from './open-gpus.ts';
export { SchedulerView, type SchedulerAnswer, type SheetAnswer } from './scheduler-view.ts';
export { gpuViews } from './views.ts';
