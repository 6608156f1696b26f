/** The hosts of a fleet, as a table; `turntable drain` and `turntable forget`. */
import { Command } from 'commander';
import { addUrlFlag, hostAddress, request } from './client.ts';
import { formatMs } from '../tools/index.ts';
import { renderTable } from './table.ts';
import { isRecord } from './values.ts';

const columns = [
  'HOST',
  'STATE',
  '>CORES',
  '>GPUS',
  '>FUNCTIONS',
  '>CALLS',
  '>WAITING',
  '>WAY',
  '>HEARD',
  'NOTE',
] as const;

/** Leniently, as the host may be older or newer. */
export function renderFleet(reply: unknown): string {
  const hosts = isRecord(reply) && Array.isArray(reply['hosts']) ? reply['hosts'].filter(isRecord) : [];
  const rows = hosts.map((host) => {
    const text = (name: string): string => {
      const value = host[name];
      return typeof value === 'string' || typeof value === 'number' ? String(value) : '';
    };
    const way = host['round_trip_ms'];
    // Its figures are those of its last report.
    const isLost = host['state'] === 'lost';
    return [
      text('name'),
      text('state'),
      text('cores'),
      text('gpus'),
      text('functions'),
      isLost ? '-' : text('in_flight'),
      isLost ? '-' : text('waiting'),
      host['self'] === true || isLost ? '-' : typeof way === 'number' ? formatMs(way) : '?',
      host['self'] === true ? '-' : `${formatMs(Number(host['heard_ms_ago']))} ago`,
      host['self'] === true
        ? 'this one was asked'
        : isLost
          ? `since ${text('lost_at')}; ${text('reason')}`
          : text('reason'),
    ];
  });
  return renderTable(columns, rows);
}

export function drainCommand(): Command {
  const command = new Command('drain')
    .description(
      'Have a host of a fleet take no calls of the others and be no home of functions any more. It goes on answering ' +
        'its own clients; stop it when `turntable ps --fleet` shows that its calls are 0.',
    )
    .argument('<host>', 'its name, as `turntable ps --fleet` shows it')
    .option('--undo', 'let it take part again');
  addUrlFlag(command).action(async (host: string, options: { url: string; undo?: boolean }) => {
    const draining = options.undo !== true;
    await request(hostAddress(options.url), `/v2/fleet/hosts/${encodeURIComponent(host)}/drain`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ draining }),
    });
    console.log(`${host}: ${draining ? 'draining' : 'takes part again'}`);
  });
  return command;
}

export function forgetCommand(): Command {
  const command = new Command('forget')
    .description(
      'Show a lost host of a fleet no more. One that did not leave is shown as lost until it is back, it is ' +
        'forgotten, or a day has passed.',
    )
    .argument('<host>', 'its name, as `turntable ps --fleet` shows it');
  addUrlFlag(command).action(async (host: string, options: { url: string }) => {
    await request(hostAddress(options.url), `/v2/fleet/hosts/${encodeURIComponent(host)}`, { method: 'DELETE' });
    console.log(`${host}: forgotten`);
  });
  return command;
}
