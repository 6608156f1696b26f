/** Small parts that several views share. */
import { Fragment, type ComponentChildren, type InputHTMLAttributes } from 'preact';
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

/** A name, or a name with its meaning; a column of words is aligned to the left. */
type Heading = string | { readonly name: string; readonly hint?: string; readonly words?: boolean };

export interface TableRow {
  readonly key: string | number;
  /** In the order of the headings. The first names the row. */
  readonly cells: readonly ComponentChildren[];
  readonly marks?: Readonly<Record<`data-${string}`, string | number>>;
  /** Stands in a row of its own below. */
  readonly note?: string;
}

interface TableProps {
  readonly headings: readonly Heading[];
  readonly rows: readonly TableRow[];
}

/** In a narrow window the cells of a row are below its name, each beside its heading. */
export function Table({ headings, rows }: TableProps) {
  const columns = headings.map((heading) => (typeof heading === 'string' ? { name: heading } : heading));
  const looks = columns.map(({ words }) => (words === true ? 'words' : undefined));
  return (
    <table class="labelled">
      <thead>
        <tr>
          {columns.map(({ name, hint }, at) => (
            <th scope="col" key={at} title={hint} class={looks[at]}>
              {name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map(({ key, cells: [name, ...cells], marks, note = '' }) => (
          <Fragment key={key}>
            <tr {...marks}>
              <th scope="row" class={looks[0]}>
                {name}
              </th>
              {cells.map((cell, at) => (
                <td key={at} data-label={columns[at + 1]?.name} class={looks[at + 1]}>
                  {cell}
                </td>
              ))}
            </tr>
            {note !== '' && (
              <tr data-note={key}>
                <td class="note" colSpan={columns.length}>
                  <span>{note}</span>
                </td>
              </tr>
            )}
          </Fragment>
        ))}
      </tbody>
    </table>
  );
}

export interface TableCardProps extends TableProps {
  /** Of the heading. */
  readonly id: string;
  readonly title: string;
  /** Shown instead of a table without rows. */
  readonly empty?: string;
  readonly warn?: boolean;
}

/** A table under a heading. */
export function TableCard({ id, title, empty, warn = false, ...table }: TableCardProps) {
  return (
    <section class={`card scroll${warn ? ' warn' : ''}`} aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      {empty !== undefined && table.rows.length === 0 ? <p class="muted">{empty}</p> : <Table {...table} />}
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
