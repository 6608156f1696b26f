/** What a machine has: cores, memory, counts, GPU driver and libraries, from /proc and /sys; how memory is divided. */
export { pinThread } from './affinity.ts';
export {
  divideMemory,
  divisionText,
  inFlightBytes,
  loadPeakBytes,
  memoryParts,
  preparerPeakBytes,
  ownMemory,
  sessionBytesOf,
  processBytes,
  sessionsThatFit,
  sharedSessionBytesMax,
  shrunkBytes,
  validatorLimitBytes,
  type GivenMemory,
  type MemoryBudget,
  type MemoryDivision,
  type MemoryPart,
} from './budget.ts';
export { processorIdentity, readCores, readCoreTimes, readQuotaPeriods, type QuotaPeriods } from './cores.ts';
export {
  connectionsMax,
  isMachineShort,
  processesShort,
  readDescriptors,
  readProcesses,
  threadsOfProcess,
} from './counts.ts';
export { gpuProcessesHere, hasGpuDriver, readGpuDriver } from './gpu-driver.ts';
export { readLogicalCores, type LogicalCore } from './logical-cores.ts';
export { findLibrary } from './library.ts';
export { readMemory } from './memory.ts';
export type { CostConstants, Machine, MachineGpu, NvLink } from './machine.ts';
export { loadMachine, MachineError, machinePresets, parseMachine } from './machine-file.ts';
export { coresOf, loadMachineOf, withCores, withFirstGpus } from './machine-parts.ts';
export { probeMachine } from './machine-probe.ts';
export { readPciPlace } from './pci.ts';
export { schemaErrors } from './schema-errors.ts';
export { schemaProblem, shown } from './schema-problem.ts';
export { concludeTopology, parseTopology, type CopyBandwidths, type StatedTopology } from './topology.ts';
