import { useEffect, useState } from 'preact/hooks';
import type {
  AnatomyAnswer,
  AnatomyChoices,
  BarLook,
  PlanReport,
  PlanTimeline,
  RecordedColdStarts,
  TimelineBar,
} from '../../api-types.ts';
import { mergedBars } from '../logic/merged-bars.ts';
import { formatMs, formatTime } from '../logic/format.ts';
import { answerOf, usePolled } from '../state.ts';
import { Field, Message, Options } from './parts.tsx';

const never = 2 ** 31 - 1;
/** What the looks of bars mean, in cold starts and in graphs over a GPU and cores. */
const looks: Readonly<Record<BarLook, readonly [meaning: string, colour: string]>> = {
  copy: ['copied over PCIe', 'var(--good)'],
  migration: ['handed on over NVLink', 'var(--migration)'],
  gpu: ['executes from GPU memory', 'var(--cold)'],
  host: ['executes from host memory', 'var(--late)'],
  stall: ['waits for weights', 'color-mix(in srgb, var(--failed) 45%, transparent)'],
  call: ['a call beside its operators', 'color-mix(in srgb, var(--cpu) 35%, transparent)'],
  cpu: ['executes on a core', 'var(--good)'],
  'to-gpu': ['copied to the GPU', 'var(--late)'],
  'to-cpu': ['copied to the CPU', 'var(--failed)'],
};
const meaningOf = (look: BarLook): string => looks[look][0];
const colourOf = (look: BarLook) => ({ '--series': looks[look][1] });
const ofColdStarts: readonly BarLook[] = ['copy', 'migration', 'gpu', 'host', 'stall'];

/** The modes of a cold start, one above the other on one time scale. */
export function Anatomy({ asked }: { readonly asked: string | undefined }) {
  const choices = answerOf(usePolled<AnatomyChoices>('/api/anatomy', never));
  const [model, setModel] = useState('bert-base');
  const [machine, setMachine] = useState('p3.8xlarge');
  const [recorded, setRecorded] = useState(asked ?? '');
  const coldStarts = answerOf(usePolled<RecordedColdStarts>('/api/anatomy/recorded', 5000))?.coldStarts ?? [];
  const loaded = usePolled<AnatomyAnswer>(
    recorded !== ''
      ? `/api/anatomy/recorded/${recorded}`
      : `/api/anatomy?model=${encodeURIComponent(model)}&machine=${encodeURIComponent(machine)}`,
    never,
  );
  const answer = answerOf(loaded);
  const longestMs = Math.max(...(answer?.timelines.map(({ latencyMs }) => latencyMs) ?? [1]));
  return (
    <section aria-labelledby="anatomy-title">
      <h1 id="anatomy-title">Anatomy of a cold start</h1>
      <div class="controls">
        <Field label="Model">
          <select value={model} onChange={(event) => setModel(event.currentTarget.value)}>
            <Options of={choices?.models ?? [model]} />
          </select>
        </Field>
        <Field label="Machine">
          <select value={machine} onChange={(event) => setMachine(event.currentTarget.value)}>
            <Options of={choices?.machines ?? [machine]} />
          </select>
        </Field>
        {coldStarts.length > 0 && (
          <Field label="Recorded on this host">
            <select value={recorded} onChange={(event) => setRecorded(event.currentTarget.value)}>
              <option value="">none: a plan</option>
              {recorded !== '' && !coldStarts.some(({ id }) => String(id) === recorded) && (
                <option value={recorded}>number {recorded}</option>
              )}
              {coldStarts.map(({ id, atMs, functionName, gpu, mode, latencyMs }) => (
                <option key={id} value={String(id)}>
                  {formatTime(atMs)} {functionName}, GPU {gpu}, {mode}, {formatMs(latencyMs)}
                </option>
              ))}
            </select>
          </Field>
        )}
      </div>
      <Legend of={ofColdStarts} />
      {loaded.state === 'failed' && <Message text={loaded.message} level="warning" />}
      {loaded.state === 'loading' && <Message text="Planning…" />}
      {answer !== undefined && (
        <>
          <p class="muted">
            {answer.provenance}. Bars narrower than a pixel are drawn as one; point at a bar for its layer.
          </p>
          {answer.timelines.map((timeline) => (
            <Timeline key={timeline.name} timeline={timeline} longestMs={longestMs} />
          ))}
        </>
      )}
    </section>
  );
}

function Legend({ of }: { readonly of: readonly BarLook[] }) {
  return (
    <ul class="legend">
      {of.map((look) => (
        <li key={look} style={colourOf(look)}>
          {meaningOf(look)}
        </li>
      ))}
    </ul>
  );
}

/** The timelines of a plan, one above the other on one time scale. */
export function Plan({ plan }: { readonly plan: PlanReport }) {
  const { timelines } = plan;
  const longestMs = Math.max(...timelines.map(({ latencyMs }) => latencyMs));
  const shown = new Set(timelines.flatMap(({ lanes }) => lanes.flatMap(({ bars }) => bars.map(({ look }) => look))));
  return (
    <section aria-labelledby="plan-title">
      <h2 id="plan-title">{plan.name}</h2>
      <Legend of={[...shown]} />
      <p class="muted">{plan.provenance}. Bars narrower than a pixel are drawn as one; point at a bar for its name.</p>
      {timelines.map((timeline) => (
        <Timeline key={timeline.name} timeline={timeline} longestMs={longestMs} />
      ))}
    </section>
  );
}

/** In units of the drawing, which are pixels if the screen is that wide. */
const wide = { width: 1100, left: 84 };
const narrow = { width: 400, left: 76 };
const rowHeight = 22;

function Timeline({ timeline, longestMs }: { readonly timeline: PlanTimeline; readonly longestMs: number }) {
  const { width, left } = useNarrow() ? narrow : wide;
  const { name: title, latencyMs, note, lanes } = timeline;
  const scale = (width - left - 8) / longestMs;
  const height = lanes.length * rowHeight + 18;
  const ticks = ticksOf(longestMs, width / 130);
  const x = (ms: number): number => left + ms * scale;
  const summary = `${title}: ${formatMs(latencyMs)}, ${note}`;
  return (
    <figure class="timeline" data-mode={title}>
      <figcaption>
        <strong>{title}</strong> {formatMs(latencyMs)} <span class="muted">{note}</span>
      </figcaption>
      <div>
        <svg viewBox={`0 0 ${width} ${height}`} role="img" aria-label={summary}>
          {ticks.map((ms) => (
            <g key={ms}>
              <line x1={x(ms)} x2={x(ms)} y1={0} y2={height - 14} class="grid" />
              <text x={x(ms)} y={height - 3} text-anchor="middle">
                {ms} ms
              </text>
            </g>
          ))}
          {lanes.map(({ name, bars }, row) => (
            <g key={name}>
              <text x={left - 6} y={row * rowHeight + 15} text-anchor="end">
                {name}
              </text>
              {mergedBars(bars, 1 / scale).map((bar) => (
                <rect
                  key={`${bar.startMs} ${bar.look}`}
                  style={colourOf(bar.look)}
                  x={x(bar.startMs)}
                  y={row * rowHeight + 3}
                  width={Math.max(0.6, (bar.endMs - bar.startMs) * scale)}
                  height={rowHeight - 6}
                >
                  <title>{barText(bar)}</title>
                </rect>
              ))}
            </g>
          ))}
        </svg>
      </div>
    </figure>
  );
}

const barText = ({ name, look, startMs, endMs }: TimelineBar): string =>
  `${name}: ${meaningOf(look)}, ${startMs.toFixed(2)} to ${endMs.toFixed(2)} ms`;

/** Whether the window is as narrow as a phone's. */
function useNarrow(): boolean {
  const query = matchMedia('(max-width: 640px)');
  const [isNarrow, setNarrow] = useState(query.matches);
  useEffect(() => {
    const changed = ({ matches }: MediaQueryListEvent): void => setNarrow(matches);
    query.addEventListener('change', changed);
    return () => query.removeEventListener('change', changed);
  }, []);
  return isNarrow;
}

/** About `count` ticks at round numbers. */
function ticksOf(longestMs: number, count: number): number[] {
  const rough = longestMs / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough)!;
  return Array.from({ length: Math.floor(longestMs / step) + 1 }, (_, index) => Number((index * step).toPrecision(6)));
}
