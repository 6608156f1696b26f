/**
 * Loaded into a process by `NODE_OPTIONS=--import`: measures the longest stop of its event loop. SIGUSR2 starts the
 * measurement, and the next one writes the result as JSON to the file in TURNTABLE_LOOP_WATCH.
 *
 * A beat every 2 ms. Time that the operating system gave to other threads is not a stop of this one: the time in which
 * the thread was ready but did not run (/proc/self/schedstat) is subtracted.
 */
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { isMainThread } from 'node:worker_threads';

const beatMs = 2;
// Only the intended one of this process's children: they all inherit NODE_OPTIONS.
const isMeant = isMainThread && /gpu[/\\]process[/\\]main\.js$/.test(process.argv[1] ?? '');
const file = isMeant ? process.env['TURNTABLE_LOOP_WATCH'] : undefined;

/** Milliseconds for which this thread had a core, and for which it waited for one. */
const schedule = () =>
  readFileSync(`/proc/self/task/${process.pid}/schedstat`, 'utf8')
    .split(' ')
    .slice(0, 2)
    .map((ns) => Number(ns) / 1e6);

/** Bytes that this process has read by system calls. */
const bytesRead = () => Number(/^rchar: (\d+)/m.exec(readFileSync('/proc/self/io', 'utf8'))[1]);

let beats;

function begin() {
  const seen = { beats: 0, longestMs: 0, longestWallMs: 0, longestWorkMs: 0, mostBytesRead: 0, timer: undefined };
  let lastMs = performance.now();
  let [lastRanMs, lastReadyMs] = schedule();
  let lastRead = bytesRead();
  seen.timer = setInterval(() => {
    const nowMs = performance.now();
    const [ranMs, readyMs] = schedule();
    const read = bytesRead();
    const wallMs = nowMs - lastMs - beatMs;
    seen.beats++;
    seen.longestWallMs = Math.max(seen.longestWallMs, wallMs);
    seen.longestMs = Math.max(seen.longestMs, wallMs - (readyMs - lastReadyMs));
    seen.longestWorkMs = Math.max(seen.longestWorkMs, ranMs - lastRanMs);
    seen.mostBytesRead = Math.max(seen.mostBytesRead, read - lastRead);
    [lastMs, lastRanMs, lastReadyMs, lastRead] = [nowMs, ranMs, readyMs, read];
  }, beatMs);
  return seen;
}

if (file !== undefined) {
  process.on('SIGUSR2', () => {
    if (beats === undefined) {
      beats = begin();
      return;
    }
    const { timer, ...seen } = beats;
    clearInterval(timer);
    beats = undefined;
    writeFileSync(`${file}.part`, JSON.stringify(seen));
    renameSync(`${file}.part`, file);
  });
}
