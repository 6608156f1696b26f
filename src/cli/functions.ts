import { Command } from 'commander';
import { addUrlFlag, hostAddress, request } from './client.ts';
import { formatBytes, formatMs } from '../tools/index.ts';
import { parseFunctionList } from './function-list.ts';
import { renderTable } from './table.ts';

export function functionsCommand(): Command {
  const command = new Command('functions')
    .description("List a running host's functions and their versions.")
    .option('--json', 'print the reply of the host as it is');
  addUrlFlag(command).action(async (options: { url: string; json?: boolean }) => {
    const response = await request(hostAddress(options.url), '/functions');
    if (options.json === true) {
      process.stdout.write(`${(await response.text()).trimEnd()}\n`);
      return;
    }
    const functions = parseFunctionList(await response.json());
    if (functions.length === 0) {
      console.log('no functions');
      return;
    }
    const columns = ['FUNCTION', 'VERSION', 'STATE', '>SLO', '>MODEL', 'DESCRIPTION'] as const;
    const rows = functions.map(({ name, version, state, sloMs, modelBytes, description, reason }) => [
      name,
      version,
      state,
      sloMs === undefined ? '' : formatMs(sloMs),
      modelBytes === undefined ? '' : formatBytes(modelBytes),
      reason === '' ? description : reason,
    ]);
    console.log(renderTable(columns, rows));
  });
  return command;
}
