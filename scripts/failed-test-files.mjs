/**
 * Prints the test files that failed in a report of vitest's JSON reporter, one a line, relative to the working
 * directory. `.ci/run` runs them again alone. With `--why` each is followed by its failed tests and their messages, and
 * a file that failed outside of its tests by its own. A missing or incomplete report ends it with exit code 1.
 */
import { readFileSync } from 'node:fs';
import { relative } from 'node:path';
import { stripVTControlCharacters } from 'node:util';

/** Of one message: the difference that it names comes first, then the stack. */
const linesMax = 40;

const paths = process.argv.slice(2).filter((word) => word !== '--why');
const [reportPath] = paths;
if (reportPath === undefined) throw new Error('Give the path of a JSON report.');
const saysWhy = paths.length < process.argv.length - 2;

const { testResults } = JSON.parse(readFileSync(reportPath, 'utf8'));
for (const { name, status, message, assertionResults } of testResults) {
  if (status !== 'failed') continue;
  console.log(relative('', name));
  if (!saysWhy) continue;
  printMessage(message, '  ');
  for (const { fullName, status: outcome, failureMessages } of assertionResults) {
    if (outcome !== 'failed') continue;
    console.log(`  ${fullName}`);
    for (const each of failureMessages) printMessage(each, '    ');
  }
}

function printMessage(message, indent) {
  if (!message) return;
  const lines = stripVTControlCharacters(message).split('\n');
  for (const line of lines.slice(0, linesMax)) console.log(indent + line);
  if (lines.length > linesMax) console.log(`${indent}... ${lines.length - linesMax} more lines`);
}
