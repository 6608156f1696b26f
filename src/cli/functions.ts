import { HostCommand, request } from './client.ts';
import { formatBytes, formatMs } from '../tools/index.ts';
import { parseFunctionList } from './function-list.ts';
import { renderTable } from './table.ts';

export function functionsCommand(): HostCommand {
  return new HostCommand('functions')
    .description("List a running host's functions and their versions.")
    .option('--json', 'print the reply of the host as it is')
    .asks(async (host, options: { json?: boolean }) => {
      const response = await request(host, '/functions');
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
}
