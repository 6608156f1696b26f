/** Numbers for people: as on the command line, but for what only the page shows. */
import { formatBytes, formatMs as msText } from '../../../../tools/index.ts';

export { formatBytes };

export const formatMs = (value: number | null | undefined): string =>
  value === null || value === undefined || !Number.isFinite(value) ? '–' : msText(value);

/** 0.98765 is '98.8%'; a share below 1 is never shown as 100%. */
export function formatShare(share: number | null): string {
  if (share === null) return '–';
  const percent = share * 100;
  if (percent === 0 || percent === 100) return `${percent}%`;
  const shown = percent < 10 ? percent.toFixed(2) : percent.toFixed(1);
  if (Number(shown) >= 100) return '99.9%';
  return Number(shown) === 0 ? '<0.01%' : `${shown}%`;
}

/** @param most largest value of an axis, all of whose labels have one unit */
export function formatRate(perSecond: number): string {
  if (perSecond === 0) return '0/s';
  if (perSecond < 0.1) return `${(perSecond * 60).toFixed(perSecond * 60 < 1 ? 2 : 1)}/min`;
  if (perSecond < 1) return `${Number(perSecond.toFixed(2))}/s`;
  return `${perSecond < 10 ? perSecond.toFixed(1) : Math.round(perSecond)}/s`;
}

/** 'now', '12 s ago', '3 min ago', '5 h ago', '2 d ago'. */
export function formatAgo(atMs: number, nowMs: number): string {
  if (atMs <= 0) return 'never';
  const seconds = Math.max(0, (nowMs - atMs) / 1000);
  if (seconds < 2) return 'now';
  if (seconds < 60) return `${Math.round(seconds)} s ago`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86_400)} d ago`;
}

/** '14:03:22', in the reader's time zone. */
export function formatTime(atMs: number): string {
  return new Date(atMs).toLocaleTimeString(undefined, { hour12: false });
}
