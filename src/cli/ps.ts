/** `turntable ps`: where each function of a running host is, and what that has cost so far. */
import { Command } from 'commander';
import { addUrlFlag, hostAddress, request } from './client.ts';
import { renderFleet } from './fleet.ts';
import { formatBytes } from '../tools/index.ts';
import { renderTable } from './table.ts';
import { isRecord } from './values.ts';

interface Placed {
  readonly name: string;
  readonly version: string;
  readonly state: string;
  readonly gpuBytes: number;
  readonly gpus: readonly number[];
  readonly overflows: number;
  readonly coldCause: string;
  readonly hostBytes: number;
  readonly lastUseMs: number;
  readonly plan: string;
  readonly hits: number;
  readonly coldStarts: number;
  readonly evictions: readonly (readonly [cause: string, count: number])[];
}

const columns = [
  'FUNCTION',
  'STATE',
  '>GPU',
  '>HOST',
  '>LAST USE',
  '>HITS',
  '>COLD',
  '>OVERFLOW',
  'EVICTIONS',
  'LAST COLD START',
  'PLAN',
] as const;

export function psCommand(): Command {
  const command = new Command('ps')
    .description('Show what of each function is where on a running host, the latest used first. Asking is never a use.')
    .option('--fleet', 'show the hosts of its fleet instead')
    .option('--json', 'print the reply of the host as it is');
  addUrlFlag(command).action(async (options: { url: string; json?: boolean; fleet?: boolean }) => {
    const path = options.fleet === true ? '/v2/fleet' : '/api/functions';
    const response = await request(hostAddress(options.url), path);
    if (options.json === true) {
      process.stdout.write(`${(await response.text()).trimEnd()}\n`);
      return;
    }
    if (options.fleet === true) {
      console.log(renderFleet(await response.json()));
      return;
    }
    const functions = readPlaced(await response.json()).toSorted(
      (one, other) => other.lastUseMs - one.lastUseMs || one.name.localeCompare(other.name, 'en', { numeric: true }),
    );
    console.log(functions.length === 0 ? 'no functions' : renderPlaced(functions, Date.now()));
  });
  return command;
}

export function renderPlaced(functions: readonly Placed[], nowMs: number): string {
  const rows = functions.map(({ name, version, state, gpuBytes, gpus, hostBytes, lastUseMs, ...rest }) => [
    `${name}@${version}`,
    state,
    gpuBytes === 0 ? '-' : `${formatBytes(gpuBytes)}${gpus.length === 0 ? '' : ` on ${gpus.join(', ')}`}`,
    hostBytes === 0 ? '-' : formatBytes(hostBytes),
    lastUseMs === 0 ? 'never' : `${agoText(nowMs - lastUseMs)} ago`,
    String(rest.hits),
    String(rest.coldStarts),
    String(rest.overflows),
    rest.evictions.length === 0 ? '-' : rest.evictions.map(([cause, count]) => `${count} ${cause}`).join(', '),
    rest.coldCause === '' ? '-' : rest.coldCause,
    rest.plan === '' ? '-' : rest.plan,
  ]);
  return renderTable(columns, rows);
}

/** Leniently, as the host may be older or newer. */
export function readPlaced(json: unknown): Placed[] {
  if (!isRecord(json)) return [];
  // Versions that were replaced may still have something somewhere.
  const lists = [json['functions'], json['others']].map((list) => (Array.isArray(list) ? (list as unknown[]) : []));
  return lists
    .flat()
    .filter(isRecord)
    .map((entry) => {
      const number = (name: string): number => (typeof entry[name] === 'number' ? entry[name] : 0);
      const text = (name: string): string => (typeof entry[name] === 'string' ? entry[name] : '');
      const state = text('state');
      const evictions = isRecord(entry['evictions']) ? Object.entries(entry['evictions']) : [];
      return {
        name: text('name'),
        version: text('version'),
        state: state === 'ready' ? text('residency') : state,
        gpuBytes: number('gpuBytes'),
        gpus: Array.isArray(entry['gpus']) ? entry['gpus'].filter((gpu): gpu is number => typeof gpu === 'number') : [],
        overflows: sumOf(entry['overflows']),
        coldCause: text('coldCause'),
        hostBytes: number('hostBytes'),
        lastUseMs: number('lastUseMs'),
        plan: text('plan'),
        hits: number('hits'),
        coldStarts: number('coldStarts'),
        evictions: evictions.filter((eviction): eviction is [string, number] => typeof eviction[1] === 'number'),
      };
    });
}

/** Of counts by name. */
function sumOf(counts: unknown): number {
  const values = isRecord(counts) ? Object.values(counts) : [];
  return values.reduce<number>((sum, count) => sum + (typeof count === 'number' ? count : 0), 0);
}

/** The largest whole unit. */
function agoText(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172_800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86_400)} d`;
}
