/**
 * The commands of `turntable`. Only the one that is called is loaded: onnxruntime, HTTP and the model code together
 * take longer to load than `turntable --help` may take to answer.
 */
import type { AnyCommand } from './commander.ts';

export interface CommandEntry {
  readonly name: string;
  /** For the list of `turntable --help`. */
  readonly summary: string;
  /** The heading above it there. */
  readonly group: string;
  readonly load: () => Promise<AnyCommand>;
}

/** The module of the command `ps` exports `psCommand`, which makes the command. */
type Make = (commands: readonly CommandEntry[]) => AnyCommand;

type Entry = readonly [name: string, summary: string, module: () => Promise<object>];

const table: Readonly<Record<string, readonly Entry[]>> = {
  'Run a host': [
    ['serve', 'start the host', () => import('./serve.ts')],
    ['worker', 'take overflow of hosts on this machine', () => import('./worker.ts')],
    ['doctor', 'report what this machine has and what that enables', () => import('./doctor.ts')],
    [
      'topology',
      'show how the GPUs of this machine are joined, with measured bandwidths',
      () => import('./topology.ts'),
    ],
    ['fsck', 'compare every stored model with its hash', () => import('./fsck.ts')],
    ['key', 'make an API key with scopes', () => import('./key.ts')],
    ['drain', 'have a host of a fleet hand its calls and functions over to the others', () => import('./fleet.ts')],
    ['forget', 'show a lost host of a fleet no more', () => import('./fleet.ts')],
  ],
  'Make and try a function': [
    ['init', 'make a folder for a new function, with a handler and its test', () => import('./init.ts')],
    ['make', 'write a model of a known architecture with seeded weights', () => import('./make.ts')],
    ['try', 'call a function of a folder without a host', () => import('./try.ts')],
  ],
  'Publish and manage functions': [
    ['publish', 'publish a model on a running host', () => import('./publish.ts')],
    ['functions', "list a running host's functions", () => import('./functions.ts')],
    ['set', 'change settings of a function, without an upload', () => import('./functions.ts')],
    ['load', 'have a function loaded, and its folder read again', () => import('./functions.ts')],
    ['unload', 'give the memory of a function back', () => import('./functions.ts')],
    ['rm', 'remove a function, or one version, from a running host', () => import('./functions.ts')],
    ['versions', 'list the versions of a function, and which of them answer', () => import('./versions.ts')],
    ['promote', 'give a version all calls of its function, or some', () => import('./versions.ts')],
    ['rollback', 'give all calls to the version that served before', () => import('./versions.ts')],
    ['split', 'divide the calls of a function over its versions', () => import('./versions.ts')],
  ],
  'Call functions': [
    ['call', 'call a function of a running host', () => import('./call.ts')],
    ['jobs', "list, ask for and cancel a running host's asynchronous calls", () => import('./jobs.ts')],
  ],
  'Watch a running host': [
    ['top', 'which functions of a running host miss their SLO, and how busy it is, live', () => import('./top.ts')],
    ['ps', 'what of each function is where on a running host', () => import('./ps.ts')],
    ['logs', 'what a function of a running host, its handler and its instances had to say', () => import('./logs.ts')],
  ],
  'Measure, plan and replay': [
    ['profile', "measure what a function costs on this machine's cores", () => import('./profile.ts')],
    [
      'plan',
      'plan cold starts, CPU pools and CPU-GPU splits; plan capacity: how many GPUs a load needs',
      () => import('./plan.ts'),
    ],
    [
      'replay',
      'replay traffic on a virtual clock or at a running host; compare systems and reports',
      () => import('./replay.ts'),
    ],
  ],
  Other: [
    [
      'completion',
      'print a script that completes commands and flags in bash, zsh or fish',
      () => import('./completion.ts'),
    ],
    ['version', 'print the versions of Turntable, Node and ONNX Runtime', () => import('./version.ts')],
  ],
};

const besideSimulator =
  '--beside-simulator is gone: save the measured report (--live --json measured.json), replay the same load without ' +
  '--live (--json simulated.json), and compare both: turntable replay measured.json simulated.json';

/** What to do instead of a command or an option that is gone. */
export const retired: ReadonlyMap<string, string> = new Map([
  [
    'shadow',
    'shadow is gone: calls are no longer copied to a version. Give the version a small share (turntable promote my-model 2 ' +
      '--percent 1), or call it alone (turntable call my-model --version 2)',
  ],
  [
    'sweep',
    'sweep is replay --over now: turntable replay --over functions=bert-base=20..240..20 --system dha --system pt+dha, ' +
      'with the same load',
  ],
  ['compare', 'compare is replay now, with the files of the reports: turntable replay a.json b.json'],
  ['--svg', '--svg is gone: --html FILE draws the timelines as a page of the dashboard, in one file'],
  ['--beside-simulator', besideSimulator],
  ['--no-beside-simulator', besideSimulator],
]);

export const commands: readonly CommandEntry[] = Object.entries(table).flatMap(([group, entries]) =>
  entries.map(([name, summary, module]) => ({
    name,
    summary,
    group,
    load: async () => ((await module()) as Record<string, Make>)[`${name}Command`]!(commands),
  })),
);
