/** A command line of `turntable`, from its words to its exit code. */
import { Command, CommanderError, type AnyCommand } from './commander.ts';
import { commands, retired } from './commands.ts';
import { isSpoken, usage } from './error.ts';
import { packageVersion } from './package.ts';
// oxlint-disable-next-line no-restricted-imports -- the door of all tools loads them all, and help is to answer at once
import { asCalled } from '../tools/called-as/index.ts';

const usageExitCode = 2;

/** Where help and errors about the command line are written. */
const output = {
  writeOut: (text: string) => process.stdout.write(asCalled(text)),
  writeErr: (text: string) => process.stderr.write(asCalled(text)),
  // Longer lines are hard to read. A terminal that does not know its size says 0.
  getOutHelpWidth: () => Math.min(helpWidthMax, process.stdout.columns || helpWidthUsual),
};
const helpWidthMax = 110;
const helpWidthUsual = 80;

/** An option with a long and a short name, such as `--listen-port, --port`, is listed under the short one. */
const help = {
  minWidthToWrap: 30,
  optionTerm: ({ flags }: { readonly flags: string }) => flags.replace(/^--[\w-]+, (?=--)/, ''),
};

/** Does what the words after `turntable` say, and returns the exit code. */
export async function runCommandLine(argv: readonly string[]): Promise<number> {
  const debug = argv.includes('--debug');
  try {
    const program = await buildProgram(argv);
    await program.parseAsync(argv.length === 0 ? ['--help'] : [...argv], { from: 'user' });
    return Number(process.exitCode ?? 0);
  } catch (error) {
    // Commander has printed its own message, or the help.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : usageExitCode;
    return report(error, debug);
  }
}

async function buildProgram(argv: readonly string[]): Promise<AnyCommand> {
  const program = new Command('turntable')
    .description('A function host for ONNX models: each answers over HTTP within its latency objective.')
    .version(packageVersion(), '-V, --version')
    .option('--debug', 'print the stack of an error')
    // Options after a command's name are the command's own: `publish --version 3` does not ask for our version.
    .enablePositionalOptions()
    .configureOutput(output)
    .configureHelp(help)
    .commandsGroup('Other:')
    .helpCommand(true)
    .showHelpAfterError('(turntable --help lists the commands)')
    .exitOverride();
  const words = argv.filter((word) => !word.startsWith('-'));
  const wanted = words[0] === 'help' ? words[1] : words[0];
  refuseRetired(argv, wanted);
  for (const { name, summary, group, load } of commands) {
    const command: AnyCommand = name === wanted ? await load() : new Command(name);
    command.summary(summary).helpGroup(`${group}:`);
    program.addCommand(command);
    // The settings of a command reach only commands that are made through it.
    for (const each of [command, ...command.commands]) {
      const path = each === command ? name : `${name} ${each.name()}`;
      each.option('--debug', 'print the stack of an error').configureOutput(output).configureHelp(help).exitOverride();
      each.showHelpAfterError(`(turntable ${path} --help tells more)`);
    }
  }
  return program;
}

/** Says what to do instead of a command or an option that is gone. */
function refuseRetired(argv: readonly string[], wanted: string | undefined): void {
  const options = argv.filter((word) => word.startsWith('--')).map((word) => word.replace(/=.*/s, ''));
  const instead = [wanted ?? '', ...options, ...options.map((option) => `${wanted} ${option}`)]
    .map((name) => retired.get(name))
    .find((sentence) => sentence !== undefined);
  if (instead !== undefined) throw usage(instead);
}

function report(error: unknown, debug: boolean): number {
  const known = isSpoken(error);
  const message = error instanceof Error ? error.message : String(error);
  process.stderr.write(`turntable: ${asCalled(message).replaceAll(/\s*\n\s*/g, ' ')}\n`);
  if (debug) console.error(error);
  else if (!known) process.stderr.write('This is unexpected; --debug prints where it happened.\n');
  return known && 'exitCode' in error && typeof error.exitCode === 'number' ? error.exitCode : 1;
}
