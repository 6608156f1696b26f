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
    name: 'drain',
    summary: 'have a host of a fleet hand its calls and functions over to the others',
    load: async () => (await import('./fleet.ts')).drainCommand(),
  },
  {
    name: 'forget',
    summary: 'show a lost host of a fleet no more',
    load: async () => (await import('./fleet.ts')).forgetCommand(),
  },
  {
    name: 'top',
    summary: 'which functions of a running host miss their SLO, and how busy it is, live',
    load: async () => (await import('./top.ts')).topCommand(),
  },
  {
    name: 'logs',
    summary: 'what a function of a running host, its handler and its instances had to say',
    load: async () => (await import('./logs.ts')).logsCommand(),
  },
  {
    name: 'load',
    summary: 'have a function loaded, and its folder read again',
    load: async () => (await import('./load.ts')).loadCommand(),
  },
  {
    name: 'unload',
    summary: 'give the memory of a function back',
    load: async () => (await import('./load.ts')).unloadCommand(),
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
    name: 'set',
    summary: 'change settings of a function, without an upload',
    load: async () => (await import('./set.ts')).setCommand(),
  },
  {
    name: 'versions',
    summary: 'list the versions of a function, and which of them answer',
    load: async () => (await import('./versions.ts')).versionsCommand(),
  },
  {
    name: 'promote',
    summary: 'give a version all calls of its function, or some',
    load: async () => (await import('./versions.ts')).promoteCommand(),
  },
  {
    name: 'rollback',
    summary: 'give all calls to the version that served before',
    load: async () => (await import('./versions.ts')).rollbackCommand(),
  },
  {
    name: 'split',
    summary: 'divide the calls of a function over its versions',
    load: async () => (await import('./versions.ts')).splitCommand(),
  },
  {
    name: 'shadow',
    summary: 'copy calls to a version and compare its answers',
    load: async () => (await import('./versions.ts')).shadowCommand(),
  },
  {
    name: 'rm',
    summary: 'remove a function, or one version, from a running host',
    load: async () => (await import('./rm.ts')).removeCommand(),
  },
  {
    name: 'init',
    summary: 'make a folder for a new function, with a handler and its test',
    load: async () => (await import('./init.ts')).initCommand(),
  },
  {
    name: 'try',
    summary: 'call a function of a folder without a host',
    load: async () => (await import('./try.ts')).tryCommand(),
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
    name: 'fsck',
    summary: 'compare every stored model with its hash',
    load: async () => (await import('./fsck.ts')).fsckCommand(),
  },
  {
    name: 'key',
    summary: 'make an API key with scopes',
    load: async () => (await import('./key.ts')).keyCommand(),
  },
  {
    name: 'doctor',
    summary: 'report what this machine has and what that enables',
    load: async () => (await import('./doctor.ts')).doctorCommand(),
  },
  {
    name: 'completion',
    summary: 'print a script that completes commands and flags in bash, zsh or fish',
    load: async () => (await import('./completion.ts')).completionCommand(commands),
  },
  {
    name: 'version',
    summary: 'print the versions of Turntable, Node and ONNX Runtime',
    load: async () => (await import('./version.ts')).versionCommand(),
  },
];
