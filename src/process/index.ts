export { socketChannel, type Channel, type ChannelSeals } from './channel.ts';
export { childEnvironment } from './child-environment.ts';
export { countProcess, niceness, runningProcesses, setNiceness, startProcess, type ProcessOptions } from './child.ts';
export { canGoOffline, confine, goOffline, type ProcessLimits } from './confine.ts';
export { heap, type ProcessMemory } from './heap.ts';
export { countKernelKills, kernelKills, KernelKills, type KernelKill } from './kernel-kills.ts';
export { libcFunction, nativeStackBytes } from './libc.ts';
export { compiledModule } from './module.ts';
export { OutputLines } from './output-lines.ts';
export { tagOutput, takeTag } from './output-tags.ts';
export { parentChannel } from './parent.ts';
export { HangCheck } from './hang-check.ts';
export { isStopped, processorUse, residentBytes, treeCpuMs } from './processor-use.ts';
export type { Peer, PeerEnd } from './peer.ts';
export {
  callOnce,
  GoneError,
  OnDemand,
  Remote,
  serve,
  WithTensors,
  type Asked,
  type Methods,
  type RemoteOptions,
  type Reply,
} from './remote.ts';
export { tellServiceManager } from './service-manager.ts';
export { spawn } from './spawn.ts';
