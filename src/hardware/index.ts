/** What a machine is: cores, memory, GPU driver and libraries, read from /proc and /sys. */
export { readCores, type Cores } from './cores.ts';
export { readGpuDriver, type Gpu, type GpuDriver } from './gpu-driver.ts';
export { findLibrary } from './library.ts';
export { readMemory, type Memory } from './memory.ts';
