/** What a machine has: cores, memory, GPU driver and libraries, read from /proc and /sys. */
export { pinThread } from './affinity.ts';
export { readCores, type Cores } from './cores.ts';
export { readGpuDriver } from './gpu-driver.ts';
export { readLogicalCores, type LogicalCore } from './logical-cores.ts';
export { findLibrary } from './library.ts';
export { defaultFunctionsBytes, readMemory, type Memory } from './memory.ts';
export { readOomKills } from './oom-kills.ts';
export type { CostConstants, HostReadConstants, Machine, MachineGpu, NvLink, PcieSwitch } from './machine.ts';
export { loadMachine, MachineError, machinePresets, parseMachine } from './machine-file.ts';
export { coresOf, loadMachineOf, withCores, withFirstGpus } from './machine-parts.ts';
export { probeMachine } from './machine-probe.ts';
export { readPciPlace } from './pci.ts';
export { schemaErrors } from './schema-errors.ts';
export { schemaProblem, shown } from './schema-problem.ts';
export {
  concludeTopology,
  parseTopology,
  type CopyBandwidths,
  type StatedTopology,
  type Topology,
} from './topology.ts';
