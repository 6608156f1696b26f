/** `turntable try`: a function's folder called without a host. */
import { join } from 'node:path';
import { Command, type AnyCommand, type OptionsOf } from './commander.ts';
import { openFolder, TryError, type TriedFunction, type TriedTimes } from '../host/index.ts';
import { given, formatMs } from '../tools/index.ts';
import { contentTypeOf, readBody } from './call.ts';
import { CliError, usage } from './error.ts';
import { exampleInputs } from './example-inputs.ts';
import { appended, parseCount, parseSizes } from './values.ts';

const tryFlags = () =>
  new Command('try')
    .description(
      'Call a function of a folder without a host: its preprocess, model and postprocess run as at one. Prints the ' +
        'reply; times, what the handler prints, and its errors with file, line and stack go to standard error. ' +
        'Functions that the handler invokes are those of the folders beside it.',
    )
    .argument('<folder>', "the folder with function.json, or a model's file")
    .argument(
      '[input]',
      'file with the body, such as a JSON file or a JPEG; -: standard input; default: its example, and without a ' +
        'handler zeros',
    )
    .option(
      '--dim <name=size...>',
      'size of an open dimension for zeros; otherwise sizes are tried until the model runs',
    )
    .option('-d, --data <text>', 'the body')
    .option('--content-type <type>', 'what the body is; guessed from the body or the name of the file by default')
    .option('-H, --header <name: value>', 'a header of the request (repeatable)', appended, [])
    .option('-n, --runs <count>', 'call so often; the reply is that of the last call', parseCount, 1)
    .option('--json', 'print reply and times as JSON');

type TryOptions = OptionsOf<ReturnType<typeof tryFlags>>;

export function tryCommand(): AnyCommand {
  return tryFlags().action(async (folder, input, options) => {
    // Standard output is for the reply: `turntable try ... | jq` works whatever the handler prints.
    const tried = await explained(async () => await openFolder(folder, (line) => process.stderr.write(`${line}\n`)));
    try {
      process.stdout.write(await replyText(tried, folder, input, options));
    } finally {
      await tried.close();
    }
  });
}

async function replyText(
  tried: TriedFunction,
  folder: string,
  input: string | undefined,
  options: TryOptions,
): Promise<Uint8Array> {
  const { example, name } = tried;
  const exampleFile = example?.startsWith('@') === true ? join(folder, example.slice(1)) : undefined;
  const isExample = input === undefined && options.data === undefined;
  const isGuessed = isExample && (example === undefined || options.dim !== undefined);
  if (isGuessed && tried.hasHandler) throw usage('there is no body for its handler: give a file, - or --data');
  const file = isExample && !isGuessed ? exampleFile : input;
  const data = isGuessed
    ? await guessedBody(tried, options.dim ?? [])
    : isExample && exampleFile === undefined
      ? example
      : options.data;
  const body = await readBody({ ...given({ data, file }) });
  const headers = { 'content-type': options.contentType ?? contentTypeOf(body, file), ...headersOf(options.header) };
  const times: TriedTimes[] = [];
  let response;
  do {
    const call = await explained(
      async () => await tried.call({ method: 'POST', url: `/function/${name}`, headers, body: new Uint8Array(body) }),
    );
    times.push(call.times);
    response = call.response;
  } while (times.length < options.runs);
  if (options.json !== true) {
    process.stderr.write(`${timesText(tried, times)}\n`);
    const text = Buffer.from(response.body);
    return process.stdout.isTTY && text.at(-1) !== 0x0a ? Buffer.concat([text, Buffer.from('\n')]) : text;
  }
  const isText = /^text\/|json/.test(response.headers['content-type'] ?? '');
  const reply = Buffer.from(response.body).toString(isText ? 'utf8' : 'base64');
  const shown = { [isText ? 'body' : 'bodyBase64']: reply };
  const { status, headers: replyHeaders } = response;
  const { compileMs, loadMs } = tried;
  return Buffer.from(
    `${JSON.stringify({ status, headers: replyHeaders, ...shown, compileMs, loadMs, calls: times })}\n`,
  );
}

/** A body of zeros; the sizes that were guessed go to standard error. */
async function guessedBody({ modelPath, metadata }: TriedFunction, dimensions: readonly string[]): Promise<string> {
  const { example, note } = await exampleInputs(modelPath, metadata, parseSizes(dimensions, '--dim'));
  if (note !== undefined) process.stderr.write(`${note}\n`);
  return JSON.stringify({ inputs: example });
}

/**
 * Two or three lines: what came before the call, the call by its parts, and the middle of further calls. The first call
 * of a process pays for code that is compiled late.
 */
function timesText({ compileMs, loadMs, sloMs }: TriedFunction, times: readonly TriedTimes[]): string {
  const handler = compileMs === undefined ? '' : `handler compiled in ${formatMs(compileMs)}, `;
  const further = times.slice(1).sort((one, other) => together(one) - together(other));
  const middle = further[Math.floor(further.length / 2)];
  const measured = middle ?? times[0];
  const verdict =
    measured === undefined || sloMs === undefined
      ? ''
      : together(measured) <= sloMs
        ? `; the SLO is ${formatMs(sloMs)}`
        : `; that is beyond the SLO of ${formatMs(sloMs)}`;
  return [
    `${handler}model loaded in ${formatMs(loadMs)}`,
    ...times.slice(0, 1).map((first) => `first call: ${parts(first)}${middle === undefined ? verdict : ''}`),
    ...(middle === undefined ? [] : [`middle of ${further.length} more: ${parts(middle)}${verdict}`]),
  ].join('\n');
}

const together = ({ preprocessMs, inferMs, postprocessMs }: TriedTimes): number =>
  preprocessMs + inferMs + postprocessMs;

const parts = (times: TriedTimes): string =>
  `preprocess ${formatMs(times.preprocessMs)}, model ${formatMs(times.inferMs)}, ` +
  `postprocess ${formatMs(times.postprocessMs)}, together ${formatMs(together(times))}`;

function headersOf(words: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    words.map((word) => {
      const [, name, value] = /^([\w-]+):\s*(.*)$/.exec(word) ?? [];
      if (name === undefined || value === undefined) {
        throw usage(`--header is "${word}", but must be name: value, such as 'accept: image/jpeg'`);
      }
      return [name.toLowerCase(), value];
    }),
  );
}

async function explained<Result>(act: () => Promise<Result>): Promise<Result> {
  try {
    return await act();
  } catch (error) {
    if (!(error instanceof TryError)) throw error;
    const status = error.status === undefined ? '' : ` [HTTP ${error.status}]`;
    throw new CliError(`${error.message}${status}`, { cause: error });
  }
}
