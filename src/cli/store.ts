import { Command, Option, type AnyCommand } from './commander.ts';
import { loadConfig } from '../host/index.ts';
import { validatorLimitBytes } from '../hardware/index.ts';
import type { Store } from '../store/index.ts';
import { formatBytes } from '../tools/index.ts';
import { addConfigFlags, configInputOf } from './config-flags.ts';
import { usage } from './error.ts';
import { storeAt } from './store-at.ts';
import { counted, renderTable } from './table.ts';
import { parseDurationMs } from './values.ts';

export function storeCommand(): AnyCommand {
  return new Command('store')
    .description('Look after the stored functions of a data folder, or of the store that several machines share.')
    .addCommand(putCommand().summary("publish a function's folder, with its handler, into a shared store"))
    .addCommand(importCommand().summary('bring the functions of data folders into a shared store'))
    .addCommand(fsckCommand().summary('compare every stored model with its hash, or remove leftovers of a store'));
}

/** What a host needs to publish is loaded for these commands alone. */
const tools = () => import('./store-tools.ts');

/** @throws CliError without a place */
async function sharedStore(place: string | undefined): Promise<Store> {
  if (place === undefined)
    throw usage('name the store with --store: a folder, s3://BUCKET/PREFIX, or the address of a bucket');
  return await storeAt(place);
}

function putCommand(): AnyCommand {
  const command = new Command('put')
    .description(
      'Publish the function of a folder (function.json, its model and its handler) into the store that hosts share. All ' +
        'hosts and workers of the store run its handler, so whoever may write to the store decides what they run.',
    )
    .argument('<folder>', "the function's folder")
    .option('--name <name>', 'name of the function (default: that of the folder)');
  return addConfigFlags(command, ['store.place']).action(async (folder: string, { name }, called: AnyCommand) => {
    const { config } = loadConfig(configInputOf(called));
    const store = await sharedStore(config.store.place);
    const { putFolder, quietLog, Validator } = await tools();
    const validator = new Validator({
      timeoutMs: config.validator.timeoutMs,
      memoryBytes: validatorLimitBytes(config.memory),
    });
    try {
      const { version, created } = await putFolder(folder, { store, name, config, validator, logger: quietLog() });
      console.log(`${version.key}: ${created ? 'published' : 'the store has it already'}, in ${store.place}`);
    } finally {
      validator.stop();
    }
  });
}

function importCommand(): AnyCommand {
  const command = new Command('import')
    .description(
      'Bring every function of these data folders into a shared store: versions, settings, traffic. Their hosts must be ' +
        'stopped. What the store has already stays as it is there. Exit code 1 when something could not be brought.',
    )
    .argument('<data...>', 'data folders')
    .option('--json', 'print JSON');
  return addConfigFlags(command, ['store.place']).action(async (folders: string[], { json }, called: AnyCommand) => {
    const { config } = loadConfig(configInputOf(called));
    const store = await sharedStore(config.store.place);
    const { importData, quietLog } = await tools();
    const report = await importData(folders, store, quietLog());
    if (report.left.length > 0) process.exitCode = 1;
    if (json === true) {
      console.log(JSON.stringify(report, null, 2));
      return;
    }
    const { imported, known, left } = report;
    console.log(`${store.place}: ${counted(imported.length, 'version')} imported, ${known.length} there already`);
    for (const each of left) console.log(`left out: ${each}`);
  });
}

function fsckCommand(): AnyCommand {
  const command = new Command('fsck')
    .description(
      'Read every published model and blob of the data folder and compare it with its hash. Works beside a running ' +
        'host. Exit code 1 when something is damaged that was not repaired.',
    )
    .option(
      '--repair',
      'replace damaged files by sound ones of the same hash, from here or from --store; the host must be stopped',
    )
    .option('--collect', 'instead, remove from --store the files that no function needs any more')
    .addOption(
      new Option('--grace <time>', 'with --collect: files that were put more recently stay')
        .argParser(parseDurationMs)
        .default(86_400_000, '24h'),
    )
    .option('--json', 'print JSON');
  addConfigFlags(command, ['dataDir', 'store.place']).action(async ({ json, repair, collect, grace }, called) => {
    const { config } = loadConfig(configInputOf(called));
    const { place } = config.store;
    if (collect === true) {
      const store = await sharedStore(place);
      const { collectStore } = await tools();
      const collected = await collectStore(store, grace);
      const { files, bytes } = collected;
      console.log(
        json === true
          ? JSON.stringify({ store: store.place, ...collected }, null, 2)
          : `${store.place}: ${counted(files, 'file')} removed, ${formatBytes(bytes)}`,
      );
      return;
    }
    const { checkStore } = await tools();
    const shared = place === undefined ? undefined : await storeAt(place);
    const report = await checkStore(config.dataDir, { repair: repair === true, shared });
    if (report.problems.some(({ repaired }) => repaired === undefined)) process.exitCode = 1;
    if (json === true) {
      console.log(JSON.stringify({ dataDir: config.dataDir, ...report }, null, 2));
      return;
    }
    const { versions, files, bytes, problems } = report;
    const read = `${config.dataDir}: ${versions} versions, ${files} files, ${formatBytes(bytes)} read`;
    console.log(problems.length === 0 ? `${read}, all sound` : `${read}, ${problems.length} damaged`);
    if (problems.length === 0) return;
    const columns = ['FUNCTION', 'FILE', 'PROBLEM', 'REPAIRED'];
    const rows = problems.map((each) => [each.function ?? '', each.path, each.reason, each.repaired ?? 'no']);
    console.log(renderTable(columns, rows));
  });
  return command;
}
