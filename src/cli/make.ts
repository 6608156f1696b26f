import { resolve } from 'node:path';
import { Command, type AnyCommand, type OptionsOf } from './commander.ts';
import { allowedValues, architectures, type Architecture, type SettingSpec } from '../onnx/index.ts';
import { usage } from './error.ts';
import { calledAs, formatBytes, formatMs, missingUnit } from '../tools/index.ts';
import { makeFunction } from './make-function.ts';
import { renderTable } from './table.ts';
import { parsePairs, parseSeed } from './values.ts';

const makeFlags = () =>
  new Command('make')
    .description('Write a model of a known architecture with seeded weights, as a folder that is a function.')
    .argument('[architecture]', 'its name; --list shows all')
    .option('--out <dir>', "the function's folder, which gets model.onnx and function.json")
    .option('--seed <integer>', 'the same seed gives the same bytes', parseSeed, 0)
    .option('--set <key=value...>', 'sizes other than the published ones')
    .option('--slo <duration>', 'latency objective for function.json, such as 100ms')
    .option('--external', 'weights in model.onnx.data, as they are anyway beyond 1.9 GB')
    .option('--force', 'overwrite a model that stands there; its function.json is kept')
    .option('--list', 'show the architectures, or the settings of the one that is named')
    .option('--json', 'print JSON');

type MakeOptions = OptionsOf<ReturnType<typeof makeFlags>>;

export function makeCommand(): AnyCommand {
  return makeFlags().action(async (name, options) => {
    if (options.list === true) {
      console.log(name === undefined ? listAll(options.json) : listOne(find(name), options.json));
      return;
    }
    // First, since --set takes every word behind it, the architecture's name too.
    const settings = Object.fromEntries(parsePairs(options.set ?? [], '--set', 'hidden=64'));
    if (name === undefined) throw usage('no architecture is named; --list shows them');
    await make(find(name), settings, options);
  });
}

async function make(
  architecture: Architecture,
  settings: Readonly<Record<string, string>>,
  options: MakeOptions,
): Promise<void> {
  if (options.out === undefined) throw usage('--out is missing: the folder that the function is written to');
  const { slo } = options;
  if (slo !== undefined && !/^\d+(\.\d+)?(ms|s)$/.test(slo)) {
    const asked = missingUnit(slo);
    throw usage(
      `--slo is '${slo}', but takes a duration such as 100ms or 1.5s${asked === undefined ? '' : `; ${asked}`}`,
    );
  }
  const made = await makeFunction({
    architecture: architecture.name,
    description: architecture.description,
    outDir: resolve(options.out),
    seed: options.seed,
    settings,
    external: options.external ?? false,
    force: options.force ?? false,
    slo,
  });
  if (options.json === true) {
    console.log(JSON.stringify(made));
    return;
  }
  const files = made.dataPath === undefined ? made.modelPath : `${made.modelPath} and ${made.dataPath}`;
  const parameters = made.parameterCount.toLocaleString('en-US');
  console.log(
    `wrote ${files}: ${parameters} parameters, ${formatBytes(made.fileBytes)} in ${formatMs(made.elapsedMs)}`,
  );
  console.log(`${made.settingsWritten ? 'wrote' : 'kept'} ${made.settingsPath}`);
}

function find(name: string): Architecture {
  const found = architectures.find((each) => each.name === name);
  if (found !== undefined) return found;
  throw usage(`there is no architecture '${name}'; there are ${architectures.map((each) => each.name).join(', ')}`);
}

function listAll(json: boolean | undefined): string {
  if (json === true) return JSON.stringify(architectures.map(described));
  const rows = architectures.map((architecture) => {
    const { parameterCount, weightBytes } = architecture.build({}, 0);
    return [
      architecture.name,
      parameterCount.toLocaleString('en-US'),
      formatBytes(weightBytes),
      architecture.description,
    ];
  });
  const columns = ['ARCHITECTURE', '>PARAMETERS', '>WEIGHTS', 'DESCRIPTION'] as const;
  const settings = architectures.map((architecture) => [
    architecture.name,
    Object.entries(architecture.settings)
      .map(([name, spec]) => `${name}=${defaultText(spec)}`)
      .join(' '),
  ]);
  return [
    renderTable(columns, rows),
    renderTable(['ARCHITECTURE', 'SETTINGS (--set key=value) AND THEIR DEFAULTS'], settings),
    `${calledAs()} make <architecture> --list tells what its settings mean and take.`,
  ].join('\n\n');
}

function listOne(architecture: Architecture, json: boolean | undefined): string {
  if (json === true) return JSON.stringify(described(architecture));
  const { parameterCount, weightBytes } = architecture.build({}, 0);
  const rows = Object.entries(architecture.settings).map(([name, spec]) => [
    name,
    defaultText(spec),
    allowedValues(spec),
    spec.meaning,
  ]);
  const columns = ['SETTING', 'DEFAULT', 'TAKES', 'MEANING'];
  const size = `${parameterCount.toLocaleString('en-US')} parameters, ${formatBytes(weightBytes)} of weights`;
  return `${architecture.name}: ${architecture.description}\n${size}\n\n${renderTable(columns, rows)}`;
}

function defaultText(spec: SettingSpec): string {
  return typeof spec.default === 'object' ? spec.default.join(',') : String(spec.default);
}

function described(architecture: Architecture): object {
  const { name, description, settings } = architecture;
  const { parameterCount, weightBytes } = architecture.build({}, 0);
  return { name, description, parameterCount, weightBytes, settings };
}
