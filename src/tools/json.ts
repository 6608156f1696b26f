/**
 * The value of a JSON text that may be damaged, of another form, or absent: undefined where the text is no JSON, where
 * it is null, or where `checked` throws because members are missing.
 *
 * @param checked returns the value, or undefined for one that is not of its type
 */
export function jsonAs<Value, Checked = Value>(
  text: string | undefined,
  checked: (value: Value) => Checked | undefined,
): Checked | undefined {
  if (text === undefined) return undefined;
  try {
    const value = JSON.parse(text) as Value | null;
    return value === null ? undefined : checked(value);
  } catch {
    return undefined;
  }
}
