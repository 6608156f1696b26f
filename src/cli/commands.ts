/**
 * The commands of `turntable`. Only the one that is called is loaded: onnxruntime, HTTP and the model code together
 * take longer to load than `turntable --help` may take to answer.
 */
import type { Command } from 'commander';

export interface CommandEntry {
  readonly name: string;
  /** For the list of `turntable --help`; the command itself says more. */
  readonly summary: string;
  readonly load: () => Promise<Command>;
}

const table: readonly (readonly [name: string, summary: string, load: () => Promise<Command>])[] = [
  ['serve', 'start the host', async () => (await import('./serve.ts')).serveCommand()],
  ['functions', "list a running host's functions", async () => (await import('./functions.ts')).functionsCommand()],
  ['ps', 'what of each function is where on a running host', async () => (await import('./ps.ts')).psCommand()],
  [
    'drain',
    'have a host of a fleet hand its calls and functions over to the others',
    async () => (await import('./fleet.ts')).drainCommand(),
  ],
  ['forget', 'show a lost host of a fleet no more', async () => (await import('./fleet.ts')).forgetCommand()],
  [
    'top',
    'which functions of a running host miss their SLO, and how busy it is, live',
    async () => (await import('./top.ts')).topCommand(),
  ],
  [
    'logs',
    'what a function of a running host, its handler and its instances had to say',
    async () => (await import('./logs.ts')).logsCommand(),
  ],
  ['load', 'have a function loaded, and its folder read again', async () => (await import('./load.ts')).loadCommand()],
  ['unload', 'give the memory of a function back', async () => (await import('./load.ts')).unloadCommand()],
  ['call', 'call a function of a running host', async () => (await import('./call.ts')).callCommand()],
  [
    'jobs',
    "list, ask for and cancel a running host's asynchronous calls",
    async () => (await import('./jobs.ts')).jobsCommand(),
  ],
  ['worker', 'take overflow of hosts on this machine', async () => (await import('./worker.ts')).workerCommand()],
  ['publish', 'publish a model on a running host', async () => (await import('./publish.ts')).publishCommand()],
  ['set', 'change settings of a function, without an upload', async () => (await import('./set.ts')).setCommand()],
  [
    'versions',
    'list the versions of a function, and which of them answer',
    async () => (await import('./versions.ts')).versionsCommand(),
  ],
  [
    'promote',
    'give a version all calls of its function, or some',
    async () => (await import('./versions.ts')).promoteCommand(),
  ],
  [
    'rollback',
    'give all calls to the version that served before',
    async () => (await import('./versions.ts')).rollbackCommand(),
  ],
  [
    'split',
    'divide the calls of a function over its versions',
    async () => (await import('./versions.ts')).splitCommand(),
  ],
  [
    'shadow',
    'copy calls to a version and compare its answers',
    async () => (await import('./versions.ts')).shadowCommand(),
  ],
  [
    'rm',
    'remove a function, or one version, from a running host',
    async () => (await import('./rm.ts')).removeCommand(),
  ],
  [
    'init',
    'make a folder for a new function, with a handler and its test',
    async () => (await import('./init.ts')).initCommand(),
  ],
  ['try', 'call a function of a folder without a host', async () => (await import('./try.ts')).tryCommand()],
  [
    'make',
    'write a model of a known architecture with seeded weights',
    async () => (await import('./make.ts')).makeCommand(),
  ],
  [
    'plan',
    'plan cold starts, CPU pools and CPU-GPU splits from profiles',
    async () => (await import('./plan.ts')).planCommand(),
  ],
  [
    'profile',
    "measure what a function costs on this machine's cores",
    async () => (await import('./profile.ts')).profileCommand(),
  ],
  [
    'replay',
    'replay traffic on a virtual clock or at a running host, with a verdict on the SLO',
    async () => (await import('./replay.ts')).replayCommand(),
  ],
  [
    'sweep',
    'replay over numbers of functions, plans and policies',
    async () => (await import('./sweep.ts')).sweepCommand(),
  ],
  ['compare', 'lay reports of replays side by side', async () => (await import('./compare.ts')).compareCommand()],
  [
    'topology',
    'show how the GPUs of this machine are joined, with measured bandwidths',
    async () => (await import('./topology.ts')).topologyCommand(),
  ],
  ['fsck', 'compare every stored model with its hash', async () => (await import('./fsck.ts')).fsckCommand()],
  ['key', 'make an API key with scopes', async () => (await import('./key.ts')).keyCommand()],
  [
    'doctor',
    'report what this machine has and what that enables',
    async () => (await import('./doctor.ts')).doctorCommand(),
  ],
  [
    'completion',
    'print a script that completes commands and flags in bash, zsh or fish',
    async () => (await import('./completion.ts')).completionCommand(commands),
  ],
  [
    'version',
    'print the versions of Turntable, Node and ONNX Runtime',
    async () => (await import('./version.ts')).versionCommand(),
  ],
];

export const commands: readonly CommandEntry[] = table.map(([name, summary, load]) => ({ name, summary, load }));
