/**
 * Tells which function a line of output belongs to, in a process that works for several. Output and messages arrive by
 * different ways, so the reader cannot tell from its last request: each line carries a number.
 */
const [open, close] = ['\u0001', '\u0002'];
const tagged = new RegExp(`${open}(\\d+)${close}`, 'g');

/** In the process: from now on output is marked with the number that `current` returns, if it returns one. */
export function tagOutput(current: () => number | undefined): void {
  for (const stream of [process.stdout, process.stderr]) {
    const write = stream.write.bind(stream) as (chunk: unknown, ...rest: unknown[]) => boolean;
    stream.write = (chunk: unknown, ...rest: unknown[]) => {
      const number = current();
      if (number === undefined) return write(chunk, ...rest);
      const tag = `${open}${number}${close}`;
      if (typeof chunk === 'string') return write(tag + chunk.replaceAll(/\n(?=[^])/g, `\n${tag}`), ...rest);
      return write(chunk instanceof Uint8Array ? Buffer.concat([Buffer.from(tag), chunk]) : chunk, ...rest);
    };
  }
}

/** In the reader: the first number in a line, and the line without any. */
export function takeTag(line: string): { readonly number: number | undefined; readonly text: string } {
  const [first] = line.matchAll(tagged);
  return first === undefined
    ? { number: undefined, text: line }
    : { number: Number(first[1]), text: line.replaceAll(tagged, '') };
}
