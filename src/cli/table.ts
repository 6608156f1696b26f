/** Text tables for the terminal. */

export interface Column {
  readonly title: string;
  /** Numbers stand on the right. */
  readonly align?: 'left' | 'right';
}

/** Lines of a table: a heading, then the rows, columns two spaces apart. The last column is not padded. */
export function renderTable(columns: readonly Column[], rows: readonly (readonly string[])[]): string {
  const cells = [columns.map(({ title }) => title), ...rows.map((row) => row.map(printable))];
  const widths = columns.map((_, index) => Math.max(...cells.map((row) => displayWidth(row[index] ?? ''))));
  const lines = cells.map((row) =>
    columns
      .map(({ align }, index) => {
        const cell = row[index] ?? '';
        const padding = ' '.repeat((widths[index] ?? 0) - displayWidth(cell));
        return align === 'right' ? padding + cell : cell + padding;
      })
      .join('  ')
      .trimEnd(),
  );
  return lines.join('\n');
}

/** Without control characters: a name that a server sent must not move the terminal's cursor. */
export function printable(text: string): string {
  return text.replaceAll(/\p{Cc}+/gu, ' ');
}

function displayWidth(text: string): number {
  return Array.from(text).length;
}
