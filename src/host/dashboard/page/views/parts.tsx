/** Small parts that several views share. */
import type { ComponentChildren, InputHTMLAttributes } from 'preact';
import { ranges, type Range } from '../logic/ranges.ts';
import { answerOf, type Loaded } from '../state.ts';

export function Message({ text, level = 'info' }: { readonly text: string; readonly level?: 'info' | 'warning' }) {
  return (
    <p class={`message ${level}`} role={level === 'warning' ? 'alert' : 'status'}>
      {text}
    </p>
  );
}

/** The loaded answer; above it, why the latest request failed. */
export function Polled<Answer>({
  loaded,
  children,
}: {
  readonly loaded: Loaded<Answer>;
  readonly children: (answer: Answer) => ComponentChildren;
}) {
  const answer = answerOf(loaded);
  return (
    <>
      {loaded.state === 'failed' && <Message text={loaded.message} level="warning" />}
      {answer !== undefined ? children(answer) : loaded.state === 'loading' && <Message text="Loading…" />}
    </>
  );
}

interface TableProps {
  /** A name, or a name with its meaning; headings of words are aligned to the left. */
  readonly headings: readonly (string | { readonly name: string; readonly hint?: string; readonly words?: boolean })[];
  readonly class?: string | undefined;
  readonly children: ComponentChildren;
}

export function Table({ headings, class: look, children }: TableProps) {
  return (
    <table class={look}>
      <thead>
        <tr>
          {headings.map((heading) => {
            const { name, hint, words = false } = typeof heading === 'string' ? { name: heading } : heading;
            return (
              <th scope="col" key={name} title={hint} class={words ? 'words' : undefined}>
                {name}
              </th>
            );
          })}
        </tr>
      </thead>
      <tbody>{children}</tbody>
    </table>
  );
}

export interface TableCardProps extends Omit<TableProps, 'class'> {
  /** Of the heading. */
  readonly id: string;
  readonly title: string;
  /** Shown instead of a table without rows. */
  readonly empty?: string | false;
  readonly warn?: boolean;
  /** In a narrow window its figures are below the name of their row, as in the table of functions. */
  readonly labelled?: boolean;
}

/** Columns beside a sentence that fit a narrow window. */
const stackedMax = 4;

/** A table under a heading. In a narrow window it scrolls, or a small one has its sentences below the figures. */
export function TableCard(props: TableCardProps) {
  const { id, title, headings, children, empty = false, warn = false, labelled = false } = props;
  const last = headings.at(-1);
  const stacks = headings.length <= stackedMax && typeof last === 'object' && last.words === true;
  return (
    <section class={`card scroll${labelled ? ' functions labelled' : ''}${warn ? ' warn' : ''}`} aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      {empty !== false ? (
        <p class="muted">{empty}</p>
      ) : (
        <Table headings={headings} class={stacks ? 'stack' : undefined}>
          {children}
        </Table>
      )}
    </section>
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

/** A text field of one line, which browsers do not fill in. */
export function TextField({ label, ...input }: { readonly label: string } & InputHTMLAttributes) {
  return (
    <Field label={label}>
      <input autocomplete="off" {...input} />
    </Field>
  );
}

export function Options({ of }: { readonly of: readonly string[] }) {
  return of.map((each) => <option key={each}>{each}</option>);
}

/** Copies a text, and says so. */
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
