export { socketChannel, type Channel } from './channel.ts';
export { childEnvironment } from './child-environment.ts';
export { niceness, runningProcesses, startProcess } from './child.ts';
export { canGoOffline, confine, goOffline } from './confine.ts';
export { heap, type OwnMemory, type ProcessMemory } from './heap.ts';
export { countKernelKills, kernelKills, type KernelKill } from './kernel-kills.ts';
export { libcFunction, loadKoffi, nativeStackBytes } from './libc.ts';
export { compiledModule } from './module.ts';
export { tagOutput, takeTag } from './output-tags.ts';
export { parentChannel } from './parent.ts';
export { HangCheck } from './hang-check.ts';
export { isStopped, processorUse, treeCpuMs } from './processor-use.ts';
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
} from './remote.ts';
export type { Lease, Reservation, SharedArea, SharedMemory } from './region.ts';
export { tellServiceManager } from './service-manager.ts';
export { spawn } from './spawn.ts';
