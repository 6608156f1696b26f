/** The shell of the page: navigation, the event stream, the theme, and the question for the API key. */
import { render } from 'preact';
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import type { EventAnswer, TickEvent } from '../api-types.ts';
import { getJson, listen, setKeyPrompt } from './api.ts';
import { rangeOf, type Range } from './logic/ranges.ts';
import { formatTime } from './logic/format.ts';
import { routeOf, type Route } from './logic/route.ts';
import { textOf } from './logic/form.ts';
import { parseReport, type SavedReport } from './logic/reports.ts';
import type { Live } from './state.ts';
import { Anatomy } from './views/anatomy.tsx';
import { Fleet } from './views/fleet.tsx';
import { FunctionPage } from './views/function.tsx';
import { Functions } from './views/functions.tsx';
import { Machine } from './views/machine.tsx';
import { Memory } from './views/memory.tsx';
import { Overview } from './views/overview.tsx';
import { Publish } from './views/publish.tsx';
import { OpenedReports } from './views/opened-reports.tsx';
import { Saved } from './views/reports.tsx';

const eventsKept = 200;
const links = [
  ['#/', 'Overview', 'overview'],
  ['#/functions', 'Functions', 'functions'],
  ['#/machine', 'Machine', 'machine'],
  ['#/fleet', 'Fleet', 'fleet'],
  ['#/memory', 'Memory', 'memory'],
  ['#/anatomy', 'Cold starts', 'anatomy'],
  ['#/reports', 'Reports', 'reports'],
] as const;

function App() {
  const [route, setRoute] = useState<Route>(routeOf(location.hash));
  const [range, setRange] = useState<Range>(rangeOf(localStorage.getItem('turntable-range')));
  const [paused, setPaused] = useState(false);
  const live = useLive();
  const [theme, setTheme] = useTheme();
  const [question, setQuestion] = useState<{ message: string; answer: (key: string | null) => void } | undefined>(
    undefined,
  );
  const main = useRef<HTMLElement>(null);

  useEffect(() => {
    setKeyPrompt((message) => new Promise((answer) => setQuestion({ message, answer })));
    const changed = (): void => {
      setRoute(routeOf(location.hash));
      // Screen readers and the keyboard continue at the new view.
      main.current?.focus();
    };
    addEventListener('hashchange', changed);
    return () => removeEventListener('hashchange', changed);
  }, []);

  const onRange = useCallback((next: Range) => {
    localStorage.setItem('turntable-range', next.id);
    setRange(next);
    setPaused(false);
  }, []);
  const inFleet = typeof live.tick?.fleet === 'string';
  const time = { range, onRange, paused, onPause: setPaused };
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), main.current?.focus())}>
        Skip to the content
      </a>
      <header>
        <strong class="brand">Turntable</strong>
        <Navigation route={route} inFleet={inFleet} />
        <span class={`connection ${live.connected ? 'on' : 'off'}`} role="status">
          {live.connected ? (paused ? 'paused' : 'live') : 'no answer'}
        </span>
        <ThemeButton {...{ theme, setTheme }} />
      </header>
      {live.lostAtMs !== undefined && (
        <p class="lost" role="alert">
          The host at {location.host} has not answered since {formatTime(live.lostAtMs)}. What you see is from then; the
          page asks again by itself.
        </p>
      )}
      <main id="main" ref={main} tabIndex={-1} class={live.connected ? '' : 'stale'}>
        <View {...{ route, live, inFleet }} {...time} />
      </main>
      {question !== undefined && (
        <KeyDialog
          message={question.message}
          onAnswer={(key) => {
            setQuestion(undefined);
            question.answer(key);
          }}
        />
      )}
    </>
  );
}

/** The page in a file that `--html` wrote: its report, and no host behind it. */
function SavedPage({ report }: { readonly report: SavedReport }) {
  const [theme, setTheme] = useTheme();
  return (
    <>
      <header>
        <strong class="brand">Turntable</strong>
        <ThemeButton {...{ theme, setTheme }} />
      </header>
      <main id="main">
        <Saved report={report} />
      </main>
    </>
  );
}

type Theme = 'light' | 'dark';

function ThemeButton({ theme, setTheme }: { readonly theme: Theme; readonly setTheme: (theme: Theme) => void }) {
  const other = theme === 'dark' ? 'light' : 'dark';
  return (
    <button type="button" onClick={() => setTheme(other)} aria-label={`Use ${other} colours`}>
      {theme === 'dark' ? '☀' : '☾'}
    </button>
  );
}

function Navigation({ route, inFleet }: { readonly route: Route; readonly inFleet: boolean }) {
  const shownLinks = links.filter(([, , view]) => view !== 'fleet' || inFleet || route.view === 'fleet');
  return (
    <nav aria-label="Views">
      {shownLinks.map(([href, label, view]) => (
        <a
          key={href}
          href={href}
          aria-current={
            route.view === view || (view === 'functions' && (route.view === 'function' || route.view === 'publish'))
              ? 'page'
              : undefined
          }
        >
          {label}
        </a>
      ))}
    </nav>
  );
}

/** What the event stream brought since the page was opened. */
function useLive(): Live {
  const [live, setLive] = useState<Live>({
    connected: true,
    lostAtMs: undefined,
    tick: undefined,
    events: [],
  });
  useEffect(() => {
    const stop = new AbortController();
    void getJson<{ events: EventAnswer[] }>('/api/event-log', stop.signal).then(
      ({ events }) =>
        setLive((before) => ({
          ...before,
          events: [...before.events, ...events.toReversed()].slice(0, eventsKept),
        })),
      () => undefined, // The event stream shows that the host does not answer.
    );
    void listen(
      {
        onEvent: (event, data) =>
          setLive((before) =>
            event === 'tick'
              ? { ...before, tick: data as TickEvent }
              : { ...before, events: [data as EventAnswer, ...before.events].slice(0, eventsKept) },
          ),
        onState: (connected) =>
          setLive((before) => ({
            ...before,
            connected,
            lostAtMs: connected ? undefined : (before.lostAtMs ?? Date.now()),
          })),
      },
      stop.signal,
    );
    return () => stop.abort();
  }, []);
  return live;
}

function View({
  route,
  live,
  inFleet,
  ...time
}: { readonly route: Route; readonly live: Live; readonly inFleet: boolean } & Parameters<typeof Functions>[0]) {
  switch (route.view) {
    case 'overview':
      return <Overview live={live} {...time} />;
    case 'functions':
      return <Functions {...time} />;
    case 'function':
      return <FunctionPage key={route.name} name={route.name} inFleet={inFleet} {...time} />;
    case 'publish':
      return <Publish name={route.name} />;
    case 'memory':
      return <Memory paused={time.paused} />;
    case 'machine':
      return <Machine paused={time.paused} />;
    case 'fleet':
      return <Fleet paused={time.paused} />;
    case 'anatomy':
      return <Anatomy key={route.recorded} asked={route.recorded} />;
    case 'reports':
      return <OpenedReports />;
  }
}

function KeyDialog({
  message,
  onAnswer,
}: {
  readonly message: string;
  readonly onAnswer: (key: string | null) => void;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} onCancel={() => onAnswer(null)} aria-labelledby="key-title">
      <form
        method="dialog"
        onSubmit={(event) => {
          const key = textOf(new FormData(event.currentTarget), 'key');
          onAnswer(key === '' ? null : key);
        }}
      >
        <h2 id="key-title">API key</h2>
        <p>{message}</p>
        <input name="key" type="password" aria-label="API key" autocomplete="off" />
        <div class="controls">
          <button type="submit" class="primary">
            Use it
          </button>
          <button type="button" onClick={() => onAnswer(null)}>
            Cancel
          </button>
        </div>
      </form>
    </dialog>
  );
}

/** The theme of the system, until the user chooses one. */
function useTheme(): readonly [Theme, (theme: Theme) => void] {
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const stored = localStorage.getItem('turntable-theme');
  const [theme, setTheme] = useState<Theme>(
    stored === 'light' || stored === 'dark' ? stored : dark.matches ? 'dark' : 'light',
  );
  // At each drawing of the page: the plots in it read their colours, and are made anew where these have changed.
  document.documentElement.dataset['theme'] = theme;
  return [
    theme,
    (next) => {
      localStorage.setItem('turntable-theme', next);
      setTheme(next);
    },
  ];
}

const saved = document.getElementById('saved')?.textContent;
render(saved === undefined ? <App /> : <SavedPage report={parseReport(saved)} />, document.getElementById('app')!);
