import { HostCommand, request } from './client.ts';
import { CliError, usage } from './error.ts';
import { renderTable } from './table.ts';

interface JobsFlags {
  readonly limit: string;
  readonly result?: boolean;
  readonly cancel?: boolean;
  readonly json?: boolean;
}

interface Listed {
  readonly id: string;
  readonly function: string;
  readonly status: string;
  readonly accepted_at: string;
  readonly function_status?: number;
}

export function jobsCommand(): HostCommand {
  return new HostCommand('jobs')
    .description(
      "List a running host's asynchronous calls; with an id tell how that one stands, print its reply, or cancel it.",
    )
    .argument('[id]', 'one call')
    .option('--result', "print the call's reply")
    .option('--cancel', 'cancel the call')
    .option('--limit <number>', 'most calls to list', '100')
    .option('--json', 'print JSON')
    .asks(async (host, id: string | undefined, flags: JobsFlags) => {
      if (id === undefined) {
        if (flags.result === true || flags.cancel === true) {
          throw usage('--result and --cancel need the id of a call');
        }
        const reply = await request(host, `/async-function?limit=${encodeURIComponent(flags.limit)}`);
        const listed = (await reply.json()) as { waiting: number; running: number; calls: readonly Listed[] };
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

export function describeCalls({
  waiting,
  running,
  calls,
}: {
  readonly waiting: number;
  readonly running: number;
  readonly calls: readonly Listed[];
}): string {
  const counts = `${waiting} waiting, ${running} running`;
  if (calls.length === 0) return `${counts}; no calls to list`;
  const table = renderTable(
    ['CALL', 'FUNCTION', 'STATUS', '>REPLY', 'ACCEPTED'],
    calls.map((call) => [
      call.id,
      call.function,
      call.status,
      call.function_status === undefined ? '' : String(call.function_status),
      call.accepted_at,
    ]),
  );
  return `${table}\n${counts}`;
}

function describeCall(status: Record<string, unknown>): string {
  return Object.entries(status)
    .map(
      ([name, value]) => `${name.replaceAll('_', ' ')}: ${typeof value === 'string' ? value : JSON.stringify(value)}`,
    )
    .join('\n');
}
