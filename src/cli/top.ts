/** `turntable top`: the functions that miss their SLO, and how busy the host is, again and again. */
import { setTimeout as pause } from 'node:timers/promises';
import { Command, InvalidArgumentError, Option, type AnyCommand } from './commander.ts';
import type { FunctionRow, MachineAnswer, TroubleAnswer } from '../host/index.ts';
import { formatBytes, formatMs } from '../tools/index.ts';
import { asks, request, type HostAddress } from './client.ts';
import { CliError } from './error.ts';
import { Interruption } from './interruption.ts';
import { counted, printable, renderRows, rounded, type Column } from './table.ts';
import { parseCount, parseWaitMs } from './values.ts';

/** The data of one refresh, with the functions that missed their SLO most first. */
export type Top = Awaited<ReturnType<typeof askTop>>;

export function topCommand(): AnyCommand {
  const command = new Command('top')
    .description(
      'Show how a running host does, again and again: the functions that missed their SLO most come first, then ' +
        'those that are called most. q or Ctrl-C ends it. Where the output is no terminal it is printed once.',
    )
    .option('--once', 'print once')
    .option('--json', 'print a JSON object at each refresh')
    .option('-n, --lines <count>', 'how many functions; default: what the terminal has room for, else all', parseCount)
    .addOption(new Option('--interval <duration>', 'how often').argParser(parseInterval).default(2000, '2s'))
    .option('--range <duration>', 'over which time calls and latencies count, from 1m to 24h', '1m');
  return asks(command, async (host, options) => {
    if (options.once === true || (options.json !== true && !process.stdout.isTTY)) {
      const top = await askTop(host, options.range);
      console.log(options.json === true ? JSON.stringify(top) : topText(top, host.url, options.lines));
      return;
    }
    if (options.json === true) {
      for (;;) {
        console.log(JSON.stringify(await askTop(host, options.range)));
        await pause(options.interval);
      }
    }
    await live(host, options);
  });
}

function parseInterval(text: string): number {
  const ms = parseWaitMs(text);
  if (ms < 200) throw new InvalidArgumentError('It must be a duration of at least 200ms.');
  return ms;
}

async function askTop(host: HostAddress, range: string) {
  const [machine, functions, trouble] = await Promise.all([
    request(host, '/api/machine'),
    request(host, `/api/functions?range=${encodeURIComponent(range)}`),
    request(host, `/api/trouble?range=${encodeURIComponent(range)}`),
  ]);
  const answer = (await functions.json()) as { readonly rangeMs: number; readonly functions: readonly FunctionRow[] };
  const worstFirst = answer.functions.toSorted(
    (one, other) =>
      missedOf(other) - missedOf(one) ||
      other.requestsPerSecond - one.requestsPerSecond ||
      one.name.localeCompare(other.name, 'en', { numeric: true }),
  );
  return {
    machine: (await machine.json()) as MachineAnswer,
    rangeMs: answer.rangeMs,
    functions: worstFirst,
    trouble: (await trouble.json()) as TroubleAnswer,
  };
}

/** Ctrl-C and Ctrl-D are bytes in raw mode. */
const isEnd = (typed: string): boolean => ['q', 'Q', '\u0003', '\u0004'].some((key) => typed.includes(key));

/** Redraws in place until q or Ctrl-C. A host that does not answer is asked again. */
async function live(
  host: HostAddress,
  options: { readonly range: string; readonly interval: number; readonly lines?: number },
): Promise<void> {
  const { stdin, stdout } = process;
  using end = new Interruption();
  if (stdin.isTTY) {
    stdin.setRawMode(true).resume();
    stdin.on('data', (typed) => {
      if (isEnd(typed.toString())) end.abort();
    });
  }
  stdout.write('\u001b[?25l\u001b[2J');
  try {
    while (!end.signal.aborted) {
      const text = await askTop(host, options.range).then(
        (top) => topText(top, host.url, options.lines ?? Math.max(1, (stdout.rows ?? 24) - headLines(top))),
        (error: unknown) => {
          if (!(error instanceof CliError)) throw error;
          return `${error.message}; asking again`;
        },
      );
      const width = stdout.columns ?? 80;
      const lines = text.split('\n').map((line) => `${line.slice(0, width)}\u001b[K`);
      stdout.write(`\u001b[H${lines.join('\r\n')}\u001b[J`);
      await pause(options.interval, undefined, { signal: end.signal }).catch(() => undefined);
    }
  } finally {
    stdout.write('\u001b[?25h');
    if (stdin.isTTY) stdin.setRawMode(false);
    stdin.pause();
    stdout.write('\n');
  }
}

/** Lines of {@link topText} other than functions, including the last empty one. */
const headLines = ({ machine, trouble }: Top): number =>
  6 +
  machine.gpus.length +
  machine.workers.length +
  trouble.dependencies.length +
  trouble.limited.length +
  trouble.worst.length;

const columns: readonly Column<FunctionRow>[] = [
  ['FUNCTION', ({ name }) => name],
  ['>CALLS/s', ({ requestsPerSecond }) => rounded(requestsPerSecond)],
  ['>P50', ({ totals }) => msText(totals.p50Ms)],
  ['>P99', ({ totals }) => msText(totals.p99Ms)],
  ['>SLO', ({ sloMs }) => formatMs(sloMs)],
  ['>IN SLO', (row) => (endedOf(row) === 0 ? '-' : `${rounded((100 * row.totals.in_slo) / endedOf(row))}%`)],
  ['>MISSED', missedText],
  ['>COLD', ({ totals }) => String(totals.cold)],
  ['>WAIT', ({ waiting }) => String(waiting)],
  ['WHERE', whereOf],
];

/** @param linesMax how many functions are listed; all by default */
export function topText({ machine, rangeMs, functions, trouble }: Top, url: string, linesMax = Infinity): string {
  const ended = functions.reduce((sum, row) => sum + endedOf(row), 0);
  const perSecond = functions.reduce((sum, row) => sum + row.requestsPerSecond, 0);
  const { cores, memory, gpus, workers } = machine;
  return [
    `${url}  ${new Date(machine.atMs).toTimeString().slice(0, 8)}  ${trouble.missing} of ${trouble.functions} ` +
      `functions miss their SLO${trouble.few === 0 ? '' : `; ${counted(trouble.few, 'call')} missed it, too few to judge`}`,
    `calls  ${ended} in ${formatMs(rangeMs)}, ${rounded(perSecond)}/s; ${machine.inFlight} in flight, ` +
      `${machine.waiting} wait${overdueText(trouble.overdue)}`,
    `cores  ${bar(cores.busy / cores.total)} ${cores.busy} of ${cores.total} busy, ${cores.leased} leased` +
      machineText(machine.usage),
    `memory ${bar(memory.usedBytes / memory.totalBytes)} ${formatBytes(memory.usedBytes)} of ` +
      `${formatBytes(memory.totalBytes)} (cpu.memory) in ${counted(cores.instances, 'instance')}`,
    ...gpus.map(
      ({ index, name, busyShare, usedBytes, capacityBytes, link, functions: functionCount, loading }) =>
        `gpu ${index}  ${bar(busyShare)} ${percent(busyShare)} busy, ${formatBytes(usedBytes)} of ` +
        `${formatBytes(capacityBytes)}; ${linkText(link)}${counted(functionCount, 'function')}, ${loading} loading; ` +
        printable(name),
    ),
    ...workers.map(
      ({ name, cores: owned, outstanding, backlogMs, draining }) =>
        `worker ${printable(name)}  ${counted(owned, 'core')}, ${counted(outstanding, 'call')} of this host, ` +
        `${formatMs(backlogMs)} of work${draining ? ', draining' : ''}`,
    ),
    ...trouble.dependencies.map(({ text }) => printable(text)),
    ...trouble.limited.map(printable),
    ...trouble.worst.map(
      ({ name, causes, facts, advice }) =>
        `${name}: ${causes[0]?.words ?? ''}: ${printable(facts)}.${advice === null ? '' : ` ${printable(advice)}`}`,
    ),
    '',
    renderRows(columns, functions.slice(0, linesMax)),
  ].join('\n');
}

/** `; the machine is 100% busy: 10% by Turntable, 90% by others` */
function machineText({ cores, ownCores }: MachineAnswer['usage']): string {
  const [busy, own] = [cores.at(-1), ownCores.at(-1)];
  if (busy === undefined) return '';
  const parts =
    typeof own === 'number' ? `: ${percent(own)} by Turntable, ${percent(Math.max(0, busy - own))} by others` : '';
  return `; the machine is ${percent(busy)} busy${parts}`;
}

/** `; 12 overdue, the oldest 24 s old` */
const overdueText = ({ calls, oldestMs }: TroubleAnswer['overdue']): string =>
  calls === 0 ? '' : `; ${calls} overdue, the oldest ${formatMs(oldestMs)} old`;

/** `link 1.2 GB/s in, 3 MB/s out, 10% busy; ` */
function linkText(link: MachineAnswer['gpus'][number]['link']): string {
  if (link === null) return '';
  const [into, out] = [link.fromHostBytesPerSecond, link.toHostBytesPerSecond].map(formatBytes);
  return `link ${into}/s in, ${out}/s out, ${percent(link.share)} busy; `;
}

const missedOf = ({ totals }: FunctionRow): number => totals.late + totals.shed + totals.failed;
const endedOf = (row: FunctionRow): number => row.totals.in_slo + missedOf(row);

/** `12: 10 late, 2 shed` */
function missedText(row: FunctionRow): string {
  const { late, shed, failed } = row.totals;
  const parts = Object.entries({ late, shed, failed }).flatMap(([what, count]) =>
    count === 0 ? [] : [`${count} ${what}`],
  );
  return parts.length === 0 ? '0' : parts.join(', ');
}

function whereOf({ state, residency, gpus, instances, reason }: FunctionRow): string {
  if (state !== 'ready') return reason === null ? state : `${state}: ${printable(reason)}`;
  const onGpus = gpus.length === 0 ? '' : `gpu ${gpus.join(', ')}`;
  const onCpu = instances === 0 ? '' : `cpu, ${counted(instances, 'instance')}`;
  const where = [onGpus, onCpu].filter((part) => part !== '').join('; ');
  return `${where === '' ? 'nowhere' : where}${residency === 'loading' ? ', loading' : ''}`;
}

function bar(share: number): string {
  const filled = Math.round(10 * Math.min(1, Math.max(0, share)));
  return `[${'#'.repeat(filled)}${'.'.repeat(10 - filled)}]`;
}

const percent = (share: number): string => `${Math.round(100 * share)}%`;
const msText = (ms: number | null): string => (ms === null ? '-' : formatMs(ms));
