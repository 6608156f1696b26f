/**
 * The commands of `turntable`. Only the one that is called is loaded: onnxruntime, HTTP and the model code together take
 * longer to load than `turntable --help` may take to answer.
 */
import type { Command } from 'commander';

export interface CommandEntry {
  readonly name: string;
  /** For the list of `turntable --help`; the command itself says more. */
  readonly summary: string;
  readonly load: () => Promise<Command>;
}

export const commands: readonly CommandEntry[] = [
  {
    name: 'serve',
    summary: 'start the host',
    load: async () => (await import('./serve.ts')).serveCommand(),
  },
  {
    name: 'functions',
    summary: "list a running host's functions",
    load: async () => (await import('./functions.ts')).functionsCommand(),
  },
  {
    name: 'ps',
    summary: 'what of each function is where on a running host',
    load: async () => (await import('./ps.ts')).psCommand(),
  },
  {
    name: 'call',
    summary: 'call a function of a running host',
    load: async () => (await import('./call.ts')).callCommand(),
  },
  {
    name: 'jobs',
    summary: "list, ask for and cancel a running host's asynchronous calls",
    load: async () => (await import('./jobs.ts')).jobsCommand(),
  },
  {
    name: 'worker',
    summary: 'take overflow of hosts on this machine',
    load: async () => (await import('./worker.ts')).workerCommand(),
  },
  {
    name: 'publish',
    summary: 'publish a model on a running host',
    load: async () => (await import('./publish.ts')).publishCommand(),
  },
  {
    name: 'rm',
    summary: 'remove a function, or one version, from a running host',
    load: async () => (await import('./rm.ts')).removeCommand(),
  },
  {
    name: 'make',
    summary: 'write a model of a known architecture with seeded weights',
    load: async () => (await import('./make.ts')).makeCommand(),
  },
  {
    name: 'plan',
    summary: 'plan cold starts, CPU pools and CPU-GPU splits from profiles',
    load: async () => (await import('./plan.ts')).planCommand(),
  },
  {
    name: 'profile',
    summary: "measure what a function costs on this machine's cores",
    load: async () => (await import('./profile.ts')).profileCommand(),
  },
  {
    name: 'replay',
    summary: 'replay traffic on a virtual clock or at a running host, with a verdict on the SLO',
    load: async () => (await import('./replay.ts')).replayCommand(),
  },
  {
    name: 'sweep',
    summary: 'replay over numbers of functions, plans and policies',
    load: async () => (await import('./sweep.ts')).sweepCommand(),
  },
  {
    name: 'compare',
    summary: 'lay reports of replays side by side',
    load: async () => (await import('./compare.ts')).compareCommand(),
  },
  {
    name: 'topology',
    summary: 'show how the GPUs of this machine are joined, with measured bandwidths',
    load: async () => (await import('./topology.ts')).topologyCommand(),
  },
  {
    name: 'doctor',
    summary: 'report what this machine has and what that enables',
    load: async () => (await import('./doctor.ts')).doctorCommand(),
  },
  {
    name: 'version',
    summary: 'print the versions of Turntable, Node and ONNX Runtime',
    load: async () => (await import('./version.ts')).versionCommand(),
  },
];
