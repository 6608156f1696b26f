/** The trimmed text of a form field; '' for a file or no value. */
export function textOf(fields: { get(name: string): unknown }, name: string): string {
  const value = fields.get(name);
  return typeof value === 'string' ? value.trim() : '';
}
