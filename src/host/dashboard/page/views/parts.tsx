/** Small parts that several views share. */
import type { ComponentChildren } from 'preact';
import { ranges, type Range } from '../logic/ranges.ts';

export function Message({ text, level = 'info' }: { readonly text: string; readonly level?: 'info' | 'warning' }) {
  return (
    <p class={`message ${level}`} role={level === 'warning' ? 'alert' : 'status'}>
      {text}
    </p>
  );
}

export interface TileProps {
  readonly name: string;
  readonly value: string;
  readonly note: string;
  readonly id: string;
  readonly warn?: boolean;
}

export function Tile({ name, value, note, id, warn = false }: TileProps) {
  return (
    <div class={`tile${warn ? ' warn' : ''}`} id={`tile-${id}`}>
      <span class="name">{name}</span>
      <strong>{value}</strong>
      <span class="muted">{note}</span>
    </div>
  );
}

export interface RangePickerProps {
  readonly range: Range;
  readonly onRange: (range: Range) => void;
  readonly paused: boolean;
  readonly onPause: (paused: boolean) => void;
  readonly zoomed?: boolean;
  readonly onReset?: () => void;
}

export function RangePicker({ range, onRange, paused, onPause, zoomed = false, onReset }: RangePickerProps) {
  return (
    <div class="controls">
      <div role="group" aria-label="Time range" class="segments">
        {ranges.map((each) => (
          <button type="button" key={each.id} aria-pressed={each.id === range.id} onClick={() => onRange(each)}>
            {each.label}
          </button>
        ))}
      </div>
      <button type="button" aria-pressed={paused} onClick={() => onPause(!paused)}>
        {paused ? 'Resume' : 'Pause'}
      </button>
      {zoomed && (
        <button type="button" onClick={onReset}>
          Whole range
        </button>
      )}
    </div>
  );
}

export function Field({ label, children }: { readonly label: string; readonly children: ComponentChildren }) {
  return (
    <label class="field">
      <span>{label}</span>
      {children}
    </label>
  );
}

/** Copies a text, and says that it did. */
export function CopyButton({ text }: { readonly text: string }) {
  const copy = async (event: MouseEvent): Promise<void> => {
    const button = event.currentTarget as HTMLButtonElement;
    await navigator.clipboard.writeText(text);
    button.textContent = 'Copied';
    setTimeout(() => (button.textContent = 'Copy'), 1500);
  };
  return (
    <button type="button" onClick={(event) => void copy(event)}>
      Copy
    </button>
  );
}
