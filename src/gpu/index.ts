/** Runs models on NVIDIA GPUs: driver, operators, programs, transfers. */
export { CudaError, type Cuda, type CudaDevice, type CudaErrorKind, type LiveCounts } from './driver/types.ts';
export { openCuda, type CudaOptions } from './driver/open.ts';
