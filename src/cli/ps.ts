/** `turntable ps`: the functions of a running host, where each of them is, and what that has cost so far. */
import type { FunctionRow } from '../host/index.ts';
import { formatBytes, formatMs } from '../tools/index.ts';
import { Command, type AnyCommand } from './commander.ts';
import { replyOf, shows } from './client.ts';
import { renderFleet } from './fleet.ts';
import { renderRows, type Column } from './table.ts';
import { listIn } from './values.ts';

export function psCommand(): AnyCommand {
  const command = new Command('ps')
    .description(
      "List a running host's functions and where each of them is, the latest used first. Asking is never a use.",
    )
    .option('--fleet', 'show the hosts of its fleet instead');
  return shows(
    command,
    async (client, { fleet }) => await replyOf(client, fleet === true ? '/v2/fleet' : '/api/functions'),
    (reply, { fleet }) => (fleet === true ? renderFleet(reply) : placedText(reply, Date.now())),
  );
}

/** An older host leaves fields out, and so does a replaced version that is still in memory. */
type Row = Partial<FunctionRow>;

const dash = (text: string | null = null): string => (text === null || text === '' ? '-' : text);
const sizeText = (bytes = 0): string => (bytes === 0 ? '-' : formatBytes(bytes));
const sumOf = (counts: Readonly<Record<string, number>>): number => Object.values(counts).reduce((a, b) => a + b, 0);

const columns = (nowMs: number): readonly Column<Row>[] => [
  ['FUNCTION', ({ name = '', version = '' }) => `${name}@${version}`],
  ['STATE', ({ state = '', residency = '' }) => (state === 'ready' ? residency : state)],
  ['>SLO', ({ sloMs }) => (sloMs === undefined ? '-' : formatMs(sloMs))],
  ['>GPU', ({ gpuBytes, gpus = [] }) => `${sizeText(gpuBytes)}${gpus.length === 0 ? '' : ` on ${gpus.join(', ')}`}`],
  ['>HOST', ({ hostBytes }) => sizeText(hostBytes)],
  ['>LAST USE', ({ lastUseMs = 0 }) => (lastUseMs === 0 ? 'never' : `${agoText(nowMs - lastUseMs)} ago`)],
  ['>HITS', ({ hits = 0 }) => String(hits)],
  [
    '>COLD',
    ({ coldStarts = 0, diskStarts = 0 }) => `${coldStarts}${diskStarts === 0 ? '' : `, ${diskStarts} from disk`}`,
  ],
  ['>OVERFLOW', ({ overflows = {} }) => String(sumOf(overflows))],
  [
    'EVICTIONS',
    ({ evictions = {} }) =>
      dash(
        Object.entries(evictions)
          .map(([cause, count]) => `${count} ${cause}`)
          .join(', '),
      ),
  ],
  ['LAST COLD START', ({ coldCause }) => dash(coldCause)],
  ['PLAN', ({ plan }) => dash(plan)],
  [
    'NOTE',
    ({ reason, lastDeath, description }) =>
      dash(reason ?? (lastDeath ? `an instance died: ${lastDeath}` : description)),
  ],
];

/** The most recently used function first. */
export function placedText(reply: unknown, nowMs: number): string {
  const functions = [...listIn<FunctionRow>(reply, 'functions'), ...listIn<FunctionRow>(reply, 'others')];
  const byUse = functions.toSorted(
    ({ lastUseMs: one = 0, name = '' }, { lastUseMs: other = 0, name: otherName = '' }) =>
      other - one || name.localeCompare(otherName, 'en', { numeric: true }),
  );
  const { notes = [] } = reply as { readonly notes?: readonly string[] };
  if (byUse.length === 0) return ['no functions', ...notes].join('\n');
  // Their owners asked for joined calls, and get none. A check ends by itself.
  const apart = byUse.flatMap(({ name, version, rows }: Row) =>
    rows === undefined || rows === null || rows.state === 'independent' || rows.state === 'checking'
      ? []
      : [`${name}@${version} joins no calls: ${rows.why}`],
  );
  const brought = byUse.flatMap(({ name, version, brought: calls = 0 }: Row) =>
    calls === 0
      ? []
      : [
          `${name}@${version} starts too slowly for its SLO: ${calls} late calls ran so that those behind them find it there`,
        ],
  );
  return [renderRows(columns(nowMs), byUse), ...apart, ...brought, ...notes].join('\n');
}

/** The largest whole unit. */
function agoText(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172_800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86_400)} d`;
}
