/** `turntable logs`: what a function of a running host, its handler and its instances had to say. */
import { EventParser } from '../client/index.ts';
import type { LogLine } from '../host/index.ts';
import { Command, type AnyCommand } from './commander.ts';
import { asks, functionPath, request } from './client.ts';
import { CliError, commandError } from './error.ts';
import { printable } from './table.ts';
import { parseCount } from './values.ts';

export function logsCommand(): AnyCommand {
  const command = new Command('logs')
    .description(
      "Show a function's log on a running host: what its handler wrote, the stack of what it threw with lines of its " +
        'source, calls that failed, cold starts, and the starts and ends of its instances.',
    )
    .argument('<name>', 'the function')
    .option('-f, --follow', 'go on with what comes')
    .option('-n, --lines <count>', 'how many of the newest lines', parseCount, 100)
    .option('--json', 'print a JSON object a line');
  return asks(command, async (host, name, options) => {
    const print = (line: LogLine): void => {
      process.stdout.write(`${options.json === true ? JSON.stringify(line) : lineText(line)}\n`);
    };
    const follow = options.follow === true;
    const query = `lines=${options.lines}${follow ? '&follow=true' : ''}`;
    const where = `${functionPath('functions', name, undefined)}/log?${query}`;
    const response = await request(host, where);
    if (!follow) {
      for (const line of ((await response.json()) as { lines: LogLine[] }).lines) print(line);
      return;
    }
    for await (const { event, data } of serverSentEvents(response)) if (event === 'line') print(data as LogLine);
    throw new CliError('the host has ended the stream');
  });
}

/** `12:30:01.250 handler  warn  2  text`: local time, and the version where there is one. */
function lineText({ at, source, level, version, text }: LogLine): string {
  const date = new Date(at);
  const clock = [date.getHours(), date.getMinutes(), date.getSeconds()].map((part) => String(part).padStart(2, '0'));
  const time = `${clock.join(':')}.${String(date.getMilliseconds()).padStart(3, '0')}`;
  const [first = '', ...more] = text.split('\n').map(printable);
  const of = version === null ? '' : `v${printable(version)} `;
  return [`${time} ${source.padEnd(8)} ${level.padEnd(5)} ${of}${first}`, ...more].join('\n');
}

/** The events of a stream, until the host ends it. */
async function* serverSentEvents({ body }: Response): AsyncGenerator<{ event: string; data: unknown }> {
  if (body === null) return;
  const parser = new EventParser();
  try {
    for await (const text of body.pipeThrough(new TextDecoderStream()) as unknown as AsyncIterable<string>) {
      for (const { event, data } of parser.push(text)) yield { event, data: JSON.parse(data) as unknown };
    }
  } catch (error) {
    throw commandError('the connection to the host broke', error);
  }
}
