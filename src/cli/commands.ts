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
type Make = () => AnyCommand;

type Entry = readonly [name: string, summary: string, module: () => Promise<object>];

const table: Readonly<Record<string, readonly Entry[]>> = {
  'Run a host': [
    ['serve', 'start the host', () => import('./serve.ts')],
    ['worker', 'take overflow of hosts on this machine', () => import('./worker.ts')],
    ['doctor', 'report what this machine has and what that enables', () => import('./doctor.ts')],
    ['store', 'check the stored models against their hashes, and mend them', () => import('./store.ts')],
    ['key', 'make an API key with scopes', () => import('./key.ts')],
    ['drain', 'have a host of a fleet hand its calls and functions over to the others', () => import('./fleet.ts')],
  ],
  'Make and try a function': [
    ['init', 'make a folder for a new function, with a handler and its test', () => import('./init.ts')],
    ['make', 'write a model of a known architecture with seeded weights', () => import('./make.ts')],
    ['try', 'call a function of a folder without a host', () => import('./try.ts')],
  ],
  'Publish and manage functions': [
    ['publish', 'publish a model on a running host', () => import('./publish.ts')],
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
    ['ps', "list a running host's functions: their state, and where each of them is", () => import('./ps.ts')],
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
  Other: [['version', 'print the versions of Turntable, Node and ONNX Runtime', () => import('./version.ts')]],
};

const besideSimulator =
  '--beside-simulator is gone: save the measured report (--live --json measured.json), replay the same load without ' +
  '--live (--json simulated.json), and compare both: turntable replay measured.json simulated.json';

/** Options of `replay` and `plan capacity` for parts of a policy that no host lets anybody choose. */
const ofPolicy = (option: string): [string, string] => [
  option,
  `${option} is gone: it follows from --policy; --routing, --eviction, --order, --admission and --copies replace parts of ` +
    'a policy',
];

const ofConverter = (option: string): [string, string] => [
  option,
  `${option} is an option of the converter of traces now: npx tsx scripts/convert-trace.ts day.csv trace.jsonl ${option}`,
];

const ofPlan = (name: string): [string, string] => [
  name,
  `'${name}' is a command of plan: turntable plan ${name} --help tells more`,
];

/** What to do instead of a command that is gone (`fsck`), or of an option (`--svg`, `split --header`), in a sentence. */
export const retired: ReadonlyMap<string, string> = new Map([
  [
    'completion',
    'completion is gone: turntable --help lists the commands, and turntable help COMMAND the options of one',
  ],
  ['forget', 'forget is gone: a host that is lost is no longer listed, and the event log names it'],
  ['fsck', 'fsck is a command of store now: turntable store fsck'],
  ['functions', 'functions is a part of ps now: turntable ps lists the functions of a host'],
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
  [
    'split --header',
    'split --header is gone: call the version alone (turntable call my-model --version 2), or keep each caller at one ' +
      'version (turntable split my-model 1=90 2=10 --key x-user-id)',
  ],
  ['compare', 'compare is replay now, with the files of the reports: turntable replay a.json b.json'],
  ['--svg', '--svg is gone: --html FILE draws the timelines as a page of the dashboard, in one file'],
  ['--beside-simulator', besideSimulator],
  ['--no-beside-simulator', besideSimulator],
  ...['--placement', '--as-artifact'].map(ofConverter),
  ...['--offload', '--wait-bound', '--load-ahead', '--no-load-ahead', '--borrow'].map(ofPolicy),
  ['--reserve', '--reserve is a part of the machine now: "reserveBytes" in a file that --machine names'],
  ['--random', '--random is gone: requests are drawn by xoshiro, with --seed'],
  ['--ladder', '--ladder is gone: turntable plan chrion FUNCTION shows the plans from most to least GPU memory'],
  [
    '--initial',
    "--initial is gone: layers are chosen by Algorithm 1; npm run bench -- papers has the paper's other one",
  ],
  ['--embeddings-only', '--embeddings-only is gone: all layers are timed from host memory'],
  ['topology', 'topology is a part of doctor now: turntable doctor --measure shows what it measured'],
  ...['capacity', 'chrion', 'deepplan', 'packrat', 'serf'].map(ofPlan),
]);

export const commands: readonly CommandEntry[] = Object.entries(table).flatMap(([group, entries]) =>
  entries.map(([name, summary, module]) => ({
    name,
    summary,
    group,
    load: async () => ((await module()) as Record<string, Make>)[`${name}Command`]!(),
  })),
);
