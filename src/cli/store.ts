import { Command, type AnyCommand } from './commander.ts';
import { checkStore, loadConfig } from '../host/index.ts';
import { addConfigFlags, configInputOf } from './config-flags.ts';
import { formatBytes } from '../tools/index.ts';
import { storeAt } from './store-at.ts';
import { renderTable } from './table.ts';

export function storeCommand(): AnyCommand {
  return new Command('store')
    .description('Look after the stored models of a data folder.')
    .addCommand(fsckCommand().summary('compare every stored model with its hash'));
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
    .option('--json', 'print JSON');
  addConfigFlags(command, ['dataDir', 'store.place']).action(async ({ json, repair }, called) => {
    const { config } = loadConfig(configInputOf(called));
    const { place } = config.store;
    const report = await checkStore(config.dataDir, {
      repair: repair === true,
      shared: place === undefined ? undefined : storeAt(place),
    });
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
