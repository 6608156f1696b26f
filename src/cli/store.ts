import { Command, type AnyCommand } from './commander.ts';
import { checkStore, loadConfig } from '../host/index.ts';
import { usage } from './error.ts';
import { addConfigFlags, configInputOf } from './config-flags.ts';
import { formatBytes } from '../tools/index.ts';
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
    .option('--repair', 'replace damaged files by sound ones of the same hash; the host must be stopped')
    .option('--heal', 'as --repair, and fetch what no copy here has from the hosts of --heal-from')
    .option('--json', 'print JSON');
  addConfigFlags(command, ['dataDir', 'healFrom']).action(async ({ json, repair, heal }, called) => {
    const { config } = loadConfig(configInputOf(called));
    if (heal === true && config.healFrom.hostUrls.length === 0) {
      throw usage('--heal needs hosts to fetch from: --heal-from http://10.0.0.6:8000');
    }
    const report = await checkStore(config.dataDir, {
      repair: repair === true || heal === true,
      ...(heal === true ? { healFrom: config.healFrom } : {}),
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
