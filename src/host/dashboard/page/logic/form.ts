/** What was typed into a field, without blanks around it; '' for a file or nothing. */
export function textOf(fields: { get(name: string): unknown }, name: string): string {
  const value = fields.get(name);
  return typeof value === 'string' ? value.trim() : '';
}
