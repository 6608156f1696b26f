/** `turntable jobs`: the asynchronous calls of a running host, listed, read or cancelled. */
import { Command, type AnyCommand } from './commander.ts';
import { asks, request } from './client.ts';
import { CliError, usage } from './error.ts';
import { renderRows, type Column } from './table.ts';

interface Listed {
  readonly id: string;
  readonly function: string;
  readonly status: string;
  readonly accepted_at: string;
  readonly function_status?: number;
}

export function jobsCommand(): AnyCommand {
  const command = new Command('jobs')
    .description(
      "List a running host's asynchronous calls; with an id tell how that one stands, print its reply, or cancel it.",
    )
    .argument('[id]', 'one call')
    .option('--result', "print the call's reply")
    .option('--cancel', 'cancel the call')
    .option('--limit <number>', 'most calls to list', '100')
    .option('--json', 'print JSON');
  return asks(command, async (host, id, flags) => {
    if (id === undefined) {
      if (flags.result === true || flags.cancel === true) {
        throw usage('--result and --cancel need the id of a call');
      }
      const reply = await request(host, `/async-function?limit=${encodeURIComponent(flags.limit)}`);
      const listed = (await reply.json()) as Calls;
      console.log(flags.json === true ? JSON.stringify(listed, undefined, 2) : describeCalls(listed));
      return;
    }
    const path = `/async-function/${encodeURIComponent(id)}`;
    if (flags.cancel === true) {
      await request(host, path, { method: 'DELETE' });
      console.log(`cancelled ${id}`);
    } else if (flags.result === true) {
      const reply = await request(host, path);
      if (reply.status === 202) throw new CliError(`the call ${id} has not ended yet`);
      process.stdout.write(Buffer.from(await reply.arrayBuffer()));
    } else {
      const status = (await (await request(host, `${path}/status`)).json()) as Record<string, unknown>;
      console.log(flags.json === true ? JSON.stringify(status, undefined, 2) : describeCall(status));
    }
  });
}

interface Calls {
  readonly waiting: number;
  readonly running: number;
  readonly calls: readonly Listed[];
}

const columns: readonly Column<Listed>[] = [
  ['CALL', ({ id }) => id],
  ['FUNCTION', (call) => call.function],
  ['STATUS', ({ status }) => status],
  ['>REPLY', ({ function_status: status = '' }) => String(status)],
  ['ACCEPTED', (call) => call.accepted_at],
];

function describeCalls({ waiting, running, calls }: Calls): string {
  const counts = `${waiting} waiting, ${running} running`;
  return calls.length === 0 ? `${counts}; no calls to list` : `${renderRows(columns, calls)}\n${counts}`;
}

function describeCall(status: Record<string, unknown>): string {
  return Object.entries(status)
    .map(
      ([name, value]) => `${name.replaceAll('_', ' ')}: ${typeof value === 'string' ? value : JSON.stringify(value)}`,
    )
    .join('\n');
}
