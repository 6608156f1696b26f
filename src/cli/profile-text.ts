/** A CPU profile as the terminal shows it. */
import { groupsText, type CpuProfile } from '../cpu/index.ts';
import { formatMs } from '../tools/index.ts';
import { counted, renderTable } from './table.ts';

export function profileText(name: string, profile: CpuProfile, path: string, isKept: boolean): string {
  const { machine, dimensions, tookMs, exhaustiveMs, startMs, measuredAt } = profile;
  const sizes = Object.entries(dimensions).map(([dimension, size]) => `${dimension} = ${size}`);
  const lines = [
    `${name}: measured on ${machine.processor}, ${counted(machine.cores, 'core')}, ` +
      `ONNX Runtime ${machine.onnxRuntime}`,
    ...(sizes.length === 0 ? [] : [`open dimensions: ${sizes.join(', ')} (--dim name=size says otherwise)`]),
    ...disturbance(profile),
    '',
    'One instance alone',
    aloneTable(profile),
  ];
  const beside = profile.service.configurations.filter(({ concurrency }) => concurrency > 1);
  const [rows = 1] = profile.pool.batches;
  const request = rows === 1 ? 'One row' : `One request of ${rows} rows`;
  if (beside.length > 0) lines.push('', `${request} at a time on each of several instances`, besideTable(profile));
  if (profile.lists.length > 0)
    lines.push('', 'A batch divided among instances, the fastest first', listsTable(profile));
  lines.push(
    '',
    `An instance starts in ${formatMs(startMs)}. ${isKept ? `Measured on ${measuredAt} in` : 'Measuring took'} ` +
      `${formatMs(tookMs)}; ` +
      `every configuration under ten loads would have taken about ${longText(exhaustiveMs)} (estimated).`,
    isKept ? `kept from an earlier run in ${path}; --force measures again` : `kept in ${path}`,
  );
  return lines.join('\n');
}

/** Samples of a quiet machine lie within some percent of each other. */
const disturbedSpread = 0.1;

function disturbance({ spread }: CpuProfile): string[] {
  const known = spread.flat().filter((value) => value !== null);
  const typical = known.toSorted((a, b) => a - b)[Math.floor(known.length / 2)] ?? 0;
  if (typical < disturbedSpread) return [];
  const percent = Math.round(typical * 100);
  return [
    `samples lie ${percent}% around their medians: other work disturbed the measurement, and --force on a quiet ` +
      'machine is worth it',
  ];
}

function aloneTable({ pool, spread }: CpuProfile): string {
  const columns = ['>THREADS', ...pool.batches.map((batch) => `>BATCH ${batch}`)];
  const rows = pool.threads.map((threads, row) => [
    String(threads),
    ...pool.batches.map((_, column) => {
      const ms = pool.latency[row]?.[column];
      if (ms === null || ms === undefined) return '-';
      return `${formatMs(ms)} ±${Math.round((spread[row]?.[column] ?? 0) * 100)}%`;
    }),
  ]);
  return renderTable(columns, rows);
}

function besideTable({ service, pool }: CpuProfile): string {
  const [batch = 1] = pool.batches;
  const rows = service.configurations.map(({ concurrency, threads, serviceTime }) => [
    String(concurrency),
    String(threads),
    formatMs(serviceTime[0] ?? 0),
    formatMs(serviceTime.at(-1) ?? 0),
    String(Number((((batch * concurrency) / (serviceTime.at(-1) ?? Infinity)) * 1000).toPrecision(3))),
  ]);
  return renderTable(['>INSTANCES', '>THREADS', '>ALONE', '>ALL AT WORK', '>ROWS/S'], rows);
}

function listsTable({ lists }: CpuProfile): string {
  const rows = lists.map(({ batch, groups, latencyMs, expectedMs }) => [
    String(batch),
    groupsText(groups),
    formatMs(latencyMs),
    formatMs(expectedMs),
    String(Number(((batch / latencyMs) * 1000).toPrecision(3))),
  ]);
  return renderTable(['>BATCH', '<INSTANCES,THREADS,BATCH>', '>LATENCY', '>ALONE', '>ROWS/S'], rows);
}

/** In hours from one hour on. */
function longText(ms: number): string {
  return ms < 3_600_000 ? formatMs(ms) : `${Number((ms / 3_600_000).toPrecision(3))} h`;
}
