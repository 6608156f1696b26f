/** The `turntable` command. Exit codes: 0 it worked, 1 it did not, 2 the command line was wrong. */
import { runCommandLine } from './command-line.ts';

// `turntable ... | head` closes the pipe early, which is no failure. A host goes on when nobody reads its output.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
  if (!process.argv.includes('serve')) process.exit(0);
});

process.exitCode = await runCommandLine(process.argv.slice(2));
