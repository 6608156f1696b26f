/** Hooks that keep a view up to date without needless requests. */
import { useEffect, useRef, useState } from 'preact/hooks';
import type { EventAnswer, TickEvent } from '../api-types.ts';
import { getJson, request } from './api.ts';

export type Loaded<Answer> =
  | { readonly state: 'loading' }
  | { readonly state: 'failed'; readonly message: string; readonly last: Answer | undefined }
  | { readonly state: 'here'; readonly answer: Answer };

/** Requests the path now, then every `everyMs` while the page is visible and not paused. */
export function usePolled<Answer>(
  path: string | null,
  everyMs: number,
  paused = false,
): Loaded<Answer> & { reload: () => void } {
  const [loaded, setLoaded] = useState<Loaded<Answer>>({ state: 'loading' });
  const [turn, setTurn] = useState(0);
  const last = useRef<{ path: string; answer: Answer } | undefined>(undefined);
  useEffect(() => {
    if (path === null) return undefined;
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const ask = async (): Promise<void> => {
      try {
        const answer = await getJson<Answer>(path, stop.signal);
        last.current = { path, answer };
        setLoaded({ state: 'here', answer });
      } catch (error) {
        if (stop.signal.aborted) return;
        const known = last.current?.path === path ? last.current.answer : undefined;
        setLoaded({ state: 'failed', message: (error as Error).message, last: known });
      }
      if (!stop.signal.aborted && !paused) timer = setTimeout(() => void whenSeen(ask), everyMs);
    };
    const whenSeen = async (work: () => Promise<void>): Promise<void> => {
      if (document.hidden)
        document.addEventListener('visibilitychange', () => void work(), { once: true, signal: stop.signal });
      else await work();
    };
    void ask();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [path, everyMs, paused, turn]);
  return { ...loaded, reload: () => setTurn((before) => before + 1) };
}

export const answerOf = <Answer>(loaded: Loaded<Answer>): Answer | undefined =>
  loaded.state === 'here' ? loaded.answer : loaded.state === 'failed' ? loaded.last : undefined;

export interface Said {
  readonly text: string;
  readonly level: 'info' | 'warning';
}

/** For buttons that make the host do something: one action at a time, and the result of the last one. */
export function useAction(onDone?: () => void) {
  const [said, setSaid] = useState<Said | undefined>(undefined);
  const [busy, setBusy] = useState(false);
  const say = (text: string | undefined): void => setSaid(text === undefined ? undefined : { text, level: 'info' });
  /** @param meanwhile is said until `work` says what it has done; what it throws is a warning */
  const run = async (work: () => Promise<string | undefined>, meanwhile?: string): Promise<void> => {
    setBusy(true);
    say(meanwhile);
    try {
      say(await work());
    } catch (error) {
      setSaid({ text: (error as Error).message, level: 'warning' });
    } finally {
      setBusy(false);
    }
  };
  const act = (what: string, path: string, init: RequestInit): Promise<void> =>
    run(async () => {
      await request(path, init);
      onDone?.();
      return `${what}: done`;
    });
  return { said, busy, run, act };
}

/** What the event stream has brought. */
export interface Live {
  readonly connected: boolean;
  /** When the host stopped answering; undefined while it answers. */
  readonly lostAtMs: number | undefined;
  readonly tick: TickEvent | undefined;
  /** The newest first. */
  readonly events: readonly EventAnswer[];
}
