/** A measured replay beside its simulation, and why they differ, as text. Pure. */
import {
  count,
  ms,
  percent as share,
  type BesideSimulator,
  type LiveDifferences,
  type LiveReport,
  type SimulatedStep,
  type StartKind,
} from '../../replay/index.ts';
import { formatMs } from '../../tools/index.ts';
import { renderTable } from '../table.ts';

export const whyTitle = 'Why measurement and simulation differ';
const functionsShown = 5;
const reasonsShown = 3;
const kindWords: Readonly<Record<StartKind, string>> = {
  warm: 'warm on a GPU',
  partial: 'partial on a GPU',
  cold: 'cold on a GPU',
  cpu: 'on a CPU pool',
};
const stepTitles: Readonly<Record<SimulatedStep['given'], string>> = {
  nothing: 'SIMULATED',
  departures: 'AS SENT',
  'departures and service times': 'AS SERVED',
};

const percent = (part: number, whole: number): string => share(whole === 0 ? null : part / whole);
const times = (value: number): string => `${value.toFixed(2)} times`;

export function renderBeside(report: LiveReport, beside: BesideSimulator): string {
  const parts = [
    'The same requests, simulated with the GPUs, policy and offers of the host:',
    comparisonTable(report, beside),
    'AS SENT: simulated for when the requests really left the client. AS SERVED: also with service times scaled ' +
      'to those observed.',
    `${whyTitle}:\n${explanations(beside)
      .map((line) => `- ${line}`)
      .join('\n')}`,
  ];
  const worst = functionsTable(beside.differences);
  if (worst !== undefined) parts.push(worst);
  if (beside.emulated) parts.push('The GPUs of this host are emulated on its CPU: times mean nothing, decisions do.');
  return parts.join('\n\n');
}

/** In a simulation CPU pools have no cold starts. */
function simulatedStarts(step: SimulatedStep, kind: StartKind): number {
  const { requests, cold_starts: cold, partial_starts: partial, offloaded, shed, failed } = step;
  switch (kind) {
    case 'cold':
      return cold;
    case 'partial':
      return partial;
    case 'cpu':
      return offloaded;
    case 'warm':
      return requests - cold - partial - offloaded - shed - failed;
  }
}

const sum = (causes: Readonly<Record<string, number>>): number =>
  Object.values(causes).reduce((total, each) => total + each, 0);

function comparisonTable(
  report: LiveReport,
  { differences, steps, gpu_evictions: evictions }: BesideSimulator,
): string {
  const { service, requests } = differences;
  const measuredStarts = (kind: StartKind): number => service.find(({ start }) => start === kind)?.measured ?? 0;
  const row = (title: string, measured: string, of: (step: SimulatedStep) => string): string[] => [
    title,
    measured,
    ...steps.map(of),
  ];
  const starts = (['warm', 'partial', 'cold', 'cpu'] as const).map((kind) =>
    row(kindWords[kind], percent(measuredStarts(kind), requests), (step) =>
      percent(simulatedStarts(step, kind), step.requests),
    ),
  );
  const columns = ['', '>MEASURED', ...steps.map(({ given }) => `>${stepTitles[given]}`)];
  return renderTable(columns, [
    row('goodput', share(report.goodput), ({ goodput }) => share(goodput)),
    row('p50', ms(report.p50_ms), ({ p50_ms: p50 }) => ms(p50)),
    row('p99', ms(report.p99_ms), ({ p99_ms: p99 }) => ms(p99)),
    ...starts,
    row('evictions from GPUs', count(sum(evictions.measured)), (step) => count(step.evictions)),
    row('shed', count(report.shed), ({ shed }) => count(shed)),
    row('failed', count(report.failed), ({ failed }) => count(failed)),
    row('placed otherwise', '-', (step) => percent(step.placed_differently, step.requests)),
  ]);
}

/** Sentences, each of what was counted or measured. */
export function explanations(beside: BesideSimulator): string[] {
  const { differences, expectations_moved: moved, resident_at_start: resident, gpu_evictions: evictions } = beside;
  const lines = [placementLine(differences)];
  for (const { start, both, ratio, measured_mean_ms: measured, simulated_mean_ms: simulated } of differences.service) {
    if (ratio === null) continue;
    lines.push(
      `What began ${kindWords[start]} took ${ms(measured)} where ${ms(simulated)} was expected: ${times(ratio)} as ` +
        `long (mean of the ${count(both)} requests that began so in both).`,
    );
  }
  const late = latencyLine(differences);
  if (late !== undefined) lines.push(late);
  lines.push(
    `Requests left the client ${ms(differences.sent_late_p50_ms)} late at the median and ` +
      `${ms(differences.sent_late_p99_ms)} at the 99th percentile.`,
  );
  const changed = Object.entries(moved).flatMap(([what, ratio]) =>
    ratio !== null && Math.abs(ratio - 1) > 0.01 ? [`${expectationWords[what] ?? what} ${times(ratio)}`] : [],
  );
  if (changed.length > 0) {
    lines.push(
      `The host learned while it served, the simulation did not: at the end it expected ${changed.join(', ')} ` +
        'as long as before.',
    );
  }
  const causes = new Set([...Object.keys(evictions.measured), ...Object.keys(evictions.simulated)]);
  if (causes.size > 0) {
    const texts = [...causes].map(
      (cause) => `${cause} ${count(evictions.measured[cause] ?? 0)} and ${count(evictions.simulated[cause] ?? 0)}`,
    );
    lines.push(`Evictions from GPUs, measured and simulated: ${texts.join(', ')}.`);
  }
  const { measured, simulated } = beside.plan_changes;
  if (measured.smaller + measured.larger + simulated.smaller + simulated.larger > 0) {
    lines.push(
      `Functions on GPUs went to a smaller plan ${count(measured.smaller)} and ${count(simulated.smaller)} times, ` +
        `and to a larger one ${count(measured.larger)} and ${count(simulated.larger)} times, measured and simulated.`,
    );
  }
  const reasons = Object.entries(differences.overflow_reasons).slice(0, reasonsShown);
  if (reasons.length > 0) {
    lines.push(
      'The host ran requests on its CPU pools because: ' +
        `${reasons.map(([why, number]) => `${why} (${count(number)})`).join('; ')}.`,
    );
  }
  if (resident > 0) {
    lines.push(
      `${count(resident)} functions had weights on a GPU when the replay began; the simulation invokes each once ` +
        'before it, which brings all of its layers, where the host may have had a part.',
    );
  }
  return lines;
}

const expectationWords: Readonly<Record<string, string>> = {
  warm: 'warm starts to take',
  cold: 'cold starts to take',
  cpu: 'its CPU pools to take',
};

function placementLine(differences: LiveDifferences): string {
  const { requests, placed_differently: differently, first } = differences;
  if (first === null) return `All of the ${count(requests)} requests were placed alike.`;
  return (
    `${count(differently)} of ${count(requests)} requests were placed otherwise: ` +
    `${count(differences.with_another_start)} began ` +
    `otherwise on a GPU, ${count(differences.on_another_gpu)} began alike on another GPU, ` +
    `${count(differences.on_another_processor)} ran on the other kind of processor or nowhere. The first is request ` +
    `${count(first.request + 1)} (${first.function}, due after ${ms(first.at_ms)}), measured '${first.measured}' and ` +
    `simulated '${first.simulated}'; each one that differs changes what is resident for those after it.`
  );
}

/** What the difference of the mean latencies is made of. */
function latencyLine({ latency }: LiveDifferences): string | undefined {
  const { measured_mean_ms: measured, simulated_mean_ms: simulated, difference } = latency;
  if (measured === null || simulated === null) return undefined;
  const parts = (
    [
      [difference.sent_late_ms, 'leaving late'],
      [difference.transport_ms, 'between client and host'],
      [difference.host_ms, 'in the host besides queueing and serving'],
      [difference.queued_longer_ms, 'queueing'],
      [difference.served_longer_ms, 'loading and executing'],
    ] as const
  ).map(([partMs, where]) => `${signed(partMs ?? 0)} ${where}`);
  return `Mean latency ${ms(measured)}, simulated ${ms(simulated)}: the difference is ${parts.join(', ')}.`;
}

const signed = (value: number): string =>
  value === 0 ? '0 ms' : `${value < 0 ? '-' : '+'}${formatMs(Math.abs(value))}`;

const places = (counts: Readonly<Record<string, number>>): string =>
  Object.entries(counts)
    .map(([place, number]) => `${place} ${count(number)}`)
    .join(', ');

function functionsTable({ functions }: LiveDifferences): string | undefined {
  if (functions.length === 0) return undefined;
  const columns = ['PLACED OTHERWISE MOST', '>REQUESTS', '>OTHERWISE', 'MEASURED', 'SIMULATED'];
  const rows = functions
    .slice(0, functionsShown)
    .map((row) => [
      row.function,
      count(row.requests),
      count(row.placed_differently),
      places(row.measured),
      places(row.simulated),
    ]);
  return renderTable(columns, rows);
}
