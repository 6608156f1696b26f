/** Text tables for the terminal. */

/**
 * Lines of a table: a heading, then the rows, columns two spaces apart. The last column is not padded.
 *
 * @param columns titles; one that begins with '>' is of numbers, which stand on the right
 */
export function renderTable(columns: readonly string[], rows: readonly (readonly string[])[]): string {
  const isRight = columns.map((title) => title.startsWith('>'));
  const titles = columns.map((title) => title.replace(/^>/, ''));
  const cells = [titles, ...rows.map((row) => row.map(printable))];
  const widths = titles.map((_, index) => Math.max(...cells.map((row) => displayWidth(row[index] ?? ''))));
  const lines = cells.map((row) =>
    widths
      .map((width, index) => {
        const cell = row[index] ?? '';
        const padding = ' '.repeat(width - displayWidth(cell));
        return isRight[index] === true ? padding + cell : cell + padding;
      })
      .join('  ')
      .trimEnd(),
  );
  return lines.join('\n');
}

/** A column: its title, and the text of its cell in a row. */
export type Column<Row> = readonly [title: string, cell: (row: Row) => string];

/** A table with one line for each of `rows`. */
export function renderRows<Row>(columns: readonly Column<Row>[], rows: readonly Row[]): string {
  const cells = rows.map((row) => columns.map(([, cell]) => cell(row)));
  return renderTable(
    columns.map(([title]) => title),
    cells,
  );
}

/** `1 core`, `2 cores` */
export const counted = (count: number, what: string): string => `${count} ${what}${count === 1 ? '' : 's'}`;

/** To a tenth. */
export const rounded = (value: number): string => String(Math.round(value * 10) / 10);

/** Without control characters: a name that a server sent must not move the terminal's cursor. */
export function printable(text: string): string {
  return text.replaceAll(/\p{Cc}+/gu, ' ');
}

function displayWidth(text: string): number {
  return Array.from(text).length;
}
