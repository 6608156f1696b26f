/** The hosts of a fleet, as a table, and `turntable drain`. */
import { Command, type AnyCommand } from './commander.ts';
import { asks, request } from './client.ts';
import { formatMs } from '../tools/index.ts';
import type { FleetHostAnswer } from '../host/index.ts';
import { renderRows, type Column } from './table.ts';
import { listIn } from './values.ts';

/** An older host leaves fields out. */
type Host = Partial<FleetHostAnswer>;

const text = (value: string | number = ''): string => String(value);

const columns: readonly Column<Host>[] = [
  ['HOST', ({ name }) => text(name)],
  ['STATE', ({ state }) => text(state)],
  ['>CORES', ({ cores }) => text(cores)],
  ['>GPUS', ({ gpus }) => text(gpus)],
  ['>FUNCTIONS', ({ functions }) => text(functions)],
  ['>CALLS', ({ in_flight: calls }) => text(calls)],
  ['>WAITING', ({ waiting }) => text(waiting)],
  ['>WAY', ({ self, round_trip_ms: ms }) => (self === true ? '-' : typeof ms === 'number' ? formatMs(ms) : '?')],
  ['>HEARD', ({ self, heard_ms_ago: ms }) => (self === true ? '-' : `${formatMs(Number(ms))} ago`)],
  ['NOTE', ({ self, reason }) => (self === true ? 'this one was asked' : text(reason))],
];

export const renderFleet = (reply: unknown): string => renderRows(columns, listIn<FleetHostAnswer>(reply, 'hosts'));

export function drainCommand(): AnyCommand {
  const command = new Command('drain')
    .description(
      'Have a host of a fleet take no calls of the others and be no home of functions any more. It goes on answering ' +
        'its own clients; stop it when `turntable ps --fleet` shows that its calls are 0.',
    )
    .argument('<host>', 'its name, as `turntable ps --fleet` shows it')
    .option('--undo', 'let it take part again');
  return asks(command, async (asked, host, { undo }) => {
    const path = `/v2/fleet/hosts/${encodeURIComponent(host)}`;
    const draining = undo !== true;
    const headers = { 'content-type': 'application/json' };
    await request(asked, `${path}/drain`, { method: 'POST', headers, body: JSON.stringify({ draining }) });
    console.log(`${host}: ${draining ? 'draining' : 'takes part again'}`);
  });
}
