/**
 * For whom a process that works for several wrote a line. The output and the messages of a process come by different
 * ways, so the reader cannot tell by what it asked of the process last: each line that is written carries a number.
 */
const [open, close] = ['\u0001', '\u0002'];
const tagged = new RegExp(`${open}(\\d+)${close}`, 'g');

/** In the process: from now on what it writes is marked with the number that `current` gives, where it gives one. */
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

/** Where it is read: the first number in a line, and the line without any. */
export function takeTag(line: string): { readonly number: number | undefined; readonly text: string } {
  const [first] = line.matchAll(tagged);
  return first === undefined
    ? { number: undefined, text: line }
    : { number: Number(first[1]), text: line.replaceAll(tagged, '') };
}
